"""Which matrices are so small that every device had better take all of them.

A factorisation by many devices waits for the others in every step. Below some size it is faster to
gather the matrix, n^2 elements, and to let every device do the same work on its own: no device
waits for another then. The size comes from the cost model (`_model.gather_below`). With several
processes nothing is gathered, since machines with different profiles would not agree.
"""

from __future__ import annotations

import os

import jax

from . import _model, _profile
from ._layout import SPLIT, Resolved

VARIABLE = "JAXMG_GATHER_BELOW"
# No matrix above this is gathered by itself: memory for copies is not what users expect to need.
MOST = {"cuda": 8192, "cpu": 1024}

# Factorisations that can be gathered, and what is done with them.
_SOLVES = {"potrf": "potrs", "getrf": "lu_solve"}

_chosen: int | None = None


def set_gather_below(n: int | None) -> None:
    """Sets the size up to which a matrix is gathered to every device and solved there.

    Args:
        n: the largest such size; 0: no matrix is. None: the plan decides, or the environment
            variable JAXMG_GATHER_BELOW if it is set. Calls with T_A, calls inside `shard_map` and
            programs that are compiled already are not affected.

    Raises:
        ValueError: n is negative or not an integer.
    """
    global _chosen
    if n is not None and (isinstance(n, bool) or int(n) != n or n < 0):
        raise ValueError(f"n: got {n!r}; accepted are None and integers >= 0.")
    _chosen = None if n is None else int(n)


def setting() -> int | None:
    """What the user chose (None: nothing)."""
    if _chosen is not None:
        return _chosen
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{VARIABLE}: got {text!r}; accepted are integers >= 0.")
    return int(text)


def threshold(dtype: str, ranks: int, platform: str, precision: int, routine: str = "potrs") -> int:
    """The largest n that is gathered when the tile is left to the plan."""
    chosen = setting()
    if chosen is not None:
        return chosen if ranks > 1 else 0
    return _model.gather_below(
        dtype,
        ranks,
        _profile.present(platform),
        split=precision == SPLIT,
        most=MOST[platform],
        routine=routine,
    )


def small(r: Resolved, tile: int) -> Resolved:
    """`r`, gathered if it is small and the user did not name a tile."""
    layout = r.layout
    if layout.kind != "dist" or tile > 0 or r.n == 0 or jax.process_count() > 1:
        return r
    if r.backend != "native" or r.routine not in _SOLVES:
        return r
    routine = _SOLVES[r.routine]
    if r.n > threshold(r.dtype, layout.ranks, layout.platform, r.precision, routine):
        return r
    return r.to_gathered()
