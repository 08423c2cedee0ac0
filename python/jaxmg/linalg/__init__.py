"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .._qr_factor import QRFactor, qr_factor
from .cholesky import cho_factor, cho_solve, logdet, solve
from .lstsq import lstsq
from .qr import QRResult, qr

__all__ = [
    "CholeskyFactor",
    "QRFactor",
    "QRResult",
    "cho_factor",
    "cho_solve",
    "logdet",
    "lstsq",
    "qr",
    "qr_factor",
    "solve",
]
