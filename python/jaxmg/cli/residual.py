"""How well a computed x solves A x = b, in double precision and without a second copy of A.

As in `jaxmg.bench.residual`, but for matrices with rows of padding and for those of which only one
triangle is valid.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxmg.bench.matrices import block_rows, for_row_blocks
from jaxmg.bench.residual import Residual
from jaxmg.cli.devices import AXIS

ACCEPTED_RATIO = 25.0  # of Residual.lapack_ratio

# A x, the sums of the rows of |A|, and the row at which the next block begins.
_Sums = tuple[jax.Array, jax.Array, jax.Array]


def residual(a: jax.Array, x: jax.Array, b: jax.Array, mesh: Mesh, lower: bool | None) -> Residual:
    """Errors of ``x`` for the row-sharded, possibly padded ``a``; ``lower`` as for the solve."""
    n = a.shape[1]
    if n == 0 or b.size == 0:
        return Residual(0.0, 0.0)
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    product, row_sums = _multiply(a, x.reshape(n, -1).astype(wide), mesh, lower)
    size_x = np.abs(np.asarray(x, wide)).reshape(n, -1)
    b_wide = np.asarray(b, wide).reshape(n, -1)
    error = np.abs(b_wide - np.asarray(product)[:n])
    norm = float(np.max(np.asarray(row_sums)[:n]))  # norm1 = norm_inf, since A is Hermitian
    unit = n * float(np.finfo(a.dtype).eps)
    return Residual(
        backward_error=_largest_ratio(error.max(0), norm * size_x.max(0) + np.abs(b_wide).max(0)),
        lapack_ratio=_largest_ratio(error.sum(0), unit * norm * size_x.sum(0)),
    )


def _largest_ratio(above: np.ndarray, below: np.ndarray) -> float:
    """Over the columns; 0 / 0 counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(above == 0, 0.0, above / below)))


@functools.partial(jax.jit, static_argnames=("mesh", "lower"))
def _multiply(
    a: jax.Array, x: jax.Array, mesh: Mesh, lower: bool | None
) -> tuple[jax.Array, jax.Array]:
    """A x and the row sums of |A|, where A is Hermitian and known by one triangle or in full."""
    shard = functools.partial(_multiply_shard, lower=lower, padded=a.shape[0])
    return jax.shard_map(
        shard, mesh=mesh, in_specs=(P(AXIS, None), P()), out_specs=(P(), P()), check_vma=False
    )(a, x)


def _multiply_shard(
    a: jax.Array, x: jax.Array, *, lower: bool | None, padded: int
) -> tuple[jax.Array, jax.Array]:
    rows, n = a.shape
    block = block_rows(rows, n * x.dtype.itemsize)
    first = lax.axis_index(AXIS) * rows
    x_padded = jnp.pad(x, ((0, padded - n), (0, 0)))
    column = jnp.arange(n)[None, :]

    def body(begin: jax.Array, sums: _Sums) -> _Sums:
        y, norms, seen = sums
        local = begin + jnp.arange(block)[:, None]
        row = first + local
        strip = lax.dynamic_slice_in_dim(a, begin, block).astype(x.dtype)
        strip = jnp.where(local >= seen, strip, 0)  # blocks may overlap
        strip = jnp.where(row == column, strip.real.astype(x.dtype), strip)
        half, mirror = _triangle(strip, row - column, lower)
        y = _add(y, jnp.matmul(half, x, precision="highest"), first + begin)
        norms = _add(norms, jnp.abs(half).sum(1), first + begin)
        if mirror is not None:
            part = lax.dynamic_slice_in_dim(x_padded, first + begin, block)
            y = y.at[:n].add(jnp.matmul(mirror.conj().T, part, precision="highest"))
            norms = norms.at[:n].add(jnp.abs(mirror).sum(0))
        return y, norms, begin + block

    start = (
        jnp.zeros((padded, x.shape[1]), x.dtype),
        jnp.zeros(padded, jnp.float64),
        jnp.zeros((), jnp.int32),
    )
    y, norms, _ = for_row_blocks(rows, block, body, start)
    return lax.psum((y, norms), AXIS)


def _triangle(
    strip: jax.Array, below: jax.Array, lower: bool | None
) -> tuple[jax.Array, jax.Array | None]:
    """What to multiply with, and, if only one triangle is valid, what to mirror.

    below: row minus column of each element.
    """
    if lower is None:
        return strip, None
    side = below if lower else -below
    return jnp.where(side >= 0, strip, 0), jnp.where(side > 0, strip, 0)


def _add(target: jax.Array, part: jax.Array, start: jax.Array) -> jax.Array:
    old = lax.dynamic_slice_in_dim(target, start, part.shape[0])
    return lax.dynamic_update_slice_in_dim(target, old + part, start, 0)
