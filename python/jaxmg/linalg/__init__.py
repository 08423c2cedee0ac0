"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .cholesky import cho_factor, cho_solve, logdet, solve
from .eigen import EighResult, EighSelection, eigh, eigvalsh
from .polar import polar
from .qr import QRResult, qr
from .svd import SVDResult, cond, matrix_rank, norm, pinv, svd, svdvals

__all__ = [
    "CholeskyFactor",
    "EighResult",
    "EighSelection",
    "QRResult",
    "SVDResult",
    "cho_factor",
    "cho_solve",
    "cond",
    "eigh",
    "eigvalsh",
    "logdet",
    "matrix_rank",
    "norm",
    "pinv",
    "polar",
    "qr",
    "solve",
    "svd",
    "svdvals",
]
