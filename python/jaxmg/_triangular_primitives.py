"""The primitives that work with triangular matrices, on global arrays.

A matrix is (padded_rows, n); a factor is as in _primitives.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from . import _calls, errors
from ._batching import batch_factor_operation, batch_solution
from ._layout import Layout, Resolved
from ._operands import pad_rows
from ._operation import REPLICATED, Operation, Specs, define, rows_spec, typed, vector_spec

# --- solution --------------------------------------------------------------------------------


def _trsm_one_device(r: Resolved, a: Array, b: Array, **params: Any) -> list[Array]:
    rows = b.shape[0]
    params["replicated"] = True
    (x,) = trsm_p.bind(a[: r.n], b[: r.n], r=r.on_one_rank, **params)
    return [pad_rows(x, rows)]


def _trsm_specs(layout: Layout, *, replicated: bool, **params: Any) -> tuple[Specs, Specs]:
    rhs = REPLICATED if replicated else rows_spec(layout)
    return (rows_spec(layout), rhs), (rhs,)


def _trsm_type(a: Any, b: Any, *, r: Resolved, replicated: bool, **params: Any) -> list[Any]:
    spec = REPLICATED if replicated else rows_spec(r.layout)
    return [typed(a, r.layout, b.shape, b.dtype, spec)]


trsm_p = define(
    "jaxmg_trsm",
    Operation(
        block=lambda r, ctx, a, b, **params: [_calls.trsm(r, ctx, a, b, **params)],
        one_device=_trsm_one_device,
        pad=lambda r, a, b, **params: [pad_rows(a, r.padded_rows), b],
        specs=_trsm_specs,
    ),
    _trsm_type,
    batch_solution,
)


# --- one half of a solution with a factor --------------------------------------------------
#
# The work buffer holds L^H in its upper triangle, in the order of elimination.


def _half_params(back: bool) -> dict[str, Any]:
    return {"upper": True, "transpose": 0 if back else 2, "unit": False}


def _unless_failed(info: Array, x: Array, made_on: int | None) -> Array:
    good = info[0] == 0
    if made_on is not None:
        good &= info[_calls.MADE_ON] == made_on
    return jnp.where(good, x, jnp.asarray(jnp.nan, x.dtype))


def _half_block(
    r: Resolved, ctx: Array, work: Array, info: Array, b: Array, *, back: bool, replicated: bool
) -> list[Array]:
    x = _calls.trsm(r, ctx, work, b, replicated=replicated, **_half_params(back))
    return [_unless_failed(info, x, 0 if r.exposed and r.layout.kind == "dist" else None)]


def _half_one_device(
    r: Resolved, work: Array, info: Array, b: Array, *, back: bool, replicated: bool
) -> list[Array]:
    (x,) = half_p.bind(work[: r.n], info, b[: r.n], r=r.on_one_rank, back=back, replicated=True)
    return [pad_rows(_unless_failed(info, x, 1), b.shape[0])]


def _half_specs(layout: Layout, *, replicated: bool, back: bool) -> tuple[Specs, Specs]:
    rhs = REPLICATED if replicated else rows_spec(layout)
    return (rows_spec(layout), REPLICATED, rhs), (rhs,)


# L y = b, or L^H y = b if `back`; y has the numbering of the user's rows.
half_p = define(
    "jaxmg_half",
    Operation(
        block=_half_block,
        one_device=_half_one_device,
        pad=lambda r, *arrays, **params: arrays,
        specs=_half_specs,
    ),
    lambda work, info, b, *, r, back, replicated: _trsm_type(work, b, r=r, replicated=replicated),
    batch_solution,
)


# --- the triangle of a factor in natural order ----------------------------------------------


def _own_triangle(first: Any, a: Array, info: Array, upper: bool) -> Array:
    """`a`, whose row 0 is row `first` of a matrix, without the other triangle; NaN on failure."""
    rows = first + lax.broadcasted_iota(jnp.int32, a.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, a.shape, 1)
    inside = rows <= columns if upper else (rows >= columns) & (rows < a.shape[1])
    kept = jnp.where(inside, a, jnp.zeros_like(a))
    return _calls.unless_failed(info, kept)


def _triangle_block(
    r: Resolved, ctx: Array, work: Array, info: Array, *, upper: bool
) -> list[Array]:
    # Rows of the work buffer are rows of L^H.
    if not upper:
        work = _calls.mirror(r, ctx, work, upper=True)
    return [_own_triangle(ctx[0] * work.shape[0], work, info, upper)]


def _triangle_one_device(r: Resolved, work: Array, info: Array, *, upper: bool) -> list[Array]:
    (x,) = triangle_p.bind(work[: r.n], info, r=r.on_one_rank, upper=upper)
    return [pad_rows(x, work.shape[0])]


triangle_p = define(
    "jaxmg_triangle",
    Operation(
        block=_triangle_block,
        one_device=_triangle_one_device,
        pad=lambda r, *arrays, upper: arrays,
        specs=lambda layout, upper: ((rows_spec(layout), REPLICATED), (rows_spec(layout),)),
    ),
    lambda work, info, *, r, upper: [
        typed(work, r.layout, work.shape, work.dtype, rows_spec(r.layout))
    ],
    batch_factor_operation,
)


# --- update of a factor ---------------------------------------------------------------------


def _marked(info: Array, mismatch: Array) -> Array:
    failed = info.at[0].set(errors.MISMATCHED_CALLS)
    return jnp.where(mismatch, failed, info)


def _update_block(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array, v: Array, *, downdate: bool
) -> list[Array]:
    if r.exposed and r.layout.kind == "dist":
        info = _marked(info, info[_calls.MADE_ON] != 0)
    return list(_calls.cholupdate(r, ctx, work, aux, info, v, downdate=downdate))


def _update_one_device(
    r: Resolved, work: Array, aux: Array, info: Array, v: Array, *, downdate: bool
) -> list[Array]:
    info = _marked(info, info[_calls.MADE_ON] != 1)
    one = r.on_one_rank
    short = work[: r.n], aux[: one.aux_count], info, v
    new, new_aux, info = cholupdate_p.bind(*short, r=one, downdate=downdate)
    return [pad_rows(new, work.shape[0]), pad_rows(new_aux, aux.shape[0]), info]


def _update_specs(layout: Layout, *, downdate: bool) -> tuple[Specs, Specs]:
    factor = (rows_spec(layout), vector_spec(layout), REPLICATED)
    return (*factor, REPLICATED), factor


cholupdate_p = define(
    "jaxmg_cholupdate",
    Operation(
        block=_update_block,
        one_device=_update_one_device,
        pad=lambda r, *arrays, downdate: arrays,
        specs=_update_specs,
        makes_factor=True,
    ),
    lambda work, aux, info, v, *, r, downdate: [
        x.update(weak_type=False) for x in (work, aux, info)
    ],
    batch_factor_operation,
)


# --- update of a triangle in natural order ----------------------------------------------------


def _update_triangle_block(
    r: Resolved, ctx: Array, a: Array, v: Array, *, upper: bool, downdate: bool
) -> list[Array]:
    work = a if upper else _calls.mirror(r, ctx, a, upper=False)
    aux, info = jnp.zeros((r.aux_count,), a.dtype), jnp.zeros((8,), jnp.int32)
    work, _, info = _calls.cholupdate(r, ctx, work, aux, info, v, downdate=downdate)
    return [*_triangle_block(r, ctx, work, info, upper=upper), info]


def _update_triangle_one_device(
    r: Resolved, a: Array, v: Array, *, upper: bool, downdate: bool
) -> list[Array]:
    x, info = update_triangle_p.bind(a[: r.n], v, r=r.on_one_rank, upper=upper, downdate=downdate)
    return [pad_rows(x, r.padded_rows), info]


update_triangle_p = define(
    "jaxmg_update_triangle",
    Operation(
        block=_update_triangle_block,
        one_device=_update_triangle_one_device,
        pad=lambda r, a, v, **params: [pad_rows(a, r.padded_rows), v],
        specs=lambda layout, **params: (
            (rows_spec(layout), REPLICATED),
            (rows_spec(layout), REPLICATED),
        ),
    ),
    lambda a, v, *, r, upper, downdate: [
        typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows_spec(r.layout)),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ],
    batch_factor_operation,
)
