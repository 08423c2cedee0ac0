"""The FFI calls of the QR family as one device makes them, on its own block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from ._calls import call
from ._qr_layout import QrLayout

Shape = jax.ShapeDtypeStruct
_INFO = Shape((8,), jnp.int32)


def geqrf(r: QrLayout, ctx: Array, a: Array, *, in_place: bool = True) -> list[Array]:
    """Factors. `a` is (rows, n); returns the factor, in its place or in a copy, aux and info."""
    results = (Shape(a.shape, a.dtype), Shape((r.aux_count,), a.dtype), _INFO)
    aliases = {1: 0} if in_place else {}
    return list(call("jaxmg_geqrf", results, aliases, ctx, a, n=r.m, tile=r.tile))


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


def gels(r: QrLayout, ctx: Array, a: Array, b: Array) -> list[Array]:
    """A^+ b by a Gram matrix, whole on every rank, and info, which says if that is no use."""
    results = (Shape((r.n, b.shape[1]), b.dtype), _INFO)
    return list(call("jaxmg_gels", results, {}, ctx, a, b, n=r.m, tile=r.tile))


def least_squares(r: QrLayout, ctx: Array, a: Array, b: Array) -> list[Array]:
    """A^+ b, whole on every rank, and info: by a Gram matrix, or else by a QR factorisation."""

    def by_qr(x: Array, info: Array, a: Array, b: Array) -> list[Array]:
        del x
        # In place, XLA would copy the matrix outside of the condition, in any case.
        work, aux, info = geqrf(r, ctx, a, in_place=False)
        return geqrs(r, ctx, work, aux, info, b, adjoint=False)

    def as_it_is(x: Array, info: Array, a: Array, b: Array) -> list[Array]:
        del a, b
        return [x, info]

    x, info = gels(r, ctx, a, b)
    # All ranks have the same info.
    out: list[Array] = lax.cond(info[0] != 0, by_qr, as_it_is, x, info, a, b)
    return out


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
