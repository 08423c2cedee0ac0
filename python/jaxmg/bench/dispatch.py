"""Overhead of a call: a system so small that hardly any time goes into arithmetic, on one device.

jaxmg       jaxmg.potrs(A, b) outside of jit
jaxmg jit   jax.jit(jaxmg.potrs)(A, b)
jax         jax.jit of jax.scipy.linalg.cho_solve(cho_factor(A), b)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

import jaxmg
from jaxmg.bench import potrs
from jaxmg.bench.harness import Solver
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import Case, Target
from jaxmg.bench.residual import residual_of_generated

NAME = "dispatch"

PEERS = ("jax",)

ORDER = 64
"""Order of the matrix."""

CALLS = 200
"""Calls timed together; each is waited for."""

TARGETS = [
    Target(NAME, platform, ORDER, dtype, 1, solver, "jax", 2.0)
    for platform in ("cpu", "gpu")
    for dtype in ("float32", "float64")
    for solver in ("jaxmg", "jaxmg jit")
]


def defaults(platform: str, devices: int) -> dict[str, Any]:
    """What is run when nothing else is asked for; the same on every machine."""
    return {"n": [ORDER], "dtype": ["float64"], "devices": [1], "against": ["jax"]}


def flops(case: Case) -> float:
    """Operations of the solve."""
    return potrs.flops(case)


def solvers(case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]) -> list[Solver]:
    """Ours, eager and compiled, and the peer; see `jaxmg.bench.potrs.solvers`."""
    one = row_mesh([mesh.devices.flat[0]])
    matrix = TestMatrix(case.n, case.dtype, case.seed)
    right = make_right_hand_sides(matrix, case.nrhs, one)
    calls: dict[str, Callable[..., Any]] = {
        "jaxmg": jaxmg.potrs,
        "jaxmg jit": jax.jit(lambda a, b: jaxmg.potrs(a, b)),
        **dict.fromkeys(against, potrs.compiled_reference),
    }
    return [
        Solver(
            name=name,
            prepare=lambda: (make(matrix, one), make_right_hand_sides(matrix, case.nrhs, one)),
            call=call,
            check=lambda x: residual_of_generated(matrix, x, right, one),
            calls=CALLS,
        )
        for name, call in calls.items()
    ]
