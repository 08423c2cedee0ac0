"""Small systems on many devices, where what counts is not to be slower than one of them.

jaxmg          jaxmg.potrs(A, b), A row-sharded
jax_gathered   A and b brought to one device, and cho_solve(cho_factor(A), b) there: what a user
               of JAX alone would do, all of it timed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmg.bench import potrs
from jaxmg.bench.harness import Solver
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import Case, Target
from jaxmg.bench.residual import residual_of_generated

NAME = "small"

PEERS = ("jax_gathered",)

_GPU_SIZES = (64, 256, 1024, 4096, 8192)
_DTYPES = ("float32", "float64", "complex64", "complex128")

TARGETS = [
    Target(NAME, "gpu", n, dtype, devices, "jaxmg", "jax_gathered", 1.1, slack=1e-4)
    for devices in (2, 4, 8)
    for n in _GPU_SIZES
    for dtype in _DTYPES
]


def defaults(platform: str, devices: int) -> dict[str, Any]:
    """What is run when nothing else is asked for."""
    if platform == "cpu":
        return {
            "n": [64, 256, 1024],
            "dtype": ["float64"],
            "devices": [8],
            "against": list(PEERS),
        }
    return {
        "n": list(_GPU_SIZES),
        "dtype": list(_DTYPES),
        "devices": [devices],
        "against": list(PEERS),
    }


def flops(case: Case) -> float:
    """Those of the solve."""
    return potrs.flops(case)


def solvers(case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]) -> list[Solver]:
    """Ours without donation, and the peer; see `jaxmg.bench.potrs.solvers`."""
    matrix = TestMatrix(case.n, case.dtype, case.seed)
    mine = potrs.solvers(case, mesh, [], [False])
    return mine + [_gathered(matrix, case, mesh) for _ in against]


def _gathered(matrix: TestMatrix, case: Case, mesh: Mesh) -> Solver:
    one = row_mesh([mesh.devices.flat[0]])
    there = NamedSharding(one, PartitionSpec())

    def call(a: jax.Array, b: jax.Array) -> jax.Array:
        return potrs.compiled_reference(*jax.device_put((a, b), there))

    def check(x: jax.Array) -> Any:
        b = make_right_hand_sides(matrix, case.nrhs, one)
        return residual_of_generated(matrix, x, b, one)

    return Solver(
        name="jax_gathered",
        prepare=lambda: (make(matrix, mesh), make_right_hand_sides(matrix, case.nrhs, mesh)),
        call=call,
        check=check,
        memory=3.05 * matrix.nbytes,
    )
