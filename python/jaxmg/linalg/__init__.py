"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .._lu_factor import LUFactor, SlogdetResult
from .._qr_factor import QRFactor, qr_factor
from .cholesky import cho_factor, cho_solve, logdet
from .general import det, inv, lu_factor, lu_solve, slogdet, solve
from .lstsq import lstsq
from .lu import lu
from .qr import QRResult, qr

__all__ = [
    "CholeskyFactor",
    "LUFactor",
    "QRFactor",
    "QRResult",
    "SlogdetResult",
    "cho_factor",
    "cho_solve",
    "det",
    "inv",
    "logdet",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "qr",
    "qr_factor",
    "slogdet",
    "solve",
]
