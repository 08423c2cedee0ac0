"""LU on global arrays: factor, solution, determinant, inverse, and their derivatives.

As with Cholesky, the factor is that of ``stop_gradient(A)``; A itself carries the derivative,
through the product A x that defines the solution and through the inverse in the derivative of the
determinant. One factorisation serves values, forward and reverse mode, at any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from . import _lu_manual, _manual, _matmul
from ._cholesky import rows_over_devices
from ._dot import contract, dot
from ._hermitian import places
from ._layout import Resolved
from ._lu_primitives import getdet_p, getrf_p, getri_p, getrs_p
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
from ._rows import keep_rows


class Factor(NamedTuple):
    """What a factorisation leaves behind; see _lu_primitives."""

    work: Array
    aux: Array
    pivots: Array
    info: Array


def stopped(f: Factor) -> Factor:
    """The factor without derivatives."""
    return Factor(*(lax.stop_gradient(x) for x in f))


def enter(r: Resolved, a: Array) -> Array:
    """Pins the rows of A, and those of its cotangent, to the ranks."""
    if r.layout.kind == "manual":
        return _manual.enter(r, a)
    return keep_rows(r, a)


def factor(r: Resolved, a: Array, *, natural: bool = False) -> Factor:
    """natural: equations are eliminated in their order, at the price of the balance of the load."""
    if r.layout.kind == "manual":
        return Factor(*_lu_manual.factor(r, a))
    work, aux, pivots, info = getrf_p.bind(lax.stop_gradient(a), r=r, natural=natural)
    return Factor(work, aux, pivots, on_all_devices(r.layout, info))


def _contract_rows(a: Array, x: Array, out_sharding: Any = None) -> Array:
    """A^T x, with nothing n x n transposed."""
    dims = (((0,), (0,)), ((), ()))
    if out_sharding is None:
        return contract(a, x, dims)
    return contract(a, x, dims, out_sharding=out_sharding)


def matvec(r: Resolved, a: Array, x: Array, transpose: bool) -> Array:
    """A x, or A^T x, for x of shape (n, k)."""
    layout = r.layout
    a = rows_over_devices(r, a)
    if not layout.explicit:
        return _contract_rows(a, pad_rows(x, a.shape[0])) if transpose else dot(a, x)[: r.n]
    x = gathered(layout, x)
    if not transpose:
        return gathered(layout, dot(a, x))[: r.n]
    rows = pad_rows(x, a.shape[0])
    spec = type_spec(a)
    if not is_split(spec):
        return _contract_rows(a, rows)
    rows = reshard(layout, rows, PartitionSpec(spec[0], None))
    return _contract_rows(a, rows, layout.typed(PartitionSpec(None, None)))


def solve(
    r: Resolved,
    a: Array | None,
    f: Factor,
    b: Array,
    *,
    split: bool = False,
    transpose: bool = False,
) -> Array:
    """Solves A x = b, or A^T x = b, for b of shape (n, k).

    Args:
        r: the resolved factorisation.
        a: the matrix that carries the derivative (None: derivatives in b alone).
        f: its factor.
        b: right-hand sides.
        split: whether the rows of b, and of x, are split over the ranks.
        transpose: whether to solve with the transposed matrix.
    """
    if b.shape[1] == 0:
        return b
    f = stopped(f)

    def apply(rhs: Array, replicated: bool, transposed: bool) -> tuple[Array, None]:
        return getrs_p.bind(*f, rhs, r=r, replicated=replicated, transpose=transposed)[0], None

    return linear_solve(r, a, b, apply, split=split, transpose=transpose)[0]


def linear_solve(
    r: Resolved,
    a: Array | None,
    b: Array,
    apply: Callable[[Array, bool, bool], tuple[Array, Any]],
    *,
    split: bool,
    transpose: bool = False,
) -> tuple[Array, Any]:
    """The derivative rules of x = A^-1 b or A^-T b, whatever computes it.

    Args:
        r, a, b, split, transpose: as of :func:`solve`.
        apply: (rhs, replicated, transposed) -> x and what comes along with it, without
            derivatives.
    """
    layout = r.layout
    spec = type_spec(b) if layout.explicit else None

    def as_b(x: Array) -> Array:
        return x if spec is None else reshard(layout, x, spec)

    def run(transposed: bool, rhs: Array) -> tuple[Array, Any]:
        if split:
            x, more = apply(pad_rows(rhs, r.padded_rows), False, transposed)
            return as_b(x[: r.n]), more
        x, more = apply(gathered(layout, rhs), True, transposed)
        return as_b(x), more

    def product(x: Array) -> Array:
        # Without A nothing but the type of this product is ever used.
        return x if a is None else as_b(matvec(r, a, x, transpose))

    found: tuple[Array, Any] = lax.custom_linear_solve(
        product,
        b,
        lambda _, rhs: run(transpose, rhs),
        transpose_solve=lambda _, rhs: run(not transpose, rhs),
        has_aux=True,
    )
    return found


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _inverse(
    r: Resolved, transpose: bool, a: Array, work: Array, aux: Array, pivots: Array, info: Array
) -> Array:
    layout, rows = r.layout, r.padded_rows
    (x,) = getri_p.bind(work, pivots, info, r=r)
    x = constrain_rows(layout, x)
    if transpose:
        x = _matmul.conj(_matmul.adjoint(_matmul.Ring(layout), x, r.n))
    if a.shape[0] != rows:
        x = gathered(layout, x)[: a.shape[0]]
    elif rows != r.n:
        index = lax.broadcasted_iota(jnp.int32, (rows, r.n), 0)
        x = jnp.where(index < r.n, x, jnp.zeros_like(x))
    return like(layout, x, a)


@_inverse.defjvp
def _inverse_jvp(
    r: Resolved, transpose: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    # d(A^-1) = -A^-1 dA A^-1,  d(A^-T) = -A^-T dA^T A^-T, as products around a ring of devices.
    x = _inverse(r, transpose, *primals)
    ring = _matmul.Ring(r.layout)
    change, factor = _split(r, tangents[0]), _split(r, x)
    if transpose:
        first = _matmul.times_adjoint(ring, factor, _matmul.conj(change), r.n)
        dx = _matmul.times(ring, first, factor)
    else:
        dx = _matmul.times(ring, factor, _matmul.times(ring, change, factor))
    if x.shape[0] != dx.shape[0]:
        dx = gathered(r.layout, dx)[: x.shape[0]]
    return x, like(r.layout, -dx, x)


def _split(r: Resolved, x: Array) -> Array:
    """An n x n matrix with its rows split over the ranks, zeros where it has more than n."""
    if x.shape[0] != r.n:
        row, _ = places(x, 0)
        x = jnp.where(row < r.n, x, jnp.zeros_like(x))
    return _matmul.rows(_matmul.Ring(r.layout), pad_rows(x, r.padded_rows))


def inverse(r: Resolved, a: Array, f: Factor, *, transpose: bool = False) -> Array:
    """A^-1, or its transpose, with the shape and the rows of `a`."""
    x: Array = _inverse(r, transpose, a, *stopped(f))
    return x


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _slogdet(
    r: Resolved, a: Array, work: Array, aux: Array, pivots: Array, info: Array
) -> tuple[Array, Array]:
    sign, log = getdet_p.bind(work, pivots, info, r=r)
    return sign, log


@_slogdet.defjvp
def _slogdet_jvp(
    r: Resolved, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    # d log det A = trace(A^-1 dA) = sum of the elements of A^-T * dA
    sign, log = _slogdet(r, *primals)
    rate = jnp.sum(_inverse(r, True, *primals) * tangents[0])
    if not r.is_complex:
        return (sign, log), (jnp.zeros_like(sign), rate)
    turn = (rate - jnp.real(rate).astype(rate.dtype)) * sign
    return (sign, log), (turn, jnp.real(rate))


def slogdet(r: Resolved, a: Array | None, f: Factor) -> tuple[Array, Array]:
    """Sign (or phase) and logarithm of the absolute value of det(A), equal on all devices."""
    f = stopped(f)
    if a is None:
        sign, log = getdet_p.bind(f.work, f.pivots, f.info, r=r)
        return sign, log
    out: tuple[Array, Array] = _slogdet(r, a, *f)
    return out
