"""What is static about the solution of a system, what it computes, and running it in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.sharding import PartitionSpec

from . import _cholesky, _mixed_solve
from ._arguments import giving_away
from ._layout import Resolved


class SolveInfo(NamedTuple):
    """How a solve went; int32 scalars, equal on all devices.

    Attributes:
        status: 0, or what :func:`jaxmg.errors.explain` explains.
        iterations: with ``precision="mixed"`` the steps of refinement, or, if the 64-bit factor
            was needed, -3 when the 32-bit one failed and -31 when refinement did not converge
            (LAPACK's ITER). Otherwise 0.
        path: 0: the factor has the precision of the matrix; 1: refined from a 32-bit factor; 2: by
            conjugate gradients, for general matrices by GMRES.
    """

    status: Any
    iterations: Any
    path: Any


@jax.jit
def solve_info(info: Array) -> SolveInfo:
    return SolveInfo(_cholesky.status(info), info[_mixed_solve.ITERATIONS], info[_mixed_solve.PATH])


@dataclasses.dataclass(frozen=True)
class Call:
    """Everything static about one call.

    Attributes:
        r: the factorisation.
        split: whether the rows of b lie on the ranks as those of A do.
        spec: how x is to be split (None: as it comes).
        local_rows: rows of each shard that belong to the matrix, if shards are padded one by one.
        want_status, want_logdet, want_inverse, keep_work: which results are returned besides x.
        report: whether a failure is an error under checkify; needs the status.
        together: whether b is eliminated together with A; see _one_call.
    """

    r: Resolved
    split: bool = False
    spec: PartitionSpec | None = None
    local_rows: int = 0
    want_status: bool = False
    want_logdet: bool = False
    want_inverse: bool = False
    keep_work: bool = False
    report: bool = False
    together: bool = False


@dataclasses.dataclass
class Results:
    """What a call computed; fields that were not asked for are None. A pytree."""

    x: Any = None
    logdet: Any = None
    inverse: Any = None
    info: Any = None
    work: Any = None


jax.tree_util.register_dataclass(
    Results, data_fields=["x", "logdet", "inverse", "info", "work"], meta_fields=[]
)


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays are views of the same buffers, as copies to the same place may be."""
    if a is b:
        return True
    first, second = (
        {shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards} for x in (a, b)
    )
    return bool(first & second)


Run = Callable[[Call, Array, Array], Results]


def run_in_place(run: Run, run_donating: Run, call: Call, a: Array, b: Array) -> Results:
    """Takes over the buffer of `a`, which is gone afterwards in any case."""
    if share_memory(a, b):  # a buffer that is given away must not be read under another name
        out = run(call, a, b)
        jax.block_until_ready(out.x)
        a.delete()
        return out
    call = dataclasses.replace(call, r=dataclasses.replace(call.r, exposed=True), keep_work=True)
    with giving_away(a):
        out = run_donating(call, a, b)
    out.work = None
    return out
