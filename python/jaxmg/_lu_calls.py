"""The FFI calls of the LU family as one device makes them, on its own block; see _calls."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ._calls import Shape, call
from ._layout import BACKENDS, Resolved
from ._operands import pad_rows


def getrf(r: Resolved, ctx: Array, a: Array, *, natural: bool) -> tuple[Array, Array, Array, Array]:
    """Factors. `a` is (rows, n); returns the factor (factor_rows, n), aux, pivots and info."""
    a = pad_rows(a, r.factor_rows)  # tiles that are dealt out may need more rows
    results = (
        Shape(a.shape, a.dtype),
        Shape((r.aux_count,), a.dtype),
        Shape((2 * r.n,), jnp.int32),
        Shape((8,), jnp.int32),
    )
    work, aux, pivots, info = call(
        "jaxmg_getrf",
        results,
        {1: 0},
        ctx,
        a,
        n=r.n,
        tile=r.tile,
        natural=int(natural),
        precision=r.precision,
        backend=BACKENDS[r.backend],
    )
    return work, aux, pivots, info


def gesv(
    r: Resolved, ctx: Array, a: Array, b: Array, *, replicated: bool
) -> tuple[Array, Array, Array, Array, Array]:
    """Solves and factors in one: x in the place of `b`, then what getrf returns."""
    a = pad_rows(a, r.factor_rows)
    results = (
        Shape(b.shape, b.dtype),
        Shape(a.shape, a.dtype),
        Shape((r.aux_count,), a.dtype),
        Shape((2 * r.n,), jnp.int32),
        Shape((8,), jnp.int32),
    )
    found: tuple[Array, Array, Array, Array, Array] = call(
        "jaxmg_gesv",
        results,
        {1: 1, 2: 0},
        ctx,
        a,
        b,
        n=r.n,
        tile=r.tile,
        natural=0,
        precision=r.precision,
        replicated=int(replicated),
    )
    return found


def getrs(
    r: Resolved, ctx: Array, *factor: Array, b: Array, replicated: bool, transpose: bool
) -> Array:
    """Solves with a factor. `b` is (n, k) on every rank, or (rows, k) if not `replicated`."""
    x: Array = call(
        "jaxmg_getrs",
        Shape(b.shape, b.dtype),
        {5: 0},
        ctx,
        *factor,
        b,
        n=r.n,
        tile=r.tile,
        replicated=int(replicated),
        transpose=int(transpose),
        backend=BACKENDS[r.backend],
    )
    return x


def getdet(r: Resolved, ctx: Array, work: Array, pivots: Array, info: Array) -> Any:
    """Sign (or phase) and logarithm of the absolute value of the determinant."""
    results = (Shape((), jnp.dtype(r.dtype)), Shape((), jnp.dtype(r.real_dtype)))
    return call("jaxmg_getdet", results, {}, ctx, work, pivots, info, n=r.n, tile=r.tile)


def getri(r: Resolved, ctx: Array, work: Array, pivots: Array, info: Array) -> Array:
    """The rows of A^-1, in the place of the factor."""
    x: Array = call(
        "jaxmg_getri",
        Shape(work.shape, work.dtype),
        {1: 0},
        ctx,
        work,
        pivots,
        info,
        n=r.n,
        tile=r.tile,
    )
    return x
