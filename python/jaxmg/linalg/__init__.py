"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._cho_append import BorderedFactor
from .._factor_object import CholeskyFactor
from .cholesky import cho_factor, cho_solve, logdet, solve
from .qr import QRResult, qr

__all__ = ["CholeskyFactor", "QRResult", "cho_factor", "cho_solve", "logdet", "qr", "solve"]
from .factor import cholesky
from .triangular import solve_triangular
from .update import cho_append, cho_update

__all__ = [
    "BorderedFactor",
    "CholeskyFactor",
    "cho_append",
    "cho_factor",
    "cho_solve",
    "cho_update",
    "cholesky",
    "logdet",
    "solve",
    "solve_triangular",
]
