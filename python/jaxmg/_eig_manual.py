"""Eigenvalues and eigenvectors inside the caller's own shard_map, on the block of one device.

Types and loops as in _manual; formulas as in _eig.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import _calls, _ring
from ._eig import NO_TANGENT, rounding
from ._eig_primitives import ResolvedEig, _block
from ._hermitian import valid_part, weight
from ._manual import enter, looped
from ._vma import unvary, vary, varying

__all__ = ["decompose", "enter", "varying"]


@functools.lru_cache(maxsize=256)
def _call(r: ResolvedEig, vectors: bool) -> Callable[..., Any]:
    count = r.n if vectors else 0

    def run(a: Array) -> tuple[Array, ...]:
        ctx = _calls.context(r.layout, r.call_id)
        axes = varying(a)
        out = _block(r, ctx, a, vectors=vectors, first=0, count=count)
        return tuple(vary(x, axes) for x in out)

    return looped(run, (True, True, True) if vectors else (True, True))


def _as_equal(r: ResolvedEig, source: frozenset[str], x: Array) -> Array:
    """`x`, typed as equal on all ranks; `source`: the axes over which A came varying."""
    keep = source - set(r.layout.axes)
    return unvary(x, [x for x in (*r.layout.axes, *r.layout.others) if x not in keep])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def decompose(r: ResolvedEig, vectors: bool, source: frozenset[str], a: Array) -> tuple[Array, ...]:
    """w, [the rows of V on this rank,] info."""
    w, *v, info = _call(r, vectors)(a)
    return (_as_equal(r, source, w), *v, _as_equal(r, source, info))


@decompose.defjvp
def _decompose_jvp(
    r: ResolvedEig,
    vectors: bool,
    source: frozenset[str],
    primals: Sequence[Any],
    tangents: Sequence[Any],
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    layout = r.layout
    w, v, info = decompose(r, True, source, *primals)
    rank = lax.axis_index(layout.axes) if layout.axes else 0
    conj = jnp.conj(v)
    part = valid_part(r.triangle, tangents[0], first_row=rank * v.shape[0])
    pv = _ring.times(layout, rank, part, v, r.n)
    dw = jnp.sum(jnp.real(conj * pv), axis=0)
    dw = lax.psum(dw, layout.axes) if layout.axes else dw
    dw = 2 * weight(r.triangle) * _as_equal(r, source, dw)
    if not vectors:
        return (w, info), (dw, NO_TANGENT)
    t = _ring.transposed_times(layout, rank, conj, pv, r.n)
    m = weight(r.triangle) * (t + jnp.conj(_ring.transposed(layout, rank, t, r.n)))
    ends = jnp.pad(w, (0, v.shape[0] * layout.ranks - r.n))
    gap = w[None, :] - lax.dynamic_slice_in_dim(ends, rank * v.shape[0], v.shape[0])[:, None]
    limit = rounding(w)
    differ = jnp.abs(gap) > limit
    inverse = jnp.where(differ, 1 / jnp.where(differ, gap, 1), 0)
    dv = _ring.times(layout, rank, v, inverse.astype(m.dtype) * m, r.n)
    return (w, v, info), (dw, dv, NO_TANGENT)
