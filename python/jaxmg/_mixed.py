"""Solutions of float64 (complex128) accuracy from a float32 (complex64) Cholesky factor.

    factor   D A D ~ L L^H in low precision, D powers of two that make the diagonal about 1
    solve    refinement of D A D y = D b, x = D y, with A in high precision (_refinement)
    else     the high-precision factor of A, so that every outcome, failures included, is that of
             the ordinary solve

The scaling is exact, and makes every element of a positive definite matrix at most about 1: A may
have elements that are far outside of the range of float32. The product A x is taken by each device
with its own rows; only thin arrays travel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from . import _calls, _refinement
from ._batching import batch_factor_operation, batch_solution
from ._cholesky import linear_solve
from ._layout import Layout, Resolved
from ._local_rows import LocalRows
from ._operands import gathered, on_all_devices, pad_rows
from ._operation import (
    REPLICATED,
    Operation,
    Specs,
    define,
    factor_specs,
    rows_spec,
    typed,
    vector_spec,
)

# Elements of `info` after a mixed-precision solve; see core/status.h.
ITERATIONS, PATH = 4, 5
# What ITERATIONS says if the fall-back was needed, as LAPACK's ITER.
FACTOR_FAILED, NOT_CONVERGED = -3, -31


class MixedFactor(NamedTuple):
    """A low-precision factor, and what belongs to the scaling.

    Attributes:
        work, aux, info: the factor of D A D, as of _primitives.
        scale: (n,), the diagonal of D.
        norms: (2,), the inf-norms of A and of D A D.
        verdict: `info` of the factorisation of A itself, if the user gets to see the factor: that
            in low precision may fail where the other one would not.
    """

    work: Array
    aux: Array
    info: Array
    scale: Array
    norms: Array
    verdict: Array


# --- factorisation ---------------------------------------------------------------------------


def _power_of_two(x: Array) -> Array:
    """2^-round(log2(x) / 2) for positive finite x, else 1."""
    good = jnp.isfinite(x) & (x > 0)
    _, exponent = jnp.frexp(jnp.where(good, x, 1))
    return jnp.where(good, jnp.ldexp(jnp.ones_like(x), -((exponent + 1) // 2)), 1)


def _factor_block(r: Resolved, ctx: Array, a: Array) -> tuple[Array, ...]:
    rows = LocalRows(r, a)
    mine = _power_of_two(jnp.real(rows.diagonal()))
    scale = rows.whole(mine)
    low = (mine[:, None] * a * scale).astype(r.low.dtype)
    work, aux, info = _calls.potrf(r.low, ctx, low)
    sums = rows.absolute_product(jnp.stack([jnp.ones_like(scale), scale], axis=1))
    norms = jnp.stack([jnp.max(sums[:, 0]), jnp.max(scale * sums[:, 1])])
    verdict = info
    if r.exposed:
        verdict = lax.cond(
            info[0] == 0, lambda a: jnp.zeros_like(info), lambda a: _verdict(r, ctx, a), a
        )
    return work, aux, info, scale, norms, verdict


def _verdict(r: Resolved, ctx: Array, a: Array) -> Array:
    info: Array = _calls.locate(r, ctx, *_calls.potrf(r, ctx, a))[1]
    return info


def _factor_types(a: Any, *, r: Resolved) -> list[Any]:
    rows, vector = factor_specs(a, r)
    low = r.low
    return [
        typed(a, r.layout, (r.padded_rows, r.n), low.dtype, rows),
        typed(a, r.layout, (low.aux_count * r.layout.ranks,), low.dtype, vector),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (2,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _factor_one_device(r: Resolved, a: Array) -> list[Array]:
    a = gathered(r.layout, a)[: r.n]
    one = dataclasses.replace(r.on_one_rank, exposed=r.exposed)
    f = MixedFactor(*mixed_factor_p.bind(a, r=one))
    work, aux = pad_rows(f.work, r.padded_rows), pad_rows(f.aux, r.low.aux_count * r.layout.ranks)
    return [*f._replace(work=work, aux=aux, info=f.info.at[_calls.MADE_ON].set(1))]


mixed_factor_p = define(
    "jaxmg_mixed_factor",
    Operation(
        block=_factor_block,
        one_device=_factor_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            (rows_spec(layout), vector_spec(layout), *(REPLICATED,) * 4),
        ),
        makes_factor=True,
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


def _over(above: Array, below: Array) -> Array:
    """above / below, with 0 / 0 = 0."""
    return jnp.where(above == 0, 0, above / below)


def _system(r: Resolved, ctx: Array, rows: LocalRows, f: MixedFactor) -> _refinement.System:
    """D A D y = D b, and how far a y is from being a backward stable solution.

    In inf-norms, with eps that of the high precision, all of the following must be at most 1:

        || b - A x ||     / (sqrt(n) eps || A || || x ||)            as xSPOSV
        || D (b - A x) || / (sqrt(n) eps || D A D || || D^-1 x ||)   as holds for a Cholesky factor
    """
    d = f.scale[:, None]
    goal = float(jnp.finfo(r.dtype).eps) * max(1, r.n) ** 0.5

    def product(y: Array) -> Array:
        return d * rows.product(d * y)

    def precondition(residual: Array) -> Array:
        size = jnp.max(jnp.abs(residual), axis=0)
        size = jnp.where(jnp.isfinite(size) & (size > 0), size, jnp.ones_like(size))
        low = (residual / size).astype(r.low.dtype)
        low = _calls.potrs(r.low, ctx, f.work, f.aux, f.info, low, replicated=True)
        return size * low.astype(residual.dtype)

    def error(y: Array, residual: Array) -> Array:
        def largest(v: Array) -> Array:
            return jnp.max(jnp.abs(v), axis=0)

        plain = _over(largest(residual / d), goal * f.norms[0] * largest(d * y))
        scaled = _over(largest(residual), goal * f.norms[1] * largest(y))
        return jnp.maximum(plain, scaled)

    return _refinement.System(product, precondition, error, hermitian=True, agree=rows.agree)


def _natively(
    r: Resolved, ctx: Array, a: Array, b: Array, locate: bool
) -> tuple[Array, Array, Array]:
    """x, info and what A became, by the factor in high precision."""
    work, aux, info = _calls.potrf(r, ctx, a)
    if locate:
        work, info = _calls.locate(r, ctx, work, aux, info)
    return _calls.potrs(r, ctx, work, aux, info, b, replicated=True), info, work


def _solve_block(
    r: Resolved,
    ctx: Array,
    a: Array,
    *arrays: Array,
    replicated: bool,
    locate: bool,
    consume: bool,
) -> list[Array]:
    *parts, b = arrays
    f, rows = MixedFactor(*parts), LocalRows(r, a)
    whole = b if replicated else rows.whole(b)
    # Columns of b about 1, by powers of two.
    _, exponent = jnp.frexp(jnp.max(jnp.abs(f.scale[:, None] * whole), axis=0))
    usable = (f.info[0] == 0) & (f.info[_calls.MADE_ON] == 0)
    unit = jnp.ldexp(jnp.ones((whole.shape[1],), r.real_dtype), exponent)
    unit = jnp.where(jnp.isfinite(unit) & (unit > 0), unit, 1)
    found = _refinement.refine(_system(r, ctx, rows, f), f.scale[:, None] * whole / unit, usable)

    def success(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        info = jnp.zeros_like(f.info).at[ITERATIONS].set(found.iterations)
        x = unit * (f.scale[:, None] * found.x)
        return [x, info.at[PATH].set(found.path), *operands[:consume]]

    def fall_back(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        a, b = operands
        if not consume:
            # By a choice that is always the same a copy is made here, where it may take the place
            # of the low-precision factor. XLA's own would be made before anything is refined.
            a = jnp.where(found.iterations >= 0, a, jnp.zeros((), r.dtype))
        x, info, work = _natively(r, ctx, a, b, locate)
        why = jnp.where(usable, NOT_CONVERGED, FACTOR_FAILED)
        info = info.at[ITERATIONS].set(why).at[PATH].set(_refinement.NATIVE)
        return [x, info, *[work][:consume]]

    x, *rest = _refinement.with_fall_back(found, success, fall_back, (a, whole))
    return [x if replicated else rows.own(x), *rest]


def _solve_types(
    a: Any, *arrays: Any, r: Resolved, replicated: bool, locate: bool, consume: bool
) -> list[Any]:
    b = arrays[-1]
    spec = REPLICATED if replicated else rows_spec(r.layout)
    matrix = typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows_spec(r.layout))
    return [
        typed(a, r.layout, b.shape, b.dtype, spec),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        *[matrix][:consume],
    ]


def _solve_one_device(
    r: Resolved, a: Array, *arrays: Array, replicated: bool, locate: bool, consume: bool
) -> list[Array]:
    a, *parts, b = (gathered(r.layout, x) for x in (a, *arrays))
    f, one = MixedFactor(*parts), r.on_one_rank
    f = f._replace(
        work=f.work[: r.n],
        aux=f.aux[: one.low.aux_count],
        info=f.info.at[_calls.MADE_ON].set(1 - f.info[_calls.MADE_ON]),
    )
    x, info, *work = mixed_solve_p.bind(
        a[: r.n], *f, b[: r.n], r=one, replicated=True, locate=locate, consume=consume
    )
    return [pad_rows(x, b.shape[0]), info, *[pad_rows(x, r.padded_rows) for x in work]]


def _solve_specs(
    layout: Layout, *, replicated: bool, locate: bool, consume: bool
) -> tuple[Specs, Specs]:
    rows = rows_spec(layout)
    rhs = REPLICATED if replicated else rows
    factor = (rows, vector_spec(layout), *(REPLICATED,) * 4)
    return (rows, *factor, rhs), (rhs, REPLICATED, *(rows,) * consume)


mixed_solve_p = define(
    "jaxmg_mixed_solve",
    Operation(
        block=_solve_block,
        one_device=_solve_one_device,
        pad=lambda r, a, *arrays, **_: [pad_rows(a, r.padded_rows), *arrays],
        specs=_solve_specs,
    ),
    _solve_types,
    batch_solution,
)


def factor(r: Resolved, a: Array) -> MixedFactor:
    """The low-precision factor of a matrix without tangents."""
    f = MixedFactor(*mixed_factor_p.bind(a, r=r))
    return f._replace(info=on_all_devices(r.layout, f.info))


def solve(
    r: Resolved,
    a: Array,
    f: MixedFactor,
    b: Array,
    *,
    split: bool = False,
    locate: bool = False,
    consume: bool = False,
) -> tuple[Array, Array, Array | None]:
    """Solves A x = b for b of shape (n, k), k >= 1.

    Args:
        r, a, b, split: as of _cholesky.solve. Derivatives use the same factor.
        f: the factor of `a`.
        locate: whether to find the user's position of a failure.
        consume: whether to hand back what the buffer of A has become.

    Returns:
        x, `info` with ITERATIONS and PATH set, and the buffer or None.
    """
    stopped = lax.stop_gradient(a)
    f = MixedFactor(*(lax.stop_gradient(part) for part in f))

    def apply(rhs: Array, replicated: bool) -> tuple[Array, Any]:
        x, *more = mixed_solve_p.bind(
            stopped, *f, rhs, r=r, replicated=replicated, locate=locate, consume=consume
        )
        return x, more

    x, (info, *work) = linear_solve(r, a, b, apply, split)
    return x, on_all_devices(r.layout, info), work[0] if work else None
