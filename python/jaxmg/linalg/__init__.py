"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .._lu_factor import LUFactor, SlogdetResult
from .cholesky import cho_factor, cho_solve, logdet
from .general import det, inv, lu_factor, lu_solve, slogdet, solve
from .lu import lu

__all__ = [
    "CholeskyFactor",
    "LUFactor",
    "SlogdetResult",
    "cho_factor",
    "cho_solve",
    "det",
    "inv",
    "logdet",
    "lu",
    "lu_factor",
    "lu_solve",
    "slogdet",
    "solve",
]
