"""The FFI calls of the QR family as one device makes them, on its own block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ._calls import call
from ._qr_layout import QrLayout

Shape = jax.ShapeDtypeStruct
_INFO = Shape((8,), jnp.int32)


def geqrf(r: QrLayout, ctx: Array, a: Array) -> list[Array]:
    """Factors. `a` is (rows, n); returns the factor in its place, aux and info."""
    results = (Shape(a.shape, a.dtype), Shape((r.aux_count,), a.dtype), _INFO)
    return list(call("jaxmg_geqrf", results, {1: 0}, ctx, a, n=r.m, tile=r.tile))


def orgqr(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, *, columns: int
) -> list[Array]:
    """The first columns of Q, in the place of the factor if they are as many, and R."""
    results = (Shape((r.rows, columns), work.dtype), Shape((r.per, r.n), work.dtype))
    aliases = {1: 0} if columns == r.n else {}
    return list(call("jaxmg_orgqr", results, aliases, ctx, work, aux, info, n=r.m, tile=r.tile))


def qr_r(r: QrLayout, ctx: Array, work: Array, info: Array) -> list[Array]:
    """R alone."""
    result = Shape((r.per, r.n), work.dtype)
    return [call("jaxmg_qr_r", result, {}, ctx, work, info, n=r.m, tile=r.tile)]


def ormqr(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, c: Array, *, adjoint: bool
) -> list[Array]:
    """Q^H c for the rows of c that go with those of A, or Q c for those that go with R's."""
    result = Shape((r.per if adjoint else r.rows, c.shape[1]), c.dtype)
    out = call(
        "jaxmg_ormqr",
        result,
        {},
        ctx,
        work,
        aux,
        info,
        c,
        n=r.m,
        tile=r.tile,
        adjoint=int(adjoint),
    )
    return [out]


def geqrs(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, b: Array, *, adjoint: bool
) -> list[Array]:
    """A^+ b, whole on every rank, or the rows of (A^+)^H b for a whole b; and info."""
    result = Shape((r.rows if adjoint else r.n, b.shape[1]), b.dtype)
    return list(
        call(
            "jaxmg_geqrs",
            (result, _INFO),
            {},
            ctx,
            work,
            aux,
            info,
            b,
            n=r.m,
            tile=r.tile,
            adjoint=int(adjoint),
        )
    )
