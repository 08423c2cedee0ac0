"""Solution of a Hermitian positive definite system: `jaxmg.potrs` and its peers.

jaxmg           jaxmg.potrs(A, b), A row-sharded, the whole call as a user makes it
jaxmg donated   the same with donate=True
jax             jax.scipy.linalg.cho_solve(cho_factor(A), b), compiled, on one device that holds
                all of A; bringing it there is not counted
jax_sharded     the same function, given the row-sharded A
cusolvermg      jaxmg.potrs(A, b, backend="cusolvermg"), by NVIDIA's library
scipy           scipy.linalg.cho_factor and cho_solve with as many threads, at their best: A in
                Fortran order, and not checked for NaN; A is kept, as they do by default
scipy overwriting   the same with overwrite_a=True: what a donated A is to be compared with
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.scipy.linalg
import numpy as np
from jax.sharding import Mesh

import jaxmg
from jaxmg.bench.harness import Solver
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import OVERWRITING, Case, Target
from jaxmg.bench.residual import Residual, residual_of_generated
from jaxmg.bench.vendor import by_cusolvermg

NAME = "potrs"

PEERS = ("jax", "jax_sharded", "scipy", "cusolvermg")

TARGETS = [
    Target(NAME, "cpu", 4096, "float64", 1, "jaxmg", "scipy", 1.25),
    Target(NAME, "cpu", 4096, "float64", 8, "jaxmg", "scipy", 1.4),
    Target(NAME, "cpu", 4096, "float64", 1, "jaxmg donated", "scipy overwriting", 1.25),
    Target(NAME, "cpu", 4096, "float64", 8, "jaxmg donated", "scipy overwriting", 1.4),
    Target(NAME, "cpu", 4096, "float64", 1, "jaxmg", "jax_sharded", 1.0),
    Target(NAME, "cpu", 4096, "float64", 8, "jaxmg", "jax_sharded", 1.0),
]


def defaults(platform: str, devices: int) -> dict[str, Any]:
    """What is run when nothing else is asked for.

    Args:
        platform: "cpu" or "gpu".
        devices: Number of devices that are there.
    """
    if platform == "cpu":
        return {
            "n": [4096],
            "dtype": ["float64"],
            "devices": [1, 8],
            "against": ["scipy", "jax_sharded"],
        }
    return {
        "n": [8192, 16384, 32768, 65536, 131072],
        "dtype": ["float32", "float64"],
        "devices": [devices],
        "against": ["jax", "cusolvermg"],
    }


def flops(case: Case) -> float:
    """Real operations: n^3/3 for the factor, 2 n^2 a solution; four times that if complex."""
    n = float(case.n)
    real = n**3 / 3 + 2 * n**2 * case.nrhs
    return real * (4 if np.dtype(case.dtype).kind == "c" else 1)


def solvers(case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]) -> list[Solver]:
    """Ours and the peers for one case.

    Args:
        case: The problem.
        mesh: Devices, as from `matrices.row_mesh`.
        against: Names of peers. "scipy" stands for that which keeps A, overwrites it, or both, as
            ours does.
        donate: Whether to time ours without donation, with it, or both.
    """
    matrix = TestMatrix(case.n, case.dtype, case.seed)
    build = {"jax": _jax_one, "jax_sharded": _jax_sharded, "cusolvermg": _cusolvermg}
    found = [_ours(matrix, case, mesh, with_donation) for with_donation in donate]
    for peer in against:
        if peer == "scipy":
            found += [_scipy(matrix, case, mesh, overwrite) for overwrite in donate]
        else:
            found.append(build[peer](matrix, case, mesh))
    return found


def reference(a: jax.Array, b: jax.Array) -> jax.Array:
    """What a user of JAX alone writes."""
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a, lower=True), b)


compiled_reference = jax.jit(reference)
"""`reference`, compiled."""


def _checker(matrix: TestMatrix, case: Case, mesh: Mesh) -> Callable[[Any], Residual]:
    def check(x: Any) -> Residual:
        b = make_right_hand_sides(matrix, case.nrhs, mesh)
        return residual_of_generated(matrix, x, b, mesh)

    return check


def _ours(matrix: TestMatrix, case: Case, mesh: Mesh, donate: bool) -> Solver:
    plan = jaxmg.plan(NAME, case.n, case.dtype, nrhs=case.nrhs, mesh=mesh)
    return Solver(
        name="jaxmg donated" if donate else "jaxmg",
        prepare=lambda: (make(matrix, mesh), make_right_hand_sides(matrix, case.nrhs, mesh)),
        call=functools.partial(jaxmg.potrs, donate=donate),
        check=_checker(matrix, case, mesh),
        memory=plan.bytes_needed if donate else plan.bytes_needed_with_copy,
        shared_by=sharers(mesh),
    )


def _jax_one(matrix: TestMatrix, case: Case, mesh: Mesh) -> Solver:
    one = row_mesh([mesh.devices.flat[0]])
    return Solver(
        name="jax",
        prepare=lambda: (make(matrix, one), make_right_hand_sides(matrix, case.nrhs, one)),
        call=compiled_reference,
        check=_checker(matrix, case, one),
        memory=2.05 * matrix.nbytes,
    )


def _jax_sharded(matrix: TestMatrix, case: Case, mesh: Mesh) -> Solver:
    # Every device gathers the matrix and factors a copy.
    return Solver(
        name="jax_sharded",
        prepare=lambda: (make(matrix, mesh), make_right_hand_sides(matrix, case.nrhs, mesh)),
        call=compiled_reference,
        check=_checker(matrix, case, mesh),
        memory=(2.05 + 1 / mesh.size) * matrix.nbytes,
        shared_by=sharers(mesh),
    )


def _cusolvermg(matrix: TestMatrix, case: Case, mesh: Mesh) -> Solver:
    return by_cusolvermg(_ours(matrix, case, mesh, False), NAME, case, mesh)


def _scipy(matrix: TestMatrix, case: Case, mesh: Mesh, overwrite: bool) -> Solver:
    try:
        import scipy.linalg as sl
    except ImportError:
        sl = None
    one = row_mesh([mesh.devices.flat[0]])

    def prepare() -> tuple[np.ndarray, np.ndarray]:
        a = np.array(make(matrix, one), order="F")
        return a, np.array(make_right_hand_sides(matrix, case.nrhs, one), order="F")

    def call(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        factor = sl.cho_factor(a, lower=True, overwrite_a=overwrite, check_finite=False)
        return sl.cho_solve(factor, b, overwrite_b=overwrite, check_finite=False)

    return Solver(
        name="scipy" + OVERWRITING if overwrite else "scipy",
        prepare=prepare,
        call=call,
        check=_checker(matrix, case, one),
        memory=(2.05 if overwrite else 3.05) * matrix.nbytes,
        needs=None if sl is not None else "skipped: SciPy is not installed",
    )


def sharers(mesh: Mesh) -> int:
    """Devices that share one memory: all of them on the CPU."""
    return mesh.size if mesh.devices.flat[0].platform == "cpu" else 1
