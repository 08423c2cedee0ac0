"""Products and transposes of arrays of which one has its rows split over the ranks."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from . import _matmul
from ._dot import contract, dot
from ._layout import Layout, Resolved
from ._matmul import Ring
from ._operands import gathered, is_split, like, pad_rows, reshard, type_spec
from ._rows import keep_rows


def _cut(r: Resolved, x: Array, other: Array) -> Array:
    """`x`, which may be padded, with as many rows and the sharding of `other`."""
    if x.shape[0] != other.shape[0]:
        x = gathered(r.layout, x)[: other.shape[0]]
    return like(r.layout, keep_rows(r, x), other)


def _padded(r: Resolved, x: Array) -> Array:
    """`x` with as many rows on each rank."""
    return _matmul.rows(Ring(r.layout), pad_rows(x, r.padded_rows))


def rows_transpose(r: Resolved, x: Array) -> Array:
    """x^H for x of shape (n, n), split by rows as x is."""
    ring = Ring(r.layout)
    return _cut(r, _matmul.adjoint(ring, _padded(r, x), r.n), x)


def rows_product(r: Resolved, a: Array, b: Array) -> Array:
    """a b for matrices of shape (n, n), split by rows as `a` is."""
    ring = Ring(r.layout)
    return _cut(r, _matmul.times(ring, _padded(r, a), _padded(r, b)), a)


def applied(layout: Layout, a: Array, x: Array) -> Array:
    """a x for a thin x; whole on every device if axes are explicit."""
    return gathered(layout, dot(a, gathered(layout, x)))


def contracted(layout: Layout, a: Array, x: Array) -> Array:
    """a^T x for a thin x, padded to the rows of `a`; whole on every device if axes are explicit."""
    rows = pad_rows(gathered(layout, x), a.shape[0])
    dims = (((0,), (0,)), ((), ()))
    if not layout.explicit or not is_split(type_spec(a)):
        return contract(a, rows, dims)
    rows = reshard(layout, rows, PartitionSpec(type_spec(a)[0], None))
    whole = layout.typed(PartitionSpec(None, None))
    return contract(a, rows, dims, out_sharding=whole)


def gram(layout: Layout, a: Array, b: Array) -> Array:
    """a^H b for arrays whose rows are split alike; whole on every device if axes are explicit."""
    dims = (((0,), (0,)), ((), ()))
    if not layout.explicit or not is_split(type_spec(a)):
        return contract(jnp.conj(a), b, dims)
    whole = layout.typed(PartitionSpec(None, None))
    return contract(jnp.conj(a), like(layout, b, a), dims, out_sharding=whole)
