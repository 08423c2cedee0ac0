"""How many bytes a call takes on each device, and how many there are."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from ._device_memory import available
from ._layout import (
    LOWER,
    MIXED,
    NATURAL,
    SPLIT,
    Resolved,
    chosen_tile,
    engine_precision,
    entries,
)
from ._qr_layout import QrLayout
from .errors import InsufficientMemoryError, JaxMgWarning

# The calls of the engine that a routine makes, in order.
STAGES = {
    "potrs": ("potrf", "potrs"),
    "potrf": ("potrf",),
    "potri": ("potrf", "potri"),
    "logdet": ("potrf", "logdet"),
    "cyclic_1d": ("cyclic",),
    "lu_solve": ("getrf", "getrs"),
    "getrf": ("getrf",),
    "slogdet": ("getrf", "getdet"),
    "inv": ("getrf", "getri"),
    "qr": ("geqrf", "orgqr"),
    "least_squares": ("geqrf", "geqrs"),
    "syevd": ("syevd",),
    "cholesky": ("potrf", "mirror"),
    "solve_triangular": ("trsm",),
    "cho_update": ("cholupdate",),
}
# The same for solutions that are made together with the factor, or without one if that will do.
TOGETHER = {"posv": ("posv",), "gesv": ("gesv",), "gels": ("gels", "geqrf", "geqrs")}
_ALL_STAGES = STAGES | TOGETHER
# Routines that take rows in their own order.
_NATURAL = ("cholesky", "solve_triangular")
# Calls on matrices of n rows and another number of columns.
_RECTANGULAR = ("geqrf", "orgqr", "geqrs", "gels")
WARN_ABOVE = 0.95
# What needs fewer bytes than that is not compared with what there is: asking takes as long as a
# small problem, and XLA says itself if it has nothing left.
NEGLIGIBLE = {"cuda": 1 << 30, "cpu": 1 << 26}


def takes_chosen_tile(routine: str, backend: str) -> bool:
    return (
        _ALL_STAGES[routine][0] in ("potrf", "posv")
        and routine not in _NATURAL
        and backend == "native"
    )


def has_parts(routine: str, dtype: str) -> bool:
    """Whether a GPU's products can run by half-precision parts."""
    first = STAGES[routine][0]
    return first in ("potrf", "getrf") or (first == "syevd" and dtype == "float32")


def stage_plans(
    routine: str,
    n: int,
    dtype: str,
    ranks: int,
    platform: str,
    nrhs: int,
    tile: int,
    mirror: bool,
    columns: int = 0,
    backend: str = "native",
    precision: int = 0,
    vectors: bool = False,
) -> list[dict[str, Any]]:
    """The engine's plans of a routine's calls."""
    plans = []
    for stage in _ALL_STAGES[routine]:
        options: dict[str, Any] = {"nrhs": nrhs, "tile": tile, "mirror": mirror}
        options["backend"] = backend
        options["precision"] = engine_precision(dtype, precision)
        if stage == "syevd":
            options |= {"columns": columns, "vectors": vectors}
        if stage in _RECTANGULAR:
            options["columns"] = columns or n
        if stage == "orgqr":
            options["nrhs"] = min(n, columns or n)
        if routine in _NATURAL:
            options["order"] = NATURAL
        plans.append(entries(stage, n, dtype, ranks, platform, **options))
    return plans


