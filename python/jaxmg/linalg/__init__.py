"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .cholesky import cho_factor, cho_solve, logdet, solve
from .qr import QRResult, qr

__all__ = ["CholeskyFactor", "QRResult", "cho_factor", "cho_solve", "logdet", "qr", "solve"]
