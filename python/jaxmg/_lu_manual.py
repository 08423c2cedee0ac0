"""LU inside the caller's own shard_map: every array is the block of one device. See _manual."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from . import _calls, _lu_calls
from ._batching import in_turn
from ._dot import contract, dot
from ._layout import Resolved
from ._manual import all_axes, looped, unvary, vary, varying
from ._operands import pad_rows


@functools.lru_cache(maxsize=256)
def _getrf(r: Resolved) -> Callable[..., Any]:
    def run(a: Array) -> tuple[Array, ...]:
        ctx = _calls.context(r.layout, r.call_id)
        axes = varying(a)
        return tuple(vary(x, axes) for x in _lu_calls.getrf(r, ctx, a, natural=False))

    return looped(run, (True, True, True, True))


@functools.lru_cache(maxsize=256)
def _getdet(r: Resolved) -> Callable[..., Any]:
    def run(work: Array, pivots: Array, info: Array) -> tuple[Array, ...]:
        ctx = _calls.context(r.layout, r.call_id)
        return tuple(vary(x, varying(work)) for x in _lu_calls.getdet(r, ctx, work, pivots, info))

    return looped(run, (True, True))


@functools.lru_cache(maxsize=256)
def _getrs(r: Resolved, replicated: bool, transpose: bool) -> Callable[..., Any]:
    def run(*operands: Array) -> Array:
        *factor, b = operands
        ctx = _calls.context(r.layout, r.call_id)
        x = _lu_calls.getrs(r, ctx, *factor, b=b, replicated=replicated, transpose=transpose)
        return vary(x, varying(factor[0]) | varying(b))

    call = custom_vmap(run)

    @call.def_vmap
    def rule(size: int, batched: Sequence[bool], *arrays: Array) -> Any:
        if any(batched[:-1]):
            return in_turn(call, arrays, batched), True
        *factor, b = arrays
        b = jnp.moveaxis(b, 0, 1)
        rows, count, columns = b.shape
        x = call(*factor, b.reshape(rows, count * columns))
        return jnp.moveaxis(x.reshape(rows, count, columns), 1, 0), True

    return call


def factor(r: Resolved, a: Array) -> tuple[Array, ...]:
    out: tuple[Array, ...] = tuple(_getrf(r)(lax.stop_gradient(a)))
    return out


def _rank(r: Resolved) -> Any:
    return lax.axis_index(r.layout.axes) if r.layout.axes else 0


def matvec(r: Resolved, a: Array, x: Array, transpose: bool) -> Array:
    """A x, or A^T x, from the rows of this device."""
    layout, rows = r.layout, a.shape[0]
    first = _rank(r) * rows
    if transpose:
        mine = lax.dynamic_slice_in_dim(pad_rows(x, rows * layout.ranks), first, rows)
        y = contract(a, mine, (((0,), (0,)), ((), ())))
    else:
        whole = vary(jnp.zeros((rows * layout.ranks, x.shape[1]), x.dtype), varying(a))
        y = lax.dynamic_update_slice_in_dim(whole, dot(a, x), first, 0)[: r.n]
    return lax.psum(y, layout.axes) if layout.axes else y


def solve(
    r: Resolved,
    a: Array,
    factor: Sequence[Array],
    b: Array,
    source: frozenset[str],
    *,
    transpose: bool = False,
) -> Array:
    """Solves for `b`, which every rank holds whole. `source`: the axes over which A varied."""
    layout = r.layout
    mine = varying(b)
    if varying(a):
        b = vary(b, all_axes(r))
    parts = [lax.stop_gradient(x) for x in factor]
    like = varying(b)

    def back(_: Any, rhs: Array) -> Array:
        axes = tuple(axis for axis in layout.axes if axis in like)
        call = _getrs(r, True, not transpose)
        if not axes:
            return call(*parts, rhs)
        # The call reads the right-hand side of rank 0.
        x = call(*parts, vary(lax.psum(rhs, axes), like))
        return jnp.where(lax.axis_index(axes) == 0, x, jnp.zeros_like(x))

    x: Array = lax.custom_linear_solve(
        lambda x: vary(matvec(r, a, x, transpose), like),
        b,
        lambda _, rhs: _getrs(r, True, transpose)(*parts, rhs),
        transpose_solve=back,
    )
    keep = (source - set(layout.axes)) | mine
    return unvary(x, [axis for axis in all_axes(r) if axis not in keep])


def _as_equal(r: Resolved, source: frozenset[str], x: Array) -> Array:
    keep = source - set(r.layout.axes)
    return unvary(x, [axis for axis in all_axes(r) if axis not in keep])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def slogdet(
    r: Resolved,
    source: frozenset[str],
    a: Array,
    work: Array,
    aux: Array,
    pivots: Array,
    info: Array,
) -> tuple[Array, Array]:
    """Sign (or phase) and logarithm of |det(A)|, equal on all ranks."""
    sign, log = _getdet(r)(work, pivots, info)
    return _as_equal(r, source, sign), _as_equal(r, source, log)


@slogdet.defjvp
def _slogdet_jvp(
    r: Resolved, source: frozenset[str], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    a, *factor = primals
    rows = a.shape[0]
    row = _rank(r) * rows + jnp.arange(rows)[:, None]
    identity = vary((row == jnp.arange(r.n)[None, :]).astype(a.dtype), varying(factor[0]))
    x = _getrs(r, False, True)(*factor, identity)
    part = jnp.sum(jnp.where(row < r.n, x * tangents[0], jnp.zeros_like(x)))
    total = lax.psum(part, r.layout.axes) if r.layout.axes else part
    rate = _as_equal(r, source, total)
    sign, log = slogdet(r, source, *primals)
    if not r.is_complex:
        return (sign, log), (jnp.zeros_like(sign), rate)
    turn = (rate - jnp.real(rate).astype(rate.dtype)) * sign
    return (sign, log), (turn, jnp.real(rate))
