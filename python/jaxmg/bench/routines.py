"""The benchmarks there are, by name.

Each is a module, or an object, with NAME, PEERS, TARGETS and the functions defaults(platform,
devices), flops(case) and solvers(case, mesh, against, donate). A new one needs no more than an
entry in `jaxmg.bench.factorisations`, or a place in the list below.
"""

from __future__ import annotations

from typing import Any, Protocol

from jax.sharding import Mesh

from jaxmg.bench import dispatch, mixed, potri, potrs, small
from jaxmg.bench.factorisations import ENTRIES
from jaxmg.bench.harness import Solver
from jaxmg.bench.records import Case, Target


class Routine(Protocol):
    """What a benchmark module provides; `jaxmg.bench.potrs` documents the functions."""

    NAME: str
    PEERS: tuple[str, ...]
    TARGETS: list[Target]

    def defaults(self, platform: str, devices: int) -> dict[str, Any]:
        """Options that hold when the user gives none."""
        ...

    def flops(self, case: Case) -> float:
        """Real floating-point operations of a case."""
        ...

    def solvers(
        self, case: Case, mesh: Mesh, against: list[str], donate: list[bool]
    ) -> list[Solver]:
        """Ours and the peers for a case."""
        ...


_ALL: tuple[Any, ...] = (potrs, potri, *ENTRIES, mixed, small, dispatch)

ROUTINES: dict[str, Routine] = {routine.NAME: routine for routine in _ALL}
"""By name, in the order of tables and of help."""
