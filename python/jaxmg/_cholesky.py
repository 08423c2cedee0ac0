"""Cholesky on global arrays: factor, solution, log-determinant, and their derivatives.

The factor is that of ``stop_gradient(A)``; A itself carries the derivative, through the product
A x that defines the solution and through the inverse in the derivative of the log-determinant.
So one factorisation serves values, forward and reverse mode, at any order, and no rule ever
differentiates a foreign call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import checkify
from jax.sharding import PartitionSpec

from . import _manual
from ._dot import dot
from ._hermitian import transposed, valid_part, weight, weighted_triangle
from ._layout import Resolved
from ._operands import (
    constrain_rows,
    gathered,
    is_split,
    like,
    on_all_devices,
    pad_rows,
    reshard,
    type_spec,
)
from ._primitives import locate_p, logdet_p, potrf_p, potri_p, potrs_p
from ._resolve import axis_names
from ._rows import keep_rows


class Factor(NamedTuple):
    """What a factorisation leaves behind; see _primitives."""

    work: Array
    aux: Array
    info: Array


def enter(r: Resolved, a: Array) -> Array:
    """Pins the rows of A, and those of its cotangent, to the ranks."""
    if r.layout.kind == "manual":
        return _manual.enter(r, a)
    return keep_rows(r, a)


def factor(r: Resolved, a: Array) -> Factor:
    a = lax.stop_gradient(a)
    if r.layout.kind == "manual":
        return Factor(*_manual.factor(r, a))
    work, aux, info = potrf_p.bind(a, r=r)
    return Factor(work, aux, on_all_devices(r.layout, info))


def locate(r: Resolved, f: Factor) -> Factor:
    """The factor with the position of a failure in the user's order; destroys a failed one."""
    if r.layout.kind == "manual":
        work, info = _manual.locate(r, *f)
    else:
        work, info = locate_p.bind(*f, r=r)
    return Factor(work, f.aux, info)


def status(info: Array) -> Array:
    """One number: 0, a position (> 0) or a kind (< 0)."""
    return jnp.where(info[..., 0] > 0, info[..., 1], info[..., 0])


jitted_status: Callable[[Array], Array] = jax.jit(status)


def report(routine: str, info: Array) -> None:
    """Makes a failure an error under checkify.

    Not for all who want the status: what jax.export serialises has no place for such a check.
    """
    found = status(info)
    message = f"{routine} failed with status {{status}} (jaxmg.errors.explain)"
    checkify.debug_check(found == 0, message, status=found)


def rows_over_devices(r: Resolved, a: Array) -> Array:
    """Explicit axes: A with unsplit columns."""
    layout = r.layout
    if not layout.explicit or not is_split(type_spec(a), (1,)):
        return a
    return reshard(layout, a, _row_split(r, type_spec(a), a.shape[0]))


def _row_split(r: Resolved, spec: PartitionSpec, rows: int) -> PartitionSpec:
    assert r.layout.mesh is not None
    axes = tuple(name for entry in tuple(spec) for name in axis_names(entry))
    size = 1
    for axis in axes:
        size *= r.layout.mesh.shape[axis]
    return PartitionSpec(axes, None) if rows % size == 0 else PartitionSpec(None, None)


def matvec(r: Resolved, a: Array, x: Array) -> Array:
    """A x for x of shape (n, k), from the valid part of A; see _hermitian."""
    layout = r.layout
    part = valid_part(r.triangle, rows_over_devices(r, a))
    if not layout.explicit:
        y = dot(part, x)[: r.n] + transposed(part, pad_rows(x, part.shape[0]))
        return weight(r.triangle) * y
    x = gathered(layout, x)
    first = gathered(layout, dot(part, x))[: r.n]
    rows = pad_rows(x, part.shape[0])
    spec = type_spec(part)
    if not is_split(spec):
        return weight(r.triangle) * (first + transposed(part, rows))
    rows = reshard(layout, rows, PartitionSpec(spec[0], None))
    whole = layout.typed(PartitionSpec(None, None))
    return weight(r.triangle) * (first + transposed(part, rows, out_sharding=whole))


