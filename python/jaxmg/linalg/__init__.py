"""Linear algebra on sharded arrays under the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``. Leading axes are batch axes.
"""

from .._factor_object import CholeskyFactor
from .cholesky import cho_factor, cho_solve, logdet, solve

__all__ = ["CholeskyFactor", "cho_factor", "cho_solve", "logdet", "solve"]
