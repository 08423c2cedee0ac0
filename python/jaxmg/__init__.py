"""Distributed dense linear algebra for JAX.

A matrix that is already a sharded ``jax.Array`` goes in, a sharded result comes out:

    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    A = jax.device_put(A, NamedSharding(mesh, P("x", None)))
    x = jaxmg.potrs(A, b)

eagerly, under ``jit``, ``grad`` and ``vmap``, on GPUs or on CPU devices. LAPACK's names are at top
level; :mod:`jaxmg.linalg` has the names and conventions of ``jax.numpy.linalg`` and
``jax.scipy.linalg``.
"""

from . import errors, linalg
from ._gather import set_gather_below
from ._gesvd import gesvd
from ._info import info, package_version
from ._least_squares import least_squares
from ._lu_solve import lu_solve
from ._native import set_threads, set_timeout
from ._plan import Plan, plan
from ._polar import polar
from ._potri import potri
from ._potrs import potrs
from ._progress import progress
from ._qr_api import qr
from ._selftest import selftest
from ._solve_call import SolveInfo
from ._syevd import syevd
from .cyclic import (
    cyclic_1d,
    get_cols_cyclic,
    plot_block_to_cyclic,
    uncyclic_1d,
    verify_cyclic,
)
from .errors import (
    BackendUnavailableError,
    CommunicationError,
    ConvergenceError,
    InsufficientMemoryError,
    JaxMgError,
    JaxMgWarning,
    MismatchedCallsError,
    NonFiniteInputError,
    NotHermitianError,
    NotPositiveDefiniteError,
    SingularMatrixError,
)
from .padding import calculate_padding, pad_rows, unpad_rows
from .shardmap_ctx import (
    potri_shardmap_ctx,
    potri_symmetrize,
    potrs_shardmap_ctx,
    syevd_shardmap_ctx,
)

__version__ = package_version()

__all__ = [
    "BackendUnavailableError",
    "CommunicationError",
    "ConvergenceError",
    "InsufficientMemoryError",
    "JaxMgError",
    "JaxMgWarning",
    "MismatchedCallsError",
    "NonFiniteInputError",
    "NotHermitianError",
    "NotPositiveDefiniteError",
    "Plan",
    "SingularMatrixError",
    "SolveInfo",
    "__version__",
    "calculate_padding",
    "cyclic_1d",
    "errors",
    "gesvd",
    "get_cols_cyclic",
    "info",
    "least_squares",
    "linalg",
    "lu_solve",
    "pad_rows",
    "plan",
    "plot_block_to_cyclic",
    "polar",
    "potri",
    "potri_shardmap_ctx",
    "potri_symmetrize",
    "potrs",
    "potrs_shardmap_ctx",
    "progress",
    "qr",
    "selftest",
    "set_gather_below",
    "set_threads",
    "set_timeout",
    "syevd",
    "syevd_shardmap_ctx",
    "uncyclic_1d",
    "unpad_rows",
    "verify_cyclic",
]