def solve(r: Resolved, a: Array | None, f: Factor, b: Array, *, split: bool = False) -> Array:
    """Solves A x = b for b of shape (n, k).

    Args:
        r: the resolved factorisation.
        a: the matrix that carries the derivative (None: derivatives in b alone).
        f: its factor.
        b: right-hand sides.
        split: whether the rows of b, and of x, are split over the ranks.
    """
    if b.shape[1] == 0:
        return b
    if r.layout.kind == "manual":
        raise AssertionError("blocks are solved by _manual.solve")
    f = Factor(*(lax.stop_gradient(x) for x in f))

    def apply(rhs: Array, replicated: bool) -> tuple[Array, None]:
        return potrs_p.bind(*f, rhs, r=r, replicated=replicated)[0], None

    return linear_solve(r, a, b, apply, split)[0]


def on_ranks(
    r: Any, b: Array, apply: Callable[[Array, bool], tuple[Array, Any]], split: bool
) -> tuple[Array, Any]:
    """x and more from `apply`, as of :func:`linear_solve`, with b where the ranks want it."""
    if split:
        x, more = apply(pad_rows(b, r.padded_rows), False)
        return x[: r.n], more
    return apply(gathered(r.layout, b), True)


def linear_solve(
    r: Any,
    a: Array | None,
    b: Array,
    apply: Callable[[Array, bool], tuple[Array, Any]],
    split: bool,
) -> tuple[Array, Any]:
    """The derivative rules of x = A^-1 b, whatever computes it.

    Args:
        r, a, b, split: as of :func:`solve`.
        apply: (rhs, replicated) -> x and what comes along with it, without derivatives.
    """
    layout = r.layout
    spec = type_spec(b) if layout.explicit else None

    def as_b(x: Array) -> Array:
        return x if spec is None else reshard(layout, x, spec)

    def run(_: Any, rhs: Array) -> tuple[Array, Any]:
        x, more = on_ranks(r, rhs, apply, split)
        return as_b(x), more

    def transpose(_: Any, rhs: Array) -> tuple[Array, Any]:
        # (A^-1)^T = conj(A^-1), since A is Hermitian.
        if not r.is_complex:
            return run(_, rhs)
        x, more = run(_, jnp.conj(rhs))
        return jnp.conj(x), more

    def product(x: Array) -> Array:
        # Without A nothing but the type of this product is ever used.
        return x if a is None else as_b(matvec(r, a, x))

    found: tuple[Array, Any] = lax.custom_linear_solve(
        product, b, run, transpose_solve=transpose, has_aux=True
    )
    return found


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def inverse(r: Resolved, a: Array, work: Array, aux: Array, info: Array) -> Array:
    """A^-1 with the shape and the rows of `a`."""
    layout = r.layout
    rows = r.padded_rows
    x = constrain_rows(layout, potri_p.bind(work, aux, info, r=r)[0])
    if a.shape[0] != rows:
        x = gathered(layout, x)[: a.shape[0]]
    elif rows != r.n:
        index = lax.broadcasted_iota(jnp.int32, (rows, r.n), 0)
        x = jnp.where(index < r.n, x, jnp.zeros_like(x))
    return like(layout, x, a)


@inverse.defjvp
def _inverse_jvp(
    r: Resolved, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    # d(A^-1) = -A^-1 dA A^-1 = -weight (Q + Q^H) with Q = A^-1 part A^-1, since A^-1 is Hermitian.
    x = inverse(r, *primals)
    layout = r.layout
    part = rows_over_devices(r, valid_part(r.triangle, tangents[0]))[: r.n]
    whole = gathered(layout, x)[: r.n]
    q = dot(jnp.conj(whole.T), dot(gathered(layout, part), whole))
    dx = pad_rows(-weight(r.triangle) * (q + jnp.conj(q.T)), x.shape[0])
    return x, like(layout, dx, x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _logdet(r: Resolved, a: Array, work: Array, aux: Array, info: Array) -> Array:
    value: Array = logdet_p.bind(work, info, r=r)[0]
    return value


@_logdet.defjvp
def _logdet_jvp(
    r: Resolved, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    # d log det A = trace(A^-1 dA) = Re sum(conj(A^-1) * dA), since A^-1 is Hermitian.
    x = inverse(r, *primals)
    change = weighted_triangle(r.triangle, tangents[0])
    return _logdet(r, *primals), jnp.sum(jnp.real(jnp.conj(x) * change))


def logdet(r: Resolved, a: Array | None, f: Factor) -> Array:
    """log(det(A)), a real scalar equal on all devices."""
    f = Factor(*(lax.stop_gradient(x) for x in f))
    if a is None:
        value: Array = logdet_p.bind(f.work, f.info, r=r)[0]
        return value
    return _logdet(r, a, *f)
