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

from . import _calls, _mixed_solve
from ._batching import batch_factor_operation, batch_solution
from ._cholesky import linear_solve
from ._layout import Layout, Resolved
from ._local_rows import LocalRows
from ._operands import gathered, on_all_devices, pad_rows
from ._operation import REPLICATED, Operation, Specs, define, rows_spec, typed

_THIN = 4  # parts of a factor after work and aux


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
    return [
        *_mixed_solve.factor_types(a, r),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (2,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _factor_one_device(r: Resolved, a: Array) -> list[Array]:
    a = gathered(r.layout, a)[: r.n]
    one = dataclasses.replace(r.on_one_rank, exposed=r.exposed)
    return [*_mixed_solve.widened(r, MixedFactor(*mixed_factor_p.bind(a, r=one)))]


mixed_factor_p = define(
    "jaxmg_mixed_factor",
    Operation(
        block=_factor_block,
        one_device=_factor_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            _mixed_solve.factor_operand_specs(layout, _THIN),
        ),
        makes_factor=True,
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


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
    d = f.scale[:, None]
    scaled = _mixed_solve.Scaled(d, d, f.norms[0], f.norms[1])
    equations = _mixed_solve.system(
        r,
        scaled,
        rows.product,
        lambda low: _calls.potrs(r.low, ctx, f.work, f.aux, f.info, low, replicated=True),
        hermitian=True,
        agree=rows.agree,
    )
    return _mixed_solve.solve_block(
        equations,
        scaled,
        rows,
        f.info,
        a,
        b,
        lambda a, b: _natively(r, ctx, a, b, locate),
        replicated=replicated,
        consume=consume,
    )


def _solve_one_device(r: Resolved, *arrays: Array, **params: bool) -> list[Array]:
    return _mixed_solve.solve_one_device(mixed_solve_p.bind, MixedFactor, r, *arrays, **params)


def _solve_specs(
    layout: Layout, *, replicated: bool, locate: bool, consume: bool
) -> tuple[Specs, Specs]:
    return _mixed_solve.solution_specs(layout, _THIN, replicated=replicated, consume=consume)


mixed_solve_p = define(
    "jaxmg_mixed_solve",
    Operation(
        block=_solve_block,
        one_device=_solve_one_device,
        pad=lambda r, a, *arrays, **_: [pad_rows(a, r.padded_rows), *arrays],
        specs=_solve_specs,
    ),
    _mixed_solve.solution_types,
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
