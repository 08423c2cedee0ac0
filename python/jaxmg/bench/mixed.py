"""Mixed precision: `jaxmg.potrs(A, b, precision="mixed")` against the ordinary call and its peers.

jaxmg mixed            a 32-bit factor, refined to 64-bit accuracy
jaxmg mixed donated    the same with donate=True
jaxmg, jaxmg donated   the ordinary call, with a 64-bit factor
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

import jaxmg
from jaxmg.bench import potrs
from jaxmg.bench.harness import Solver
from jaxmg.bench.records import Case, Target

NAME = "mixed"

PEERS = potrs.PEERS

TARGETS: list[Target] = []


def defaults(platform: str, devices: int) -> dict[str, Any]:
    """What is run when nothing else is asked for."""
    types = {"dtype": ["float64"], "against": []}
    return potrs.defaults(platform, devices) | types


def flops(case: Case) -> float:
    """Those of the ordinary call."""
    return potrs.flops(case)


def solvers(case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]) -> list[Solver]:
    """Ours in both ways and the peers; see `jaxmg.bench.potrs.solvers`."""
    found = potrs.solvers(case, mesh, against, donate)
    plan = jaxmg.plan("potrs", case.n, case.dtype, nrhs=case.nrhs, mesh=mesh, precision="mixed")
    ordinary, peers = found[: len(donate)], found[len(donate) :]
    mixed = [
        Solver(
            name=solver.name.replace("jaxmg", "jaxmg mixed"),
            prepare=solver.prepare,
            call=functools.partial(jaxmg.potrs, precision="mixed", donate=with_donation),
            check=solver.check,
            memory=plan.bytes_needed if with_donation else plan.bytes_needed_with_copy,
            shared_by=solver.shared_by,
        )
        for solver, with_donation in zip(ordinary, donate, strict=True)
    ]
    return [*mixed, *ordinary, *peers]
