"""Triangular systems on global arrays, and their derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ._layout import Resolved
from ._operands import gathered, pad_rows, places, reshard, type_spec
from ._products import applied, contracted
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
    part = meant(form, a)
    if form.transpose == NONE:
        return applied(r.layout, part, x)[: r.n]
    return contracted(r.layout, jnp.conj(part) if form.transpose == CONJ_TRANSPOSE else part, x)


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
        params = {"upper": not system.lower, "transpose": system.transpose, "unit": system.unit}
        if split:
            rhs = pad_rows(rhs, r.padded_rows)
            return as_b(trsm_p.bind(fixed, rhs, r=r, replicated=False, **params)[0][: r.n])
        rhs = gathered(layout, rhs)
        return as_b(trsm_p.bind(fixed, rhs, r=r, replicated=True, **params)[0])

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
