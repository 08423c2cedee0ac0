"""Which matrices are so small that every device had better take all of them.

A factorisation by many devices waits for the others in every step. Below some size it is faster to
gather the matrix, n^2 elements, and to let every device do the same work on its own: no device
waits for another then. The size comes from the cost model (`_model.gather_below`), or from what
JAX's own solvers were measured to take (`_library.below`). With several processes nothing is
gathered, since machines with different profiles would not agree.
"""

from __future__ import annotations

import dataclasses

import jax

from . import _library, _model, _profile
from ._eig_primitives import ResolvedEig
from ._layout import RELABELLED, SPLIT, Layout, Resolved
from ._qr_layout import QrLayout

VARIABLE = "JAXMG_GATHER_BELOW"
# No matrix above this is gathered by itself: memory for copies is not what users expect to need.
MOST = {"cuda": 8192, "cpu": 1024}
# With several devices the engine is ahead from here on.
_MOST_FOR_LIBRARY = 2048

# Factorisations that can be gathered, and what is done with them.
_SOLVES = {"potrf": "potrs", "getrf": "lu_solve"}

_chosen: int | None = None


def set_gather_below(n: int | None) -> None:
    """Sets the size up to which a matrix is gathered to every device and solved there.

    Args:
        n: the largest such size; 0: no matrix is. None: the plan decides, or the environment
            variable JAXMG_GATHER_BELOW if it is set. Calls with T_A, calls inside `shard_map` and
            programs that are compiled already are not affected. On CUDA devices JAX's own solvers
            do the smallest problems, on each device for itself, which JAXMG_LIBRARY_BELOW bounds
            (0: never); eigenproblems, Q and R are gathered for these alone, up to the smaller size.

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
    return _library.size_in_environment(VARIABLE)


def threshold(
    dtype: str,
    ranks: int,
    platform: str,
    precision: int,
    routine: str = "potrs",
    library: str = "",
) -> int:
    """The largest n that is gathered when the tile is left to the plan.

    `library`: what the call is to those solvers of JAX that may take it over on each device.
    """
    chosen = setting()
    if chosen is not None:
        return chosen if ranks > 1 else 0
    found = _model.gather_below(
        dtype,
        ranks,
        _profile.present(platform),
        split=precision == SPLIT,
        most=MOST[platform],
        routine=routine,
    )
    return max(found, _for_library(library, dtype, ranks, platform))


def _for_library(routine: str, dtype: str, ranks: int, platform: str) -> int:
    """The largest n that is gathered for the sake of JAX's own solver."""
    known = _library.below(routine, dtype, platform)
    if _library.setting() is None:
        known = min(known, _MOST_FOR_LIBRARY)
    return known if ranks > 1 else 0


def _by_library_alone(routine: str, dtype: str, ranks: int, platform: str) -> int:
    """The largest n of a problem that is gathered, if at all, for JAX's own solver."""
    known, chosen = _library.below(routine, dtype, platform), setting()
    return known if ranks == 1 or chosen is None else min(known, chosen)


def limit(
    routine: str, dtype: str, ranks: int, platform: str, precision: int, *, mixed: bool = False
) -> int:
    """The largest n that a call of `routine` gathers; 0: it never does."""
    if routine in ("syevd", "qr"):
        return 0 if ranks == 1 else _by_library_alone(routine, dtype, ranks, platform)
    if routine not in ("potrs", "potri", "lu_solve"):
        return 0
    solve = "lu_solve" if routine == "lu_solve" else "potrs"
    return threshold(dtype, ranks, platform, precision, solve, "" if mixed else routine)


def _stays(layout: Layout, n: int, tile: int, backend: str) -> bool:
    """Whether there is nothing to choose, whatever the size."""
    if layout.kind == "manual" or tile > 0 or n == 0 or backend != "native":
        return True
    return layout.kind == "dist" and jax.process_count() > 1


def small(r: Resolved, tile: int, routine: str = "") -> Resolved:
    """`r`, gathered or by JAX's own solver if it is small and the user did not name a tile."""
    layout = r.layout
    if _stays(layout, r.n, tile, r.backend) or r.routine not in _SOLVES:
        return r
    # Those that users hold, and those that make another one, are the engine's.
    own = r.exposed or r.mixed or r.order != RELABELLED
    library = "" if own else routine
    if layout.ranks > 1:
        solve = _SOLVES[r.routine]
        args = (r.dtype, layout.ranks, layout.platform, r.precision, solve, library)
        if r.n > threshold(*args):
            return r
        r = r.to_gathered()
    known = _library.below(library, r.dtype, layout.platform)
    return r.by_library() if r.n <= known else r


def small_eigenproblem(r: ResolvedEig, tile: int, vectors: bool) -> ResolvedEig:
    """As :func:`small`; gathered for JAX's own solver alone."""
    layout = r.layout
    if _stays(layout, r.n, tile, r.backend):
        return r
    name = "syevd" if vectors else "eigenvalues"
    if r.n > _by_library_alone(name, r.dtype, layout.ranks, layout.platform):
        return r
    return dataclasses.replace(r, gathered=layout.ranks > 1, library=True)


def small_qr(r: QrLayout, tile: int) -> QrLayout:
    """As :func:`small` for Q and R in full, which are gathered for JAX's own solver alone."""
    layout = r.layout
    if _stays(layout, r.rank, tile, "native"):
        return r
    if max(r.m, r.n) > _by_library_alone("qr", r.dtype, layout.ranks, layout.platform):
        return r
    return r.by_library()
