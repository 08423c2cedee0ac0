"""Two measures of how well x solves A x = b, taken on the sharded matrix where it lies.

    backward error   ||b - A x|| / (||A|| ||x|| + ||b||)          inf-norms
    LAPACK ratio     ||b - A x|| / (n eps ||A|| ||x||)            1-norms

With several right-hand sides both are the largest over the columns. A is read in blocks of rows,
or made again block by block where it was donated; nothing of the size of a shard is allocated.
Products are formed in float64 where x64 is on, whatever the type of A, so that the error of the
residual itself does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from jaxmg.bench.matrices import AXIS, TestMatrix, block_rows, for_row_blocks, local_rows


@dataclass(frozen=True)
class Residual:
    """How well a system was solved; see the module for the formulas.

    Attributes:
        backward_error: Normwise relative backward error in the inf-norm.
        lapack_ratio: Residual in the 1-norm over n eps ||A|| ||x||, as LAPACK's own tests have it.
    """

    backward_error: float
    lapack_ratio: float


def residual_of(a: jax.Array, x: jax.Array, b: jax.Array, mesh: Mesh) -> Residual:
    """Residual of A x = b for a matrix that is there.

    Args:
        a: Matrix of shape (n, n), rows split over the mesh.
        x: Solution of shape (n,) or (n, k).
        b: Right-hand sides, of the shape of x.
        mesh: The mesh of `a`, as from `matrices.row_mesh`.
    """
    return _evaluate(_kernel(a.shape[0], str(a.dtype), None, mesh), a.dtype, x, b, (a,), mesh)


def residual_of_generated(matrix: TestMatrix, x: jax.Array, b: jax.Array, mesh: Mesh) -> Residual:
    """Residual of A x = b for a matrix that is gone: its rows are made again.

    Args:
        matrix: What A was made from.
        x: Solution of shape (n,) or (n, k).
        b: Right-hand sides, of the shape of x.
        mesh: Devices that share the work, as from `matrices.row_mesh`.
    """
    kernel = _kernel(matrix.n, matrix.dtype, matrix, mesh)
    return _evaluate(kernel, np.dtype(matrix.dtype), x, b, (), mesh)


def _evaluate(
    kernel: Callable[..., tuple[jax.Array, jax.Array]],
    dtype: np.dtype,
    x: jax.Array,
    b: jax.Array,
    a: tuple[jax.Array, ...],
    mesh: Mesh,
) -> Residual:
    whole = jax.sharding.NamedSharding(mesh, PartitionSpec(None, None))
    columns = [jax.device_put(v.reshape(v.shape[0], -1), whole) for v in (x, b)]
    if columns[0].size == 0:
        return Residual(0.0, 0.0)
    backward, ratio = kernel(*a, *columns)
    unit = float(jnp.finfo(dtype).eps) * columns[0].shape[0]
    return Residual(float(backward), float(ratio) / unit)


@functools.cache
def _kernel(
    n: int, dtype: str, matrix: TestMatrix | None, mesh: Mesh
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Function of ([A,] x, b) that returns both measures, the second without n eps."""
    rows = local_rows(n, mesh)
    wide = jnp.promote_types(dtype, jax.dtypes.canonicalize_dtype(np.float64))
    real = jnp.finfo(wide).dtype
    block = block_rows(rows, n * np.dtype(wide).itemsize)

    def shard(*operands: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, b = (v.astype(wide) for v in operands[-2:])
        first = lax.axis_index(AXIS) * rows

        def read(row: jax.Array) -> jax.Array:
            if matrix is not None:
                return matrix.rows(first + row, block)
            return lax.dynamic_slice_in_dim(operands[0], row, block, 0)

        def body(row: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            r, row_sums, column_sums, seen = sums
            strip = read(row).astype(wide)
            product = jnp.dot(strip, x, precision=lax.Precision.HIGHEST)
            mine = lax.dynamic_slice_in_dim(b, first + row, block, 0) - product
            r = lax.dynamic_update_slice_in_dim(r, mine, row, 0)
            size = jnp.abs(strip)
            row_sums = lax.dynamic_update_slice_in_dim(row_sums, size.sum(1), row, 0)
            # Rows that the block before has counted already are left out of the column sums.
            fresh = (row + jnp.arange(block) >= seen).astype(real)
            return r, row_sums, column_sums + fresh @ size, row + block

        start = (
            jnp.zeros((rows, b.shape[1]), wide),
            jnp.zeros(rows, real),
            jnp.zeros(n, real),
            jnp.zeros((), jnp.int32),
        )
        r, row_sums, column_sums, _ = for_row_blocks(rows, block, body, start)
        return _measures(jnp.abs(r), row_sums, column_sums, jnp.abs(x), jnp.abs(b))

    whole, split = PartitionSpec(), PartitionSpec(AXIS, None)
    in_specs = (whole, whole) if matrix is not None else (split, whole, whole)
    mapped = jax.shard_map(
        shard, mesh=mesh, in_specs=in_specs, out_specs=(whole, whole), check_vma=False
    )
    return jax.jit(mapped)


def _measures(
    r: jax.Array, row_sums: jax.Array, column_sums: jax.Array, x: jax.Array, b: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both measures from the sizes of the entries; r and row_sums are one device's part."""
    r_inf = lax.pmax(r.max(0), AXIS)
    a_inf = lax.pmax(row_sums.max(), AXIS)
    backward = _ratio(r_inf, a_inf * x.max(0) + b.max(0))
    r_one = lax.psum(r.sum(0), AXIS)
    a_one = lax.psum(column_sums, AXIS).max()
    return backward.max(), _ratio(r_one, a_one * x.sum(0)).max()


def _ratio(above: jax.Array, below: jax.Array) -> jax.Array:
    """above / below, where 0 / 0 counts as 0."""
    return jnp.where(above == 0, 0.0, above / below)
