"""The public planner: what a routine will do and take, without doing it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from . import _native
from ._arguments import LARGEST, SUPPORTED, check_backend, check_tile, precision_of, triangle_of
from ._device_memory import available
from ._gather import limit
from ._layout import (
    LOWER,
    MIXED,
    NATIVE,
    SPLIT,
    AnyMesh,
    chosen_tile,
    engine_precision,
    platform_of,
)
from ._memory import (
    STAGES,
    has_parts,
    human,
    largest_n,
    routine_bytes,
    stage_plans,
    takes_chosen_tile,
    total,
)
from ._model import Estimate, expected
from ._profile import Profile, present
from ._resolve import check_mesh

_PURPOSE = {
    "matrix": "matrix, overwritten",
    "copy_of_matrix": "your matrix",
    "low_precision_factor": "factor in lower precision",
    "fall_back_copy": "copy of the matrix for a fall-back",
    "split_even": "half-precision parts of a panel",
    "split_odd": "half-precision parts of odd panels",
    "row_block": "rows of a step",
    "split_block": "their half-precision parts",
    "row_scale": "scaling by powers of two",
    "inverse_scale": "the same, inverse",
    "panel_inverse": "inverted blocks of a diagonal tile",
    "right_hand_side": "right-hand sides",
    "saved_diagonal": "original diagonal tiles",
    "tile_inverse": "inverted diagonal tiles",
    "panel_even": "panel of even steps",
    "panel_odd": "panel of odd steps",
    "partial_sums": "partial sums of the solve",
    "tile_rhs": "right-hand sides of a tile",
    "tile_rhs_other": "the same, second buffer",
    "probe_vector": "symmetry probe, vector",
    "probe_product": "symmetry probe, A v",
    "probe_transpose": "symmetry probe, A^H v",
    "probe_result": "symmetry probe, norms",
    "probe_factor": "probe of a factor",
    "send_staging": "staging, send",
    "receive_staging": "staging, receive",
    "pivots": "row interchanges",
    "moves_even": "row moves of even steps",
    "moves_odd": "row moves of odd steps",
    "row_order": "order of rows",
    "later_sums": "sums of the second sweep of a solve",
    "phases": "signs of the ranks",
    "panel_columns": "panel, rows of A",
    "gathered_triangles": "triangles of all devices",
    "stacked_triangles": "the same, stacked",
    "panel_small": "tiles of the panel",
    "panel_signs": "signs of the panel",
    "panel_info": "report on the panel",
    "product": "products with a panel",
    "product_other": "the same, second buffer",
    "ahead_product": "products of the look-ahead",
    "local_rhs": "right-hand sides of a device",
    "block_reflectors": "triangles of the reflectors",
    "orthogonal": "Q",
    "triangular": "R",
    "gathered_rhs": "gathered right-hand sides",
    "rhs_columns": "the same, for the library",
    "update_columns": "columns before their rotation",
    "rotation": "rotation of one block",
    "update_even": "vectors that are added",
    "update_odd": "the same, second buffer",
    "library": "vendor library",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a routine will do; prints as a table. All sizes are bytes on one device.

    Attributes:
        routine: its name.
        n: size of the matrix.
        nrhs: number of right-hand sides.
        dtype: element type.
        devices: number of devices.
        platform: "cpu" or "cuda".
        path: "one device"; "distributed": rows split over the devices; "gathered": small enough
            to be worked on by each device alone (see :func:`jaxmg.set_gather_below`).
        gather_below: the largest n that is gathered.
        arithmetic: element type of the factor and how its products are computed.
        tile: rows that are eliminated together.
        bytes_by_purpose: bytes by what they are for.
        bytes_needed: their sum, with the caller's matrix donated or made inside ``jit``.
        bytes_needed_with_copy: the same, with the caller's matrix kept.
        bytes_available: memory of one device (0 if unknown), and
        memory_source: where that number comes from.
        largest_n: largest n that fits with the matrix donated (0 if memory is unknown).
        flops: arithmetic operations on all devices together.
        seconds: what the cost model expects of a call, by part (`seconds.total` in all), and
        seconds_source: where the numbers of the model come from.
    """

    routine: str
    n: int
    nrhs: int
    dtype: str
    devices: int
    platform: str
    path: str
    gather_below: int
    arithmetic: str
    tile: int
    bytes_by_purpose: dict[str, int]
    bytes_needed: int
    bytes_needed_with_copy: int
    bytes_available: int
    memory_source: str
    largest_n: int
    flops: float
    seconds: Estimate
    seconds_source: str

    @property
    def fits(self) -> bool | None:
        """Whether it fits with the matrix donated; None if the memory is unknown."""
        return None if self.bytes_available == 0 else self.bytes_needed <= self.bytes_available

    def __str__(self) -> str:
        head = f"{self.routine}  n={self.n}  nrhs={self.nrhs}  {self.dtype}"
        lines = [
            head,
            f"  path       {self.path} on {_count(self.devices)} ({self.platform})",
            f"  arithmetic {self.arithmetic}",
            f"  tile       {self.tile}",
            f"  work       {self.flops:.3g} flop",
            f"  time       {_time(self.seconds.total)}, {self.seconds.communication_share:.0%} of "
            f"it for data of others ({self.seconds_source})",
            "  bytes per device",
        ]
        for purpose, size in self.bytes_by_purpose.items():
            if size:
                lines.append(f"    {_PURPOSE.get(purpose, purpose):<30}{human(size):>12}")
        lines.append(f"    {'all, matrix donated':<30}{human(self.bytes_needed):>12}")
        lines.append(f"    {'all, matrix kept':<30}{human(self.bytes_needed_with_copy):>12}")
        if self.bytes_available:
            lines.append(f"    {'available':<30}{human(self.bytes_available):>12}")
            lines.append(f"  memory     {self.memory_source}")
            lines.append(f"  fits       {'yes' if self.fits else 'no'}")
            lines.append(f"  largest n  {self.largest_n}")
        else:
            lines.append("  fits       unknown (the memory of the device is not known)")
        return "\n".join(lines)


