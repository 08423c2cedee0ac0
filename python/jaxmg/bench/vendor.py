"""The calls of this package with `backend="cusolvermg"`, as peers of the built-in engine.

Timed whole, as users make them: redistribution of the matrix, NVIDIA's solver, and the way back.
"""

from __future__ import annotations

import dataclasses
import functools

from jax.sharding import Mesh

import jaxmg
from jaxmg.bench.harness import Solver
from jaxmg.bench.records import Case

NAME = "cusolvermg"


def by_cusolvermg(ours: Solver, routine: str, case: Case, mesh: Mesh) -> Solver:
    """A solver like `ours`, which calls `routine` without donation, by NVIDIA's library.

    Where the library or its devices are missing it is one that says why it is skipped.
    """
    memory, refusal = ours.memory, None
    try:
        plan = jaxmg.plan(routine, case.n, case.dtype, nrhs=case.nrhs, mesh=mesh, backend=NAME)
        memory = max(memory, plan.bytes_needed_with_copy)
    except jaxmg.BackendUnavailableError as error:
        refusal = f"skipped: {error}"
    call = functools.partial(getattr(jaxmg, routine), backend=NAME)
    return dataclasses.replace(ours, name=NAME, call=call, memory=memory, needs=refusal)