def routine_bytes(
    routine: str,
    n: int,
    dtype: str,
    ranks: int,
    platform: str,
    *,
    nrhs: int = 1,
    tile: int = 0,
    mirror: bool = False,
    columns: int = 0,
    in_place: bool = True,
    backend: str = "native",
    precision: int = 0,
    vectors: bool = False,
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes on one device by purpose: what is there all the time, and the largest scratch.

    Without `in_place` the caller's matrix is kept, so that there are two of its size. `vectors`:
    `columns` eigenvectors are wanted too.
    """
    if precision == MIXED and dtype in LOWER:
        options: dict[str, Any] = {"nrhs": nrhs, "tile": tile, "mirror": mirror}
        return _mixed_bytes(routine, n, dtype, ranks, platform, in_place=in_place, **options)
    if tile == 0 and takes_chosen_tile(routine, backend):
        tile = chosen_tile(n, dtype, ranks, platform, precision, mirror)
    lasting: dict[str, int] = {}
    scratch: dict[str, int] = {}
    for plan in stage_plans(
        routine, n, dtype, ranks, platform, nrhs, tile, mirror, columns, backend, precision, vectors
    ):
        now = {e["buffer"]: int(e["bytes"]) for e in plan["entries"] if e["place"] == "scratch"}
        if sum(now.values()) > sum(scratch.values()):
            scratch = now
        for e in plan["entries"]:
            if e["place"] != "scratch":
                lasting[e["buffer"]] = max(lasting.get(e["buffer"], 0), int(e["bytes"]))
    if routine == "qr" and in_place and n >= (columns or n):
        lasting["orthogonal"] = 0  # Q takes the place of A
    if not in_place:
        lasting["copy_of_matrix"] = lasting["matrix"]
    return lasting, scratch


def _mixed_bytes(
    routine: str, n: int, dtype: str, ranks: int, platform: str, *, in_place: bool, **options: Any
) -> tuple[dict[str, int], dict[str, int]]:
    """The same with a factor of lower precision beside the matrix.

    When the matrix is kept, a fall-back copies it over the factor that was of no use.
    """
    lasting, scratch = routine_bytes(routine, n, dtype, ranks, platform, **options)
    low, other = routine_bytes(
        routine, n, LOWER[dtype], ranks, platform, precision=SPLIT, **options
    )
    factor = low["matrix"] + low.get("saved_diagonal", 0) + low.get("tile_inverse", 0)
    lasting["low_precision_factor"] = factor
    if not in_place:
        lasting["fall_back_copy"] = max(0, lasting["matrix"] - factor)
    return lasting, max(scratch, other, key=lambda sizes: sum(sizes.values()))


def total(parts: tuple[dict[str, int], dict[str, int]]) -> int:
    return sum(parts[0].values()) + sum(parts[1].values())


def largest_n(fits: Any, start: int = 1) -> int:
    """The largest n with fits(n), by bisection; fits must be true below and false above."""
    if not fits(start):
        return 0
    low, high = start, 2 * start
    while fits(high):
        low, high = high, 2 * high
        if high > 1 << 40:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return ""


def _stages_of(routine: str, r: Resolved) -> str:
    """Whose calls a routine makes, as a key of STAGES."""
    if routine in _NATURAL or routine == "cho_update":
        return routine
    if r.routine != "getrf":
        return "potrs"
    return routine if routine in STAGES else "lu_solve"


@functools.lru_cache(maxsize=4096)
def _needed(stages: str, r: Resolved, nrhs: int, in_place: bool) -> int:
    parts = routine_bytes(
        stages,
        r.n,
        r.dtype,
        1 if r.gathered else r.layout.ranks,
        r.layout.platform,
        nrhs=nrhs,
        tile=r.tile,
        mirror=r.triangle >= 0,
        in_place=in_place or r.gathered,
        precision=MIXED if r.mixed else r.precision,
        backend=r.backend,
    )
    # What is gathered is a copy.
    return total(parts) + (parts[0]["matrix"] // r.layout.ranks if r.gathered else 0)


def check_memory(routine: str, r: Resolved, nrhs: int, *, in_place: bool, stages: str = "") -> bool:
    """Refuses what cannot fit and warns of what hardly does.

    `stages`: a key of TOGETHER, or nothing.

    Returns:
        Whether so little is needed that equal calls need no check.

    Raises:
        InsufficientMemoryError: with the bytes needed and present, and the largest n that fits.
    """
    stages = stages or _stages_of(routine, r)
    needed = _needed(stages, r, nrhs, in_place)
    if needed < NEGLIGIBLE[r.layout.platform]:
        return True
    free, source = available(r.layout.platform, r.layout.ranks)
    if free == 0 or needed <= WARN_ABOVE * free:
        return False
    if needed <= free:
        warnings.warn(
            f"{routine}: n={r.n} {r.dtype} takes {human(needed)} of {human(free)} per device.",
            JaxMgWarning,
            stacklevel=3,
        )
        return False

    def fits(n: int) -> bool:
        parts = routine_bytes(
            stages,
            n,
            r.dtype,
            r.layout.ranks,
            r.layout.platform,
            nrhs=nrhs,
            mirror=r.triangle >= 0,
            in_place=in_place,
            backend=r.backend,
            precision=MIXED if r.mixed else r.precision,
        )
        return total(parts) <= free

    best = largest_n(fits)
    raise InsufficientMemoryError(
        f"{routine}: a {r.n} x {r.n} {r.dtype} matrix with {nrhs} right-hand sides needs "
        f"{human(needed)} on each of {r.layout.ranks} devices, which have {human(free)} "
        f"({source}). The largest n that fits is {best}. Use more devices, a smaller dtype"
        f"{'' if in_place else ', or donate=True'}.",
        needed=needed,
        free=free,
        largest_n=best,
    )


@functools.lru_cache(maxsize=4096)
def _qr_needed(routine: str, r: QrLayout, nrhs: int, in_place: bool) -> int:
    return total(
        routine_bytes(
            routine,
            r.m,
            r.dtype,
            r.layout.ranks,
            r.layout.platform,
            nrhs=nrhs,
            tile=r.tile,
            columns=r.n,
            in_place=in_place,
        )
    )


def gram_fits(r: QrLayout, nrhs: int) -> bool:
    """Whether there is room for a copy of A, which a QR factorisation after all would want."""
    needed = _qr_needed("gels", r, nrhs, False)
    free, _ = (
        available(r.layout.platform, r.layout.ranks)
        if needed >= NEGLIGIBLE[r.layout.platform]
        else (0, "")
    )
    return free == 0 or needed <= WARN_ABOVE * free


def check_qr_memory(
    routine: str, r: QrLayout, nrhs: int, *, in_place: bool, stages: str = ""
) -> bool:
    """Refuses what cannot fit and warns of what hardly does; as check_memory."""
    stages = stages or (routine if routine in STAGES else "least_squares")
    needed = _qr_needed(stages, r, nrhs, in_place)
    if needed < NEGLIGIBLE[r.layout.platform]:
        return True
    free, source = available(r.layout.platform, r.layout.ranks)
    if free == 0 or needed <= WARN_ABOVE * free:
        return False
    if needed <= free:
        warnings.warn(
            f"{routine}: a {r.m} x {r.n} {r.dtype} matrix takes {human(needed)} of {human(free)} "
            "per device.",
            JaxMgWarning,
            stacklevel=3,
        )
        return False
    raise InsufficientMemoryError(
        f"{routine}: a {r.m} x {r.n} {r.dtype} matrix needs {human(needed)} on each of "
        f"{r.layout.ranks} devices, which have {human(free)} ({source}). Use more devices, a "
        f"smaller dtype{'' if in_place else ', or donate=True'}.",
        needed=needed,
        free=free,
    )
