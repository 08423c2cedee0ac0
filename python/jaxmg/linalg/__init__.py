"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .cholesky import cho_factor, cho_solve, logdet, solve
from .factor import cholesky
from .triangular import solve_triangular

__all__ = [
    "CholeskyFactor",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "logdet",
    "solve",
    "solve_triangular",
]
