"""Factorisation and solution in one call of the engine: where, and what derivatives make of it.

Substitution with a factor is a chain of messages from device to device, two for each tile. Half of
them are not waited for if the right-hand sides are eliminated together with the matrix.

Derivatives are those of two calls, one after the other: differentiated programs make these instead,
so that there is one factorisation in any case.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ._layout import RELABELLED, Resolved, entries

VARIABLE = "JAXMG_ELIMINATE_RHS"
# The engine's names of a factorisation with the solution.
ROUTINES = {"potrf": "posv", "getrf": "gesv"}


def setting() -> bool | None:
    """What the environment says: never, wherever it can be done, or nothing."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}: got {text!r}; accepted are 0 and 1.")
    return None if not text else text == "1"


def pays(r: Resolved, nrhs: int) -> bool:
    """Whether right-hand sides had better be eliminated together with the matrix."""
    layout = r.layout
    if layout.kind != "dist" or r.n == 0 or nrhs == 0 or r.routine not in ROUTINES:
        return False
    if r.backend != "native" or r.mixed or r.gathered or r.order != RELABELLED:
        return False
    chosen = setting()
    if chosen is None:
        # Tiles on CPUs take far longer than messages between threads.
        chosen = layout.platform == "cuda" and layout.ranks > 1
    return chosen and _eliminated(r, nrhs) == nrhs


@functools.lru_cache(maxsize=1024)
def _eliminated(r: Resolved, nrhs: int) -> int:
    layout = r.layout
    plan = entries(
        ROUTINES[r.routine],
        r.n,
        r.dtype,
        layout.ranks,
        layout.platform,
        nrhs=nrhs,
        tile=r.tile,
        precision=r.precision,
        order=r.order,
    )
    return int(plan["eliminated_rhs"])


def jvp_of(
    function: Callable[[Array, Array], Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """Of function(a, b), for a rule with symbolic zeros.

    A product with a tangent that is known to be zero would be one with a matrix as large as A.
    """
    moving = [not isinstance(t, SymbolicZero) for t in tangents]

    def moved(*given: Array) -> Any:
        rest = iter(given)
        return function(*(next(rest) if m else x for x, m in zip(primals, moving, strict=True)))

    pairs = [(x, t) for x, t, m in zip(primals, tangents, moving, strict=True) if m]
    out: tuple[Any, Any] = jax.jvp(moved, [x for x, _ in pairs], [t for _, t in pairs])
    return out
