"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._cho_append import BorderedFactor
from .._eigh_factor import EighFactor, eigh_factor
from .._factor_object import CholeskyFactor
from .._lu_factor import LUFactor, SlogdetResult
from .._qr_factor import QRFactor, qr_factor
from .cholesky import cho_factor, cho_solve, logdet
from .eigen import EighResult, EighSelection, eigh, eigvalsh
from .factor import cholesky
from .general import det, inv, lu_factor, lu_solve, slogdet, solve
from .lstsq import lstsq
from .lu import lu
from .polar import polar
from .qr import QRResult, qr
from .svd import SVDResult, cond, matrix_rank, norm, pinv, svd, svdvals
from .triangular import solve_triangular
from .update import cho_append, cho_update

__all__ = [
    "BorderedFactor",
    "CholeskyFactor",
    "EighFactor",
    "EighResult",
    "EighSelection",
    "LUFactor",
    "QRFactor",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_append",
    "cho_factor",
    "cho_solve",
    "cho_update",
    "cholesky",
    "cond",
    "det",
    "eigh",
    "eigh_factor",
    "eigvalsh",
    "inv",
    "logdet",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matrix_rank",
    "norm",
    "pinv",
    "polar",
    "qr",
    "qr_factor",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
]
