"""From files to a row-sharded array: each device's rows on their own, checked on the way."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxmg.cli.devices import AXIS
from jaxmg.cli.failure import bad_input
from jaxmg.cli.pieces import (
    CHUNK_BYTES,
    Columns,
    Entries,
    Piece,
    Rows,
    RowSource,
    Source,
    StreamSource,
)

ACCEPTED = ("float32", "float64", "complex64", "complex128")

# Called with the fraction that has been loaded.
Progress = Callable[[float], None]


def solve_dtype(a: Source, b: Source, requested: str | None) -> np.dtype:
    """The type to solve in: what was asked for, else the files' common one (integers: float64)."""
    for source in (a, b):
        # Others of NumPy's kinds have no arithmetic on the devices (or, as longdouble, would lose
        # digits without a word).
        narrow = source.dtype.newbyteorder("=")
        if requested is None and narrow.name not in ACCEPTED and narrow.kind not in "biu":
            raise bad_input(
                f"{source.name} is of type {source.dtype}; accepted are {', '.join(ACCEPTED)} and "
                "integers. To convert it: --dtype."
            )
        if narrow.kind not in "biufc":
            raise bad_input(f"{source.name} is of type {source.dtype}: these are not numbers.")
    floating = [s.dtype.newbyteorder("=") for s in (a, b) if s.dtype.kind in "fc"]
    if requested is None:
        return np.result_type(*floating) if floating else np.dtype(np.float64)
    dtype = np.dtype(requested)
    for source in (a, b):
        if source.dtype.kind == "c" and dtype.kind != "c":
            raise bad_input(
                f"{source.name} is complex; --dtype {dtype} would drop its imaginary part."
            )
    return dtype


def check_shapes(a: Source, b: Source) -> None:
    """A has to be square, and b a vector or matrix of as many rows."""
    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise bad_input(f"{a.name} has shape {_times(a.shape)}; A must be a square matrix.")
    if len(b.shape) not in (1, 2):
        raise bad_input(f"{b.name} has shape {_times(b.shape)}; b must be a vector or a matrix.")
    if b.shape[0] != a.shape[0]:
        raise bad_input(
            f"{b.name} has {b.shape[0]} rows, but {a.name} has {a.shape[0]}: they must be equal."
        )


def load_right_hand_side(source: Source, mesh: Mesh, dtype: np.dtype) -> jax.Array:
    """All of b on every device."""
    block = source.dense()
    if not np.isfinite(block).all():
        raise _not_finite(source, block, 0)
    return jax.device_put(block.astype(dtype), NamedSharding(mesh, P()))


def load_matrix(
    source: Source, mesh: Mesh, dtype: np.dtype, lower: bool | None, progress: Progress
) -> jax.Array:
    """The square matrix, ceil(n / devices) rows a device; rows after the n-th are zero.

    Only elements of the triangle that ``lower`` names (None: of both) have to be finite.
    """
    n = source.shape[0]
    devices = mesh.devices.size
    rows = -(-n // devices)
    sharding = NamedSharding(mesh, P(AXIS, None))
    if isinstance(source, RowSource):
        shards = _MappedShards(source, dtype, lower, progress, rows * devices)
        return jax.make_array_from_callback((rows * devices, n), sharding, shards.read)
    assert isinstance(source, StreamSource)
    blocks = [np.zeros((rows, n), dtype) for _ in range(devices)]
    for piece, fraction in source.pieces():
        _check_piece(source, piece, lower)
        _scatter(piece, blocks, rows)
        progress(fraction)
    arrays = []
    for device in mesh.devices.flat:
        # Each block is let go as soon as its device has it.
        arrays.append(jax.device_put(blocks.pop(0), device))
        arrays[-1].block_until_ready()
    return jax.make_array_from_single_device_arrays((rows * devices, n), sharding, arrays)


class _MappedShards:
    """Reads the rows of one device at a time from a memory-mapped file."""

    def __init__(
        self,
        source: RowSource,
        dtype: np.dtype,
        lower: bool | None,
        progress: Progress,
        padded: int,
    ) -> None:
        self.source = source
        self.padded = padded
        self.dtype = dtype
        self.lower = lower
        self.progress = progress
        self.read_rows = 0

    def read(self, index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None  # None belongs to arrays without dimensions
        n = self.source.shape[0]
        start, stop, _ = index[0].indices(self.padded)
        shard = np.zeros((stop - start, n), self.dtype)
        step = max(1, CHUNK_BYTES // max(1, n * self.source.dtype.itemsize))
        for first in range(start, min(stop, n), step):
            last = min(first + step, stop, n)
            block = self.source.rows(first, last)
            _check_piece(self.source, Rows(first, block), self.lower)
            shard[first - start : last - start] = block
            self.read_rows += last - first
            self.progress(min(1.0, self.read_rows / n))
        return shard


def _scatter(piece: Piece, blocks: list[np.ndarray], rows: int) -> None:
    """Adds what was read to the blocks of the devices that own it."""
    match piece:
        case Rows(first, block):
            for k in range(first // rows, -(-(first + len(block)) // rows)):
                begin, end = max(first, k * rows), min(first + len(block), (k + 1) * rows)
                blocks[k][begin - k * rows : end - k * rows] = block[begin - first : end - first]
        case Columns(first, block):
            for k, target in enumerate(blocks):
                part = block[k * rows : (k + 1) * rows]
                target[: len(part), first : first + block.shape[1]] = part
        case Entries(i, j, values):
            owner = i // rows
            for k in np.unique(owner):
                mine = owner == k
                flat = (i[mine] - k * rows) * blocks[k].shape[1] + j[mine]
                # Elements that a file lists twice are summed, as the format says.
                np.add.at(blocks[k].reshape(-1), flat, values[mine].astype(blocks[k].dtype))


def _check_piece(source: Source, piece: Piece, lower: bool | None) -> None:
    """Raises if an element of the triangle that is read (None: of both) is not finite."""
    data = piece.values if isinstance(piece, Entries) else piece.block
    bad = np.nonzero(~np.isfinite(data))
    if not bad[0].size:
        return
    match piece:
        case Rows(first, _):
            i, j = bad[0] + first, bad[1]
        case Columns(first, _):
            i, j = bad[0], bad[1] + first
        case Entries(rows, columns, _):
            i, j = rows[bad[0]], columns[bad[0]]
    if lower is not None:
        inside = i >= j if lower else i <= j
        i, j = i[inside], j[inside]
    if i.size:
        raise bad_input(
            f"{source.name} holds NaN or infinity at row {i[0] + 1}, column {j[0] + 1} "
            "(counted from 1)."
        )


def _not_finite(source: Source, block: np.ndarray, first: int) -> Exception:
    place = np.argwhere(~np.isfinite(block))[0]
    column = f", column {place[1] + 1}" if block.ndim > 1 else ""
    return bad_input(
        f"{source.name} holds NaN or infinity at row {first + place[0] + 1}{column} "
        "(counted from 1)."
    )


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) if shape else "() (a single number)"
