"""Products of matrices that are split by rows, as the ranks work them out on their blocks.

No rank ever holds more of an operand than its own block and one that passes by: the blocks of one
operand, or the sums for the blocks of the result, go round the ring of ranks.

    times             C = A B      each block of B meets its columns of A
    times_transposed  C = A B^T    each block of B gives its columns of C
    transposed_times  C = A^T B    each block of C collects one term on every rank
    hermitian_times   C = A^H B    the same where C is Hermitian, from half of its blocks

A matrix of `size` rows has ceil(size / ranks) on each rank. What the last ranks hold beyond them
is not read, and is zero in results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ._dot import contract
from ._layout import Layout
from ._vma import vary, varying

STRIPS = 16  # into which columns are cut where half of the blocks are made: 9 of 16 are then
LEAST_STRIP = 256  # columns, below which products would be too small

Block = Callable[[Any, Any], tuple[Array, Any, Any]]


def block_rows(layout: Layout, size: int) -> int:
    return -(-size // layout.ranks)


def _dot(a: Array, b: Array, left: int, right: int) -> Array:
    """Sum over axis `left` of a and axis `right` of b."""
    return contract(a, b, (((left,), (right,)), ((), ())))


def _pad_columns(x: Array, columns: int) -> Array:
    return x if x.shape[1] == columns else jnp.pad(x, ((0, 0), (0, columns - x.shape[1])))


def row_index(x: Array, rank: Any) -> Array:
    """The row of the whole matrix that each element of a block belongs to."""
    return rank * x.shape[0] + lax.broadcasted_iota(jnp.int32, x.shape, 0)


def true_rows(layout: Layout, rank: Any, x: Array, size: int) -> Array:
    """A block whose rows beyond the end of the matrix are zero."""
    if x.shape[0] * layout.ranks == size:
        return x
    return jnp.where(row_index(x, rank) < size, x, jnp.zeros_like(x))


def _columns_of(x: Array, rank: Any, width: int) -> Array:
    return lax.dynamic_slice_in_dim(x, rank * width, width, axis=1)


def _pass_on(layout: Layout, x: Array, by: int) -> Array:
    """What the rank `by` places before this one holds."""
    ranks = layout.ranks
    out: Array = lax.ppermute(x, layout.axes, [(i, (i + by) % ranks) for i in range(ranks)])
    return out


def _steps(layout: Layout, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """The state after steps 1 .. ranks - 1.

    Inside the caller's shard_map JAX differentiates the steps, which jax 0.7 cannot do with loops
    that hold numbers that are not linear in the operands.
    """
    if layout.kind != "manual":
        return lax.fori_loop(1, layout.ranks, body, state)
    for step in range(1, layout.ranks):
        state = body(step, state)
    return state


def times(layout: Layout, rank: Any, a: Array, b: Array, size: int) -> Array:
    """Rows of A B. `size`: rows of B, which are as many as the columns of A."""
    if layout.ranks == 1:
        return _dot(a, b[:size], 1, 0)
    ranks, width = layout.ranks, b.shape[0]
    a = _pad_columns(a, ranks * width)
    b = true_rows(layout, rank, b, size)

    def term(step: Any, b: Array) -> Array:
        return _dot(_columns_of(a, (rank + step) % ranks, width), b, 1, 0)

    def body(step: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        total, b = state
        b = _pass_on(layout, b, -1)
        return total + term(step, b), b

    total, _ = _steps(layout, body, (term(0, b), b))
    return total


def times_transposed(layout: Layout, rank: Any, a: Array, b: Array, size: int) -> Array:
    """Rows of A B^T. `size`: rows of B, which become columns."""
    if layout.ranks == 1:
        return _dot(a, b[:size], 1, 1)
    ranks, width = layout.ranks, b.shape[0]

    def put(step: Any, out: Array, b: Array) -> Array:
        start = ((rank + step) % ranks) * width
        return lax.dynamic_update_slice_in_dim(out, _dot(a, b, 1, 1), start, axis=1)

    def body(step: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        out, b = state
        b = _pass_on(layout, b, -1)
        return put(step, out, b), b

    empty = jnp.zeros((a.shape[0], ranks * width), a.dtype)
    empty = vary(empty, varying(a) | varying(b))
    out, _ = _steps(layout, body, (put(0, empty, b), b))
    return out[:, :size]


def transposed_times(layout: Layout, rank: Any, a: Array, b: Array, size: int) -> Array:
    """Rows of A^T B. `size`: rows of A and of B."""
    a, b = true_rows(layout, rank, a, size), true_rows(layout, rank, b, size)
    if layout.ranks == 1:
        return _dot(a, b, 0, 0)
    ranks, width = layout.ranks, block_rows(layout, a.shape[1])
    a = _pad_columns(a, ranks * width)

    def term(step: Any) -> Array:
        """The part of this rank in the block that ends its way here after the other ranks."""
        return _dot(_columns_of(a, (rank - 1 - step) % ranks, width), b, 0, 0)

    def body(step: Any, total: Array) -> Array:
        return _pass_on(layout, total, 1) + term(step)

    out: Array = _steps(layout, body, term(0))
    return out


def strips(layout: Layout, size: int) -> int:
    """Into how many strips hermitian_times cuts the columns of each rank."""
    return max(1, min(STRIPS // layout.ranks, block_rows(layout, size) // LEAST_STRIP))


def _cut_in_strips(layout: Layout, x: Array, count: int) -> Array:
    """`x` with zeros behind the columns of each rank, so that they are `count` strips."""
    width = block_rows(layout, x.shape[1])
    x = _pad_columns(x, layout.ranks * width)
    if width % count == 0:
        return x
    x = x.reshape(x.shape[0], layout.ranks, width)
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -width % count)))
    return x.reshape(x.shape[0], -1)


def hermitian_times(
    layout: Layout, rank: Any, a: Array, b: Array, size: int, count: int = 0
) -> Array:
    """Rows of A^H B for A and B of one shape whose product is Hermitian. `size`: rows of both.

    The columns are cut into S strips, `count` for each rank. Strip s of the rows of C is worked
    out for strips s, s + 1, ... s + S / 2 of its columns, cyclically: every block or its mirror
    image, with the same work for each strip. Blocks that are their own images, and those S / 2
    away, which are there twice, count half; C is what is there plus its adjoint.
    """
    count = count or strips(layout, a.shape[1])
    total = layout.ranks * count
    if total < 3:
        return transposed_times(layout, rank, jnp.conj(a), b, size)
    a, b = true_rows(layout, rank, a, size), true_rows(layout, rank, b, size)
    columns, width = a.shape[1], block_rows(layout, a.shape[1])
    a, b = _cut_in_strips(layout, jnp.conj(a), count), _cut_in_strips(layout, b, count)
    strip, half = a.shape[1] // total, total // 2
    b = jnp.concatenate([b, b[:, : half * strip]], axis=1)
    wide = (half + 1) * strip

    def put(x: Array, block: Array, k: Any, first: Any) -> Array:
        """`block` in rows of strip k and columns from strip `first` on."""
        at = (jnp.asarray(i * strip, jnp.int32) for i in (k, first))
        return lax.dynamic_update_slice(x, block, tuple(at))

    def by_strips(columns: int, block: Block, owner: Any) -> Array:
        """From the block of each strip of `owner`, and its place."""

        def body(k: Any, out: Array) -> Array:
            return put(out, *block(k, owner * count + k))

        out = jnp.zeros((count * strip, columns), b.dtype)
        return lax.fori_loop(0, count, body, vary(out, varying(b)))

    def term(step: Any) -> Array:
        def block(k: Any, s: Any) -> tuple[Array, Any, int]:
            left = lax.dynamic_slice_in_dim(a, s * strip, strip, axis=1)
            return _dot(left, lax.dynamic_slice_in_dim(b, s * strip, wide, axis=1), 0, 0), k, 0

        return by_strips(wide, block, (rank - 1 - step) % layout.ranks)

    def body(step: Any, sum_: Array) -> Array:
        return _pass_on(layout, sum_, 1) + term(step)

    upper = _steps(layout, body, term(0)) if layout.ranks > 1 else term(0)
    distance = lax.iota(jnp.int32, wide) // strip
    twice = (distance == 0) | (2 * distance == total)
    upper = upper * jnp.where(twice, 0.5, 1).astype(upper.dtype)
    out = by_strips(
        (total + half) * strip,
        lambda k, s: (lax.dynamic_slice_in_dim(upper, k * strip, strip), k, s),
        rank,
    )
    wrapped = jnp.pad(out[:, total * strip :], ((0, 0), (0, (total - half) * strip)))
    out = out[:, : total * strip] + wrapped
    out = out.reshape(count * strip, layout.ranks, count * strip)[:width, :, :width]
    out = out.reshape(width, layout.ranks * width)[:, :columns]
    return out + transposed(layout, rank, jnp.conj(out), columns)


def transposed(layout: Layout, rank: Any, a: Array, size: int) -> Array:
    """Rows of A^T. `size`: rows of A."""
    a = true_rows(layout, rank, a, size)
    if layout.ranks == 1:
        return a[:size].T
    a = _pad_columns(a, layout.ranks * block_rows(layout, a.shape[1]))
    out: Array = lax.all_to_all(a, layout.axes, split_axis=1, concat_axis=0, tiled=True)
    return out[:size].T
