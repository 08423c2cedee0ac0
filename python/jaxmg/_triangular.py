"""Triangular systems on global arrays, and their derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from ._layout import Resolved
from ._operands import gathered, is_split, pad_rows, places, reshard, type_spec
from ._triangular_primitives import trsm_p

NONE, TRANSPOSE, CONJ_TRANSPOSE = 0, 1, 2


class Form(NamedTuple):
    """Which system a triangular matrix stands for: op(A) x = b.

    Attributes:
        lower: whether the lower triangle is read, else the upper one.
        transpose: NONE, TRANSPOSE or CONJ_TRANSPOSE.
        unit: whether ones are read on the diagonal whatever is there.
    """

    lower: bool
    transpose: int = NONE
    unit: bool = False


def meant(form: Form, a: Array) -> Array:
    """A as it is read: the triangle, and the diagonal."""
    rows, columns = places(a)
    strict = rows > columns if form.lower else rows < columns
    inside = strict if form.unit else strict | (rows == columns)
    part = jnp.where(inside, a, jnp.zeros_like(a))
    return part + (rows == columns).astype(a.dtype) if form.unit else part


def product(r: Resolved, form: Form, a: Array, x: Array) -> Array:
    """op(A) x, x of shape (n, k), whole on every device if axes are explicit."""
    layout = r.layout
    part = meant(form, a)
    x = gathered(layout, x)
    if form.transpose == NONE:
        return gathered(layout, part @ x)[: r.n]
    if form.transpose == CONJ_TRANSPOSE:
        part = jnp.conj(part)
    rows = pad_rows(x, part.shape[0])
    dims = (((0,), (0,)), ((), ()))
    if not layout.explicit or not is_split(type_spec(part)):
        return lax.dot_general(part, rows, dims)
    rows = reshard(layout, rows, PartitionSpec(type_spec(part)[0], None))
    whole = layout.typed(PartitionSpec(None, None))
    return lax.dot_general(part, rows, dims, out_sharding=whole)


def _backwards(form: Form) -> Form:
    """The form of the transposed system: for CONJ_TRANSPOSE that of its conjugate."""
    return form._replace(transpose=TRANSPOSE if form.transpose == NONE else NONE)


def solve(r: Resolved, form: Form, a: Array, b: Array, *, split: bool = False) -> Array:
    """Solves op(A) x = b for b of shape (n, k).

    Args:
        r: layout, sizes, tile and order.
        form: which system.
        a: the matrix, which carries the derivative too.
        b: right-hand sides.
        split: whether the rows of b, and of x, are split over the ranks.
    """
    if b.shape[1] == 0 or r.n == 0:
        return b
    layout = r.layout
    fixed = lax.stop_gradient(a)
    spec = type_spec(b) if layout.explicit else None

    def as_b(x: Array) -> Array:
        return x if spec is None else reshard(layout, x, spec)

    def run(system: Form, rhs: Array) -> Array:
        return as_b(half(r, system, fixed, rhs, split=split))

    def transpose(_: Any, rhs: Array) -> Array:
        if form.transpose == CONJ_TRANSPOSE and r.is_complex:
            return jnp.conj(run(_backwards(form), jnp.conj(rhs)))
        return run(_backwards(form), rhs)

    x: Array = lax.custom_linear_solve(
        lambda x: as_b(product(r, form, a, x)),
        b,
        lambda _, rhs: run(form, rhs),
        transpose_solve=transpose,
    )
    return x


def half(r: Resolved, form: Form, a: Array, b: Array, *, split: bool = False) -> Array:
    """Solves op(A) x = b in the order of elimination of `r`, with no derivatives."""
    params = {"upper": not form.lower, "transpose": form.transpose, "unit": form.unit}
    if split:
        rhs = pad_rows(b, r.padded_rows)
        return trsm_p.bind(a, rhs, r=r, replicated=False, **params)[0][: r.n]
    x: Array = trsm_p.bind(a, gathered(r.layout, b), r=r, replicated=True, **params)[0]
    return x
