"""Products of matrices that are split by rows, as the ranks work them out on their blocks.

No rank ever holds more of an operand than its own block and one that passes by: the blocks of one
operand, or the sums for the blocks of the result, go round the ring of ranks.

    times             C = A B      each block of B meets its columns of A
    times_transposed  C = A B^T    each block of B gives its columns of C
    transposed_times  C = A^T B    each block of C collects one term on every rank

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


def transposed(layout: Layout, rank: Any, a: Array, size: int) -> Array:
    """Rows of A^T. `size`: rows of A."""
    a = true_rows(layout, rank, a, size)
    if layout.ranks == 1:
        return a[:size].T
    a = _pad_columns(a, layout.ranks * block_rows(layout, a.shape[1]))
    out: Array = lax.all_to_all(a, layout.axes, split_axis=1, concat_axis=0, tiled=True)
    return out[:size].T
