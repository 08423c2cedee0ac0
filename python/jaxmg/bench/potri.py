"""Inverse of a Hermitian positive definite matrix: `jaxmg.potri` and its peers.

jaxmg           jaxmg.potri(A), A row-sharded
jaxmg donated   the same with donate=True
jax             cho_solve(cho_factor(A), I), compiled, on one device that holds all of A
jax_sharded     the same function, given the row-sharded A
cusolvermg      jaxmg.potri(A, backend="cusolvermg"), by NVIDIA's library
scipy           LAPACK's potrf and potri through SciPy, in place; one triangle is the result

The error is that of X b as a solution of A x = b, for a random b.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.sharding import Mesh

import jaxmg
from jaxmg.bench import potrs
from jaxmg.bench.harness import Solver
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import Case, Target
from jaxmg.bench.residual import Residual, residual_of_generated
from jaxmg.bench.vendor import by_cusolvermg

NAME = "potri"

PEERS = ("jax", "jax_sharded", "scipy", "cusolvermg")

TARGETS: list[Target] = []


def defaults(platform: str, devices: int) -> dict[str, Any]:
    """What is run when nothing else is asked for."""
    if platform == "cpu":
        return potrs.defaults(platform, devices) | {"n": [2048]}
    return potrs.defaults(platform, devices) | {"n": [8192, 16384, 32768, 65536]}


def flops(case: Case) -> float:
    """Real operations: n^3/3 for the factor, 2 n^3/3 for the rest; four times that if complex."""
    return float(case.n) ** 3 * (4 if np.dtype(case.dtype).kind == "c" else 1)


def solvers(case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]) -> list[Solver]:
    """Ours and the peers for one case; see `jaxmg.bench.potrs.solvers`."""
    matrix = TestMatrix(case.n, case.dtype, case.seed)
    build = {
        "jax": lambda: _jax_one(matrix, mesh),
        "jax_sharded": lambda: _jax_sharded(matrix, mesh),
        "scipy": lambda: _scipy(matrix, mesh),
        "cusolvermg": lambda: by_cusolvermg(_ours(matrix, mesh, False), NAME, case, mesh),
    }
    mine = [_ours(matrix, mesh, with_donation) for with_donation in donate]
    return mine + [build[peer]() for peer in against]


@jax.jit
def reference(a: jax.Array) -> jax.Array:
    """What a user of JAX alone writes."""
    factor = jax.scipy.linalg.cho_factor(a, lower=True)
    return jax.scipy.linalg.cho_solve(factor, jnp.eye(a.shape[0], dtype=a.dtype))


def _checker(matrix: TestMatrix, mesh: Mesh) -> Callable[[Any], Residual]:
    def check(x: Any) -> Residual:
        b = make_right_hand_sides(matrix, 1, mesh)
        multiply = functools.partial(jnp.matmul, precision="highest")
        return residual_of_generated(matrix, jax.jit(multiply)(x, b), b, mesh)

    return check


def _ours(matrix: TestMatrix, mesh: Mesh, donate: bool) -> Solver:
    plan = jaxmg.plan(NAME, matrix.n, matrix.dtype, mesh=mesh)
    return Solver(
        name="jaxmg donated" if donate else "jaxmg",
        prepare=lambda: (make(matrix, mesh),),
        call=functools.partial(jaxmg.potri, donate=donate),
        check=_checker(matrix, mesh),
        memory=plan.bytes_needed if donate else plan.bytes_needed_with_copy,
        shared_by=potrs.sharers(mesh),
    )


def _jax_one(matrix: TestMatrix, mesh: Mesh) -> Solver:
    one = row_mesh([mesh.devices.flat[0]])
    return Solver(
        name="jax",
        prepare=lambda: (make(matrix, one),),
        call=reference,
        check=_checker(matrix, one),
        memory=3.05 * matrix.nbytes,
    )


def _jax_sharded(matrix: TestMatrix, mesh: Mesh) -> Solver:
    return Solver(
        name="jax_sharded",
        prepare=lambda: (make(matrix, mesh),),
        call=reference,
        check=_checker(matrix, mesh),
        memory=(3.05 + 1 / mesh.size) * matrix.nbytes,
        shared_by=potrs.sharers(mesh),
    )


def _scipy(matrix: TestMatrix, mesh: Mesh) -> Solver:
    try:
        import scipy.linalg as sl
    except ImportError:
        sl = None
    one = row_mesh([mesh.devices.flat[0]])

    def call(a: np.ndarray) -> np.ndarray:
        factor, invert = sl.get_lapack_funcs(("potrf", "potri"), (a,))
        c, _ = factor(a, lower=True, overwrite_a=True, clean=False)
        return invert(c, lower=True, overwrite_c=True)[0]

    def check(half: np.ndarray) -> Residual:
        lower = np.tril(half, -1)
        whole = lower + lower.conj().T + np.diag(half.diagonal().real)
        return _checker(matrix, one)(jnp.asarray(whole))

    return Solver(
        name="scipy",
        prepare=lambda: (np.array(make(matrix, one), order="F"),),
        call=call,
        check=check,
        memory=2.05 * matrix.nbytes,
        needs=None if sl is not None else "skipped: SciPy is not installed",
    )
