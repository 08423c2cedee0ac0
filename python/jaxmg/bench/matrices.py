"""Test matrices made on the devices that will hold them.

An entry is a function of (seed, i, j) alone: a hash in 32-bit unsigned arithmetic, which needs
neither x64 nor a random state. The matrix is therefore the same whatever the number of devices,
rows can be made again when the matrix itself has been donated, and it never passes through one
device.

Entries of a Hermitian matrix are uniform in +-0.5 (real and imaginary part each, diagonal real).
With standard deviation s of an entry the eigenvalues fill the semicircle of radius 2 s sqrt(n), and
the shift is 1.074 times that radius:

    real      s = sqrt(1/12)   radius 0.577 sqrt(n)   shift 0.62 sqrt(n)
    complex   s = sqrt(1/6)    radius 0.816 sqrt(n)   shift 0.62 sqrt(2 n) = 0.877 sqrt(n)

The condition number is then about 28 at every n. A shift by n, the usual choice, would make the
matrix a multiple of the identity to the eye of a factorisation. Below n = 1024, where the largest
eigenvalue still strays from the radius, 1 is added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "rows"
"""Name of the mesh axis over which rows are split."""

SHIFT_FACTOR = 0.62
"""Shift of the diagonal over sqrt(n), for real matrices; complex ones take sqrt(2) times that."""

BLOCK_BYTES = 1 << 26
"""Size of the row blocks in which matrices are made and read: what a call needs beside them."""

_SMALL = 1024


@dataclass(frozen=True)
class TestMatrix:
    """A Hermitian positive definite matrix that can be made, in whole or in part, at any time.

    Attributes:
        n: Order of the matrix.
        dtype: Name of the element type: float32, float64, complex64 or complex128.
        seed: Which matrix of that order; also picks the right-hand sides that go with it.
    """

    __test__ = False  # not a test class, whatever its name

    n: int
    dtype: str
    seed: int = 0

    @property
    def shift(self) -> float:
        """What is added to the diagonal of the random matrix."""
        factor = SHIFT_FACTOR * (math.sqrt(2) if _is_complex(self.dtype) else 1.0)
        return factor * math.sqrt(self.n) + (1.0 if self.n < _SMALL else 0.0)

    @property
    def m(self) -> int:
        """Number of rows."""
        return self.n

    @property
    def nbytes(self) -> int:
        """Bytes of the whole matrix."""
        return self.m * self.n * np.dtype(self.dtype).itemsize

    def rows(self, first: jax.Array | int, count: int) -> jax.Array:
        """Rows first, ..., first + count - 1, as an array of shape (count, n).

        Args:
            first: Number of the first row; may be traced.
            count: Number of rows; static.
        """
        i = (jnp.uint32(first) + jnp.arange(count, dtype=jnp.uint32))[:, None]
        j = jnp.arange(self.n, dtype=jnp.uint32)[None, :]
        below, above = jnp.maximum(i, j), jnp.minimum(i, j)
        a = _uniform(4 * self.seed, below, above, self.dtype)
        if _is_complex(self.dtype):
            # a_ji = conj(a_ij); the diagonal is real.
            imaginary = _uniform(4 * self.seed + 1, below, above, self.dtype)
            sign = jnp.where(i > j, 1, -1) * (i != j)
            a = lax.complex(a, imaginary * sign.astype(a.dtype))
        diagonal = jnp.where(i == j, self.shift, 0.0).astype(a.real.dtype)
        return a + diagonal

    def right_hand_sides(self, count: int) -> jax.Array:
        """Vectors that go with this matrix: shape (m, count), entries uniform in +-0.5."""
        i = jnp.arange(self.m, dtype=jnp.uint32)[:, None]
        j = jnp.arange(count, dtype=jnp.uint32)[None, :]
        b = _uniform(4 * self.seed + 2, i, j, self.dtype)
        if _is_complex(self.dtype):
            b = lax.complex(b, _uniform(4 * self.seed + 3, i, j, self.dtype))
        return b


@dataclass(frozen=True)
class GeneralMatrix(TestMatrix):
    """A matrix of independent entries, uniform in +-0.5 (both parts if complex).

    Attributes:
        height: Number of rows over number of columns.
    """

    height: int = 1

    @property
    def m(self) -> int:
        """Number of rows."""
        return self.n * self.height

    def rows(self, first: jax.Array | int, count: int) -> jax.Array:
        """As of `TestMatrix`."""
        i = (jnp.uint32(first) + jnp.arange(count, dtype=jnp.uint32))[:, None]
        j = jnp.arange(self.n, dtype=jnp.uint32)[None, :]
        a = _uniform(4 * self.seed, i, j, self.dtype)
        if _is_complex(self.dtype):
            a = lax.complex(a, _uniform(4 * self.seed + 1, i, j, self.dtype))
        return a


def row_mesh(devices: Sequence[jax.Device]) -> Mesh:
    """The mesh over which matrices of these benchmarks are split by rows."""
    return Mesh(np.array(devices), (AXIS,))


def make(matrix: TestMatrix, mesh: Mesh) -> jax.Array:
    """The whole matrix, its rows split over the mesh; each device makes its own.

    Args:
        matrix: What to make.
        mesh: A mesh of one axis, as from `row_mesh`.

    Returns:
        Array of shape (m, n) with spec P("rows", None).

    Raises:
        ValueError: The number of rows is not a multiple of the number of devices.
    """
    local_rows(matrix.m, mesh)
    return _maker(matrix, mesh)()


def make_right_hand_sides(matrix: TestMatrix, count: int, mesh: Mesh) -> jax.Array:
    """The vectors that go with a matrix, whole on every device of the mesh."""
    whole = NamedSharding(mesh, PartitionSpec(None, None))
    return jax.jit(lambda: matrix.right_hand_sides(count), out_shardings=whole)()


def local_rows(n: int, mesh: Mesh) -> int:
    """Rows that each device of the mesh holds.

    Raises:
        ValueError: n is not a multiple of the number of devices.
    """
    if n % mesh.size:
        nearest = max(1, round(n / mesh.size)) * mesh.size
        raise ValueError(
            f"n = {n} rows do not divide over {mesh.size} devices; the nearest n that does is "
            f"{nearest}"
        )
    return n // mesh.size


def block_rows(rows: int, row_bytes: int) -> int:
    """Rows per block, such that a block takes BLOCK_BYTES at most."""
    return max(1, min(rows, BLOCK_BYTES // max(1, row_bytes)))


def for_row_blocks(rows: int, block: int, body: Callable[[jax.Array, Any], Any], start: Any) -> Any:
    """Folds body over the first rows of blocks that cover 0, ..., rows - 1.

    All blocks have the same height, so the last one may begin within the one before it: the body
    must bear to see rows twice.

    Args:
        rows: Number of rows in all.
        block: Rows per block, at most `rows`.
        body: Function of (first row of the block, value) that returns the next value.
        start: The value before the first block.
    """

    def step(k: jax.Array, value: Any) -> Any:
        return body(jnp.minimum(k * block, rows - block), value)

    return lax.fori_loop(jnp.int32(0), jnp.int32(-(-rows // block)), step, start)


@functools.cache
def _maker(matrix: TestMatrix, mesh: Mesh) -> Callable[[], jax.Array]:
    rows = local_rows(matrix.m, mesh)
    block = block_rows(rows, matrix.nbytes // max(1, matrix.m))

    def shard() -> jax.Array:
        first = lax.axis_index(AXIS) * rows

        # The loop's value is updated in place: nothing but one block exists beside the shard.
        def fill(row: jax.Array, a: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(a, matrix.rows(first + row, block), row, 0)

        return for_row_blocks(rows, block, fill, jnp.zeros((rows, matrix.n), matrix.dtype))

    spec = PartitionSpec(AXIS, None)
    mapped = jax.shard_map(shard, mesh=mesh, in_specs=(), out_specs=spec, check_vma=False)
    return jax.jit(mapped, out_shardings=NamedSharding(mesh, spec))


def _is_complex(dtype: str) -> bool:
    return np.dtype(dtype).kind == "c"


def _mix(h: jax.Array) -> jax.Array:
    """A bijection of the 32-bit integers in which every input bit moves every output bit."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * jnp.uint32(0x846CA68B)
    return h ^ (h >> 16)


def _uniform(stream: int, i: jax.Array, j: jax.Array, dtype: str) -> jax.Array:
    """Numbers in +-0.5 of the real type of `dtype`, functions of (stream, i, j)."""
    key = _mix(jnp.uint32((stream * 0x9E3779B9 + 0x632BE5AB) & 0xFFFFFFFF))
    word = _mix(_mix(i + key) ^ (j * jnp.uint32(0x9E3779B1)))
    if np.dtype(dtype) in (np.float64, np.complex128):
        # 32 bits, then 21 more below them: (high + low 2^-21) 2^-32, exact in 53 bits.
        low = _mix(word ^ jnp.uint32(0xA5A5A5A5)) >> 11
        high = word.astype(jnp.float64) + low.astype(jnp.float64) * 2.0**-21
        return high * 2.0**-32 - 0.5
    return (word >> 8).astype(jnp.float32) * jnp.float32(2.0**-24) - jnp.float32(0.5)
