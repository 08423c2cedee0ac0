"""Cholesky inside the caller's own shard_map: every array is the block of one device.

With the replication check on (``check_vma=True``), types say over which mesh axes a value varies.
All operands of a call are first made to vary alike; what is equal on all ranks in fact is typed
so again at the end. The call reads the right-hand side of rank 0, hence its transpose is: sum
over the ranks, solve, keep the result on rank 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from . import _calls
from ._batching import in_turn
from ._dot import dot
from ._hermitian import transposed, valid_part, weight, weighted_triangle
from ._layout import NATURAL, Resolved
from ._operands import pad_rows
from ._vma import unvary, vary, varying


def all_axes(r: Any) -> tuple[str, ...]:
    return (*r.layout.axes, *r.layout.others)


def looped(function: Callable[..., Any], results: Any) -> Callable[..., Any]:
    """`function`, made to run once for each member of a batch under vmap."""
    call = custom_vmap(function)

    @call.def_vmap
    def rule(size: int, batched: Sequence[bool], *arrays: Array) -> Any:
        return in_turn(call, arrays, batched), results

    return call


@functools.lru_cache(maxsize=256)
def _potrf(r: Resolved) -> Callable[..., Any]:
    def run(a: Array) -> tuple[Array, ...]:
        ctx = _calls.context(r.layout, r.call_id)
        axes = varying(a)
        return tuple(vary(x, axes) for x in _calls.potrf(r, ctx, a))

    return looped(run, (True, True, True))


@functools.lru_cache(maxsize=256)
def _locate(r: Resolved) -> Callable[..., Any]:
    def run(work: Array, aux: Array, info: Array) -> tuple[Array, ...]:
        ctx = _calls.context(r.layout, r.call_id)
        axes = varying(work)

        def search(operands: tuple[Array, ...]) -> tuple[Array, ...]:
            found = _calls.locate_always(r, ctx, *operands)
            return tuple(vary(x, axes) for x in found)

        def keep(operands: tuple[Array, ...]) -> tuple[Array, ...]:
            return vary(operands[0], axes), vary(operands[2], axes)

        failed = info[0] > 0
        out: tuple[Array, ...] = lax.cond(failed, search, keep, (work, aux, info))
        return out

    return looped(run, (True, True))


@functools.lru_cache(maxsize=256)
def _logdet(r: Resolved) -> Callable[..., Any]:
    def run(work: Array, info: Array) -> Array:
        ctx = _calls.context(r.layout, r.call_id)
        return vary(_calls.logdet(r, ctx, work, info), varying(work))

    return looped(run, True)


@functools.lru_cache(maxsize=256)
def _potri(r: Resolved) -> Callable[..., Any]:
    def run(work: Array, aux: Array, info: Array) -> Array:
        ctx = _calls.context(r.layout, r.call_id)
        return vary(_calls.potri(r, ctx, work, aux, info), varying(work))

    return looped(run, True)


@functools.lru_cache(maxsize=256)
def _potrs(r: Resolved, replicated: bool) -> Callable[..., Any]:
    def run(work: Array, aux: Array, info: Array, b: Array) -> Array:
        ctx = _calls.context(r.layout, r.call_id)
        x = _calls.potrs(r, ctx, work, aux, info, b, replicated=replicated)
        return vary(x, varying(work) | varying(b))

    call = custom_vmap(run)

    @call.def_vmap
    def rule(size: int, batched: Sequence[bool], *arrays: Array) -> Any:
        if any(batched[:3]):
            return in_turn(call, arrays, batched), True
        work, aux, info, b = arrays
        b = jnp.moveaxis(b, 0, 1)
        rows, count, columns = b.shape
        x = call(work, aux, info, b.reshape(rows, count * columns))
        return jnp.moveaxis(x.reshape(rows, count, columns), 1, 0), True

    return call


def enter(r: Any, a: Array) -> Array:
    """Gives the matrix the type that all operands will have."""
    return vary(a, all_axes(r)) if varying(a) else a


def factor(r: Resolved, a: Array) -> tuple[Array, Array, Array]:
    work, aux, info = _potrf(r)(a)
    return work, aux, info


def locate(r: Resolved, work: Array, aux: Array, info: Array) -> tuple[Array, Array]:
    if r.backend != "native" or r.order == NATURAL:  # eliminates in LAPACK's order
        return work, info
    work, info = _locate(r)(work, aux, info)
    return work, info


def info_as_equal(r: Resolved, info: Array, source: frozenset[str]) -> Array:
    """`info`, typed as equal on all ranks; `source`: the axes over which A came varying."""
    keep = source - set(r.layout.axes)
    return unvary(info, [axis for axis in all_axes(r) if axis not in keep])


def matvec(r: Resolved, a: Array, x: Array) -> Array:
    """A x from the rows of this device. Also right for what lies in one triangle only."""
    layout = r.layout
    rows, rank = a.shape[0], lax.axis_index(layout.axes) if layout.axes else 0
    part = valid_part(r.triangle, a, first_row=rank * rows)
    whole = vary(jnp.zeros((rows * layout.ranks, x.shape[1]), x.dtype), varying(part))
    # x is padded so that the last ranks, which may own fewer rows or none, read zeros.
    mine = lax.dynamic_slice_in_dim(pad_rows(x, rows * layout.ranks), rank * rows, rows)
    placed = lax.dynamic_update_slice_in_dim(whole, dot(part, x), rank * rows, 0)
    y = weight(r.triangle) * (placed[: r.n] + transposed(part, mine))
    if not layout.axes:
        return y
    return lax.psum(y, layout.axes)


def solve(
    r: Resolved, a: Array, factor: Sequence[Array], b: Array, source: frozenset[str]
) -> Array:
    """Solves for `b`, which every rank holds whole. `source`: see info_as_equal."""
    layout = r.layout
    mine = varying(b)
    if varying(a):
        b = vary(b, all_axes(r))
    work, aux, info = (lax.stop_gradient(x) for x in factor)
    call = _potrs(r, True)
    like = varying(b)

    def run(_: Any, rhs: Array) -> Array:
        x: Array = call(work, aux, info, rhs)
        return x

    def back(_: Any, rhs: Array) -> Array:
        # The transpose of A^-1 is conj(A)^-1, since A is Hermitian.
        return jnp.conj(run(_, jnp.conj(rhs))) if r.is_complex else run(_, rhs)

    def transpose(_: Any, rhs: Array) -> Array:
        axes = tuple(axis for axis in layout.axes if axis in like)
        if not axes:
            return back(_, rhs)
        x = back(_, vary(lax.psum(rhs, axes), like))
        return jnp.where(lax.axis_index(axes) == 0, x, jnp.zeros_like(x))

    x: Array = lax.custom_linear_solve(
        lambda x: vary(matvec(r, a, x), like), b, run, transpose_solve=transpose
    )
    keep = (source - set(layout.axes)) | mine
    return unvary(x, [axis for axis in all_axes(r) if axis not in keep])


def inverse_rows(r: Resolved, factor: Sequence[Array]) -> Array:
    """The rows of A^-1 that belong to this device; those beyond n are zero."""
    x: Array = _potri(r)(*factor)
    rows = x.shape[0]
    rank = lax.axis_index(r.layout.axes) if r.layout.axes else 0
    own = rank * rows + jnp.arange(rows)[:, None] < r.n
    return jnp.where(own, x, jnp.zeros_like(x))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def logdet(
    r: Resolved, source: frozenset[str], a: Array, work: Array, aux: Array, info: Array
) -> Array:
    """log(det(A)), equal on all ranks."""
    keep = source - set(r.layout.axes)
    value = _logdet(r)(work, info)
    return unvary(value, [axis for axis in all_axes(r) if axis not in keep])


@logdet.defjvp
def _logdet_jvp(
    r: Resolved, source: frozenset[str], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    a, *factor = primals
    rows = a.shape[0]
    rank = lax.axis_index(r.layout.axes) if r.layout.axes else 0
    x = inverse_rows(r, factor)
    change = weighted_triangle(r.triangle, tangents[0], first_row=rank * rows)
    part = jnp.sum(jnp.real(jnp.conj(x) * change))
    keep = source - set(r.layout.axes)
    total = lax.psum(part, r.layout.axes) if r.layout.axes else part
    total = unvary(total, [axis for axis in all_axes(r) if axis not in keep])
    return logdet(r, source, *primals), total
