"""The primitives of the QR family, on global arrays.

A factor is three arrays: `work` (padded_rows, n), `aux` (ranks * aux_count,), `info` int32[8].
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from . import _calls, _library, _qr_calls, errors
from ._batching import batch_factor_operation, batch_rhs_operation
from ._operands import pad_rows
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
from ._qr_layout import QrLayout


def _made_here(r: QrLayout, info: Array, made_on: int) -> Array:
    """`info`, or a failure if the factor was made with another number of ranks than it is used."""
    failed = info.at[0].set(errors.MISMATCHED_CALLS)
    return jnp.where(info[_calls.MADE_ON] == made_on, info, failed)


def _checked(r: QrLayout, info: Array) -> Array:
    return _made_here(r, info, 0) if r.exposed and r.layout.kind == "dist" else info


def _one_device_factor(
    r: QrLayout, work: Array, aux: Array, info: Array
) -> tuple[Array, Array, Array]:
    return work[: r.m], aux[: r.on_one_rank.aux_count], _made_here(r, info, 1)


# --- factorisation ---------------------------------------------------------------------------


def _factor_types(a: Any, *, r: QrLayout) -> list[Any]:
    rows, vector = factor_specs(a, r)
    return [
        typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows),
        typed(a, r.layout, (r.aux_count * r.layout.ranks,), a.dtype, vector),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _geqrf_one_device(r: QrLayout, a: Array) -> list[Array]:
    """A factor made on one device in the shapes of the layout, marked as such."""
    work, aux, info = geqrf_p.bind(a[: r.m], r=r.on_one_rank)
    return [
        pad_rows(work, r.padded_rows),
        pad_rows(aux, r.aux_count * r.layout.ranks),
        info.at[_calls.MADE_ON].set(1),
    ]


geqrf_p = define(
    "jaxmg_geqrf",
    Operation(
        block=_qr_calls.geqrf,
        library=_library.geqrf,
        makes_factor=True,
        one_device=_geqrf_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            (rows_spec(layout), vector_spec(layout), REPLICATED),
        ),
    ),
    _factor_types,
    batch_factor_operation,
)


# --- Q and R in full -------------------------------------------------------------------------


def _orgqr_block(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, *, columns: int
) -> list[Array]:
    return _qr_calls.orgqr(r, ctx, work, aux, _checked(r, info), columns=columns)


def _orgqr_one_device(
    r: QrLayout, work: Array, aux: Array, info: Array, *, columns: int
) -> list[Array]:
    factor = _one_device_factor(r, work, aux, info)
    q, t = orgqr_p.bind(*factor, r=r.on_one_rank, columns=columns)
    return [pad_rows(q, r.padded_rows), pad_rows(t, r.padded_rank)]


def _orgqr_types(work: Any, aux: Any, info: Any, *, r: QrLayout, columns: int) -> list[Any]:
    rows = rows_spec(r.layout)
    return [
        typed(work, r.layout, (r.padded_rows, columns), work.dtype, rows),
        typed(work, r.layout, (r.padded_rank, r.n), work.dtype, rows),
    ]


orgqr_p = define(
    "jaxmg_orgqr",
    Operation(
        block=_orgqr_block,
        library=_library.orgqr,
        one_device=_orgqr_one_device,
        pad=lambda r, *arrays, columns: arrays,
        specs=lambda layout, columns: (
            (rows_spec(layout), vector_spec(layout), REPLICATED),
            (rows_spec(layout), rows_spec(layout)),
        ),
    ),
    _orgqr_types,
    batch_factor_operation,
)


def _qr_r_block(r: QrLayout, ctx: Array, work: Array, info: Array) -> list[Array]:
    return _qr_calls.qr_r(r, ctx, work, _checked(r, info))


def _qr_r_one_device(r: QrLayout, work: Array, info: Array) -> list[Array]:
    (t,) = qr_r_p.bind(work[: r.m], _made_here(r, info, 1), r=r.on_one_rank)
    return [pad_rows(t, r.padded_rank)]


qr_r_p = define(
    "jaxmg_qr_r",
    Operation(
        block=_qr_r_block,
        one_device=_qr_r_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: ((rows_spec(layout), REPLICATED), (rows_spec(layout),)),
    ),
    lambda work, info, *, r: [
        typed(work, r.layout, (r.padded_rank, r.n), work.dtype, rows_spec(r.layout))
    ],
    batch_factor_operation,
)


# --- products with Q -------------------------------------------------------------------------


def _ormqr_block(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, c: Array, *, adjoint: bool
) -> list[Array]:
    return _qr_calls.ormqr(r, ctx, work, aux, _checked(r, info), c, adjoint=adjoint)


def _ormqr_one_device(
    r: QrLayout, work: Array, aux: Array, info: Array, c: Array, *, adjoint: bool
) -> list[Array]:
    factor = _one_device_factor(r, work, aux, info)
    c = c[: r.m if adjoint else r.rank]
    (out,) = ormqr_p.bind(*factor, c, r=r.on_one_rank, adjoint=adjoint)
    return [pad_rows(out, r.padded_rank if adjoint else r.padded_rows)]


def _ormqr_types(
    work: Any, aux: Any, info: Any, c: Any, *, r: QrLayout, adjoint: bool
) -> list[Any]:
    rows = r.padded_rank if adjoint else r.padded_rows
    return [typed(work, r.layout, (rows, c.shape[1]), c.dtype, rows_spec(r.layout))]


def _rhs_specs(layout: Any, *, adjoint: bool) -> tuple[Specs, Specs]:
    rows = rows_spec(layout)
    return (rows, vector_spec(layout), REPLICATED, rows), (rows,)


ormqr_p = define(
    "jaxmg_ormqr",
    Operation(
        block=_ormqr_block,
        one_device=_ormqr_one_device,
        pad=lambda r, work, aux, info, c, adjoint: [
            work,
            aux,
            info,
            pad_rows(c, r.padded_rows if adjoint else r.padded_rank),
        ],
        specs=_rhs_specs,
    ),
    _ormqr_types,
    batch_rhs_operation,
)


# --- least squares and minimum norm ----------------------------------------------------------


def _geqrs_block(
    r: QrLayout, ctx: Array, work: Array, aux: Array, info: Array, b: Array, *, adjoint: bool
) -> list[Array]:
    return _qr_calls.geqrs(r, ctx, work, aux, _checked(r, info), b, adjoint=adjoint)


def _geqrs_one_device(
    r: QrLayout, work: Array, aux: Array, info: Array, b: Array, *, adjoint: bool
) -> list[Array]:
    factor = _one_device_factor(r, work, aux, info)
    x, report = geqrs_p.bind(
        *factor, b[: r.n if adjoint else r.m], r=r.on_one_rank, adjoint=adjoint
    )
    return [pad_rows(x, r.padded_rows) if adjoint else x, report]


def _geqrs_types(
    work: Any, aux: Any, info: Any, b: Any, *, r: QrLayout, adjoint: bool
) -> list[Any]:
    rows = r.padded_rows if adjoint else r.n
    spec = rows_spec(r.layout) if adjoint else REPLICATED
    return [
        typed(work, r.layout, (rows, b.shape[1]), b.dtype, spec),
        typed(work, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _geqrs_specs(layout: Any, *, adjoint: bool) -> tuple[Specs, Specs]:
    rows = rows_spec(layout)
    given, result = (REPLICATED, rows) if adjoint else (rows, REPLICATED)
    return (rows, vector_spec(layout), REPLICATED, given), (result, REPLICATED)


geqrs_p = define(
    "jaxmg_geqrs",
    Operation(
        block=_geqrs_block,
        one_device=_geqrs_one_device,
        pad=lambda r, work, aux, info, b, adjoint: [
            work,
            aux,
            info,
            b if adjoint else pad_rows(b, r.padded_rows),
        ],
        specs=_geqrs_specs,
    ),
    _geqrs_types,
    batch_rhs_operation,
)


# --- least squares without a factor that is kept ---------------------------------------------


def _gels_one_device(r: QrLayout, a: Array, b: Array) -> list[Array]:
    return list(gels_p.bind(a[: r.m], b[: r.m], r=r.on_one_rank))


gels_p = define(
    "jaxmg_gels",
    Operation(
        block=_qr_calls.least_squares,
        one_device=_gels_one_device,
        pad=lambda r, a, b: [pad_rows(a, r.padded_rows), pad_rows(b, r.padded_rows)],
        specs=lambda layout: ((rows_spec(layout),) * 2, (REPLICATED, REPLICATED)),
    ),
    lambda a, b, *, r: [
        typed(a, r.layout, (r.n, b.shape[1]), a.dtype, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ],
    batch_rhs_operation,
)