def _count(devices: int) -> str:
    return "1 device" if devices == 1 else f"{devices} devices"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def plan(
    routine: str,
    n: int,
    dtype: Any,
    *,
    nrhs: int = 1,
    mesh: AnyMesh | int | None = None,
    T_A: int | None = None,
    lower: bool | None = None,
    backend: str | None = None,
    precision: Any = None,
    platform: str | None = None,
    columns: int | None = None,
) -> Plan:
    """Works out how a routine would run and what it would take. Allocates nothing.

    Args:
        routine: "potrs", "potrf", "potri", "logdet", "cholesky", "solve_triangular", "cho_update",
            "lu_solve", "getrf", "slogdet", "inv", "qr", "least_squares" or "cyclic_1d".
        n: size of the matrix; number of rows, if it has another number of columns.
        dtype: element type.
        nrhs: number of right-hand sides.
        mesh: the mesh, or a number of devices; None means the context mesh, else all devices.
        T_A: rows that are eliminated together. None lets the plan choose.
        lower: True or False if only one triangle will be valid.
        precision: as in :func:`jaxmg.potrs`. With "mixed" a float64 or complex128 matrix stays
            beside a factor of half its size; a fall-back needs a copy if the matrix is kept.
        backend: as in :func:`jaxmg.potrs`. The scratch that cuSOLVERMg asks for when it runs is
            not counted.
        columns: for "qr" and "least_squares" of a matrix that is not square (up to n). What is told
            of "least_squares" is that of a QR factorisation.
        platform: "cpu" or "gpu", if `mesh` is a number: devices that need not be here. None: those
            that are.

    Returns:
        A :class:`Plan`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jaxmg
        >>> jaxmg.plan("potrs", 1000, "float64", mesh=4).devices
        4
    """
    if routine not in STAGES:
        raise ValueError(f"routine: got {routine!r}; accepted are {tuple(STAGES)}.")
    try:
        name = str(dtype) if dtype is None else jnp.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in SUPPORTED:
        raise TypeError(f"dtype: got {name}; supported are {', '.join(SUPPORTED)}.")
    n, nrhs = _size("n", n), _size("nrhs", nrhs)
    wide = _columns(routine, n, columns)
    ranks, platform = _devices(mesh, platform)
    given, engine = check_tile(T_A), check_backend(routine, backend)
    mirror = triangle_of(lower) >= 0
    if engine != "native":
        _native.require_backend(engine, platform, ranks)
    arithmetic = precision_of(precision)
    mixed = arithmetic == MIXED and name in LOWER and routine in ("potrs", "potrf", "lu_solve")
    mixed = mixed and engine == "native"

    def needed(
        size: int, in_place: bool = True, workers: int = ranks
    ) -> tuple[dict[str, int], dict[str, int]]:
        return routine_bytes(
            routine,
            size,
            name,
            workers,
            platform,
            nrhs=nrhs,
            tile=given,
            mirror=mirror,
            columns=min(wide, size),
            in_place=in_place,
            backend=engine,
            precision=arithmetic if mixed else min(arithmetic, SPLIT),
        )

    free, source = available(platform, ranks)
    split = platform == "cuda" and has_parts(routine, name)
    split = split and engine_precision(name, arithmetic) == SPLIT
    most = limit(routine, name, ranks, platform, SPLIT if split else NATIVE, mixed=mixed)
    gathered = given == 0 and 0 < n <= most and engine == "native"
    workers = 1 if gathered else ranks
    tile = given
    if tile == 0 and takes_chosen_tile(routine, engine):
        tile = chosen_tile(n, name, workers, platform, SPLIT if split else NATIVE, mirror)
    stages = stage_plans(
        routine, n, name, workers, platform, nrhs, tile, mirror, columns=wide, backend=engine
    )
    lasting, scratch = needed(n)
    kept = needed(n, in_place=False)
    if gathered:
        lasting, scratch = kept = needed(n, workers=1)
        lasting["copy_of_matrix"] = -(-lasting["matrix"] // ranks)
    chosen = int(stages[0]["tile"])
    profile = present(platform)
    path = "one device" if ranks == 1 else "gathered" if gathered else "distributed"
    return Plan(
        routine=routine,
        n=n,
        nrhs=nrhs,
        dtype=name,
        devices=ranks,
        platform=platform,
        path=path if engine == "native" else f"{path}, {engine}",
        gather_below=most,
        arithmetic=_arithmetic(name, split, mixed),
        tile=chosen,
        bytes_by_purpose={**lasting, **scratch},
        bytes_needed=total((lasting, scratch)),
        bytes_needed_with_copy=total(kept),
        bytes_available=free,
        memory_source=source,
        largest_n=largest_n(lambda size: total(needed(size)) <= free) if free else 0,
        flops=float(sum(stage["flops"] for stage in stages)),
        seconds=expected(
            routine,
            n,
            name,
            ranks,
            chosen,
            profile,
            nrhs=nrhs,
            columns=wide,
            split=split,
            gathered=gathered,
            mixed=mixed,
        ),
        seconds_source=_source(profile),
    )


def _columns(routine: str, n: int, columns: int | None) -> int:
    """Number of columns; 0 where it is that of the rows."""
    if columns is None:
        return 0
    wide = _size("columns", columns)
    if routine not in ("qr", "least_squares") or wide > n:
        raise ValueError(
            f"columns: got {columns} for {routine} with n={n}; accepted are numbers up to n, for "
            "'qr' and 'least_squares'."
        )
    return 0 if wide == n else max(1, wide)


def _arithmetic(dtype: str, split: bool, mixed: bool) -> str:
    if mixed:
        return f"{LOWER[dtype]} factor, refined to {dtype}"
    return f"{dtype}, by half-precision parts" if split else dtype


def _source(profile: Profile) -> str:
    how = "measured" if profile.measured else "assumed, see jaxmg tune"
    return f"{profile.device}, {how}"


def scaling(
    routine: str,
    n: int,
    dtype: Any,
    counts: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    **options: Any,
) -> str:
    """A table of what the cost model expects of numbers of devices.

    Args:
        routine, n, dtype, options: as of :func:`plan`, without `mesh`.
        counts: the numbers of devices.
    """
    plans = [plan(routine, n, dtype, mesh=count, **options) for count in counts]
    first = plans[0]
    flops, alone = first.flops, first.seconds.total * first.devices
    lines = [
        f"{routine}  n={n}  {first.dtype}  {first.platform} ({first.seconds_source})",
        f"{'devices':>8}  {'path':<12}{'tile':>6}{'time':>11}{'TFLOP/s':>9}{'efficiency':>12}"
        f"{'waiting':>9}{'per device':>13}  fits",
    ]
    for p in plans:
        total = p.seconds.total
        fits = {True: "yes", False: "no", None: "?"}[p.fits]
        lines.append(
            f"{p.devices:>8}  {p.path:<12}{p.tile:>6}{_time(total):>11}{flops / total / 1e12:>9.3g}"
            f"{alone / (total * p.devices):>12.0%}{p.seconds.communication_share:>9.0%}"
            f"{human(p.bytes_needed):>13}  {fits}"
        )
    return "\n".join(lines)


def _size(name: str, value: Any) -> int:
    try:
        size = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        size = -1
    if not 0 <= size <= LARGEST:
        raise ValueError(f"{name}: got {value!r}; accepted are integers from 0 to {LARGEST}.")
    return size


def _devices(mesh: AnyMesh | int | None, platform: str | None) -> tuple[int, str]:
    if platform not in (None, "cpu", "gpu", "cuda"):
        raise ValueError(f"platform: got {platform!r}; accepted are None, 'cpu' and 'gpu'.")
    if platform is not None and not isinstance(mesh, int):
        raise ValueError("platform: accepted beside a number of devices, as mesh=2.")
    if isinstance(mesh, int) and not isinstance(mesh, bool):
        if not 1 <= mesh <= 1 << 20:
            raise ValueError(f"mesh: got {mesh}; accepted are a mesh and numbers of devices >= 1.")
        there = {None: platform_of(None), "cpu": "cpu"}.get(platform, "cuda")
        return mesh, there
    found = check_mesh(mesh)
    if found is None:
        context = jax.sharding.get_abstract_mesh()
        if context.empty:
            return jax.device_count(), platform_of(None)
        found = context
    return int(found.size), platform_of(found)
