"""The primitives of the LU family, on global arrays.

A factor is four arrays: `work` (ranks * factor_rows, n), `aux` (ranks * aux_count,), `pivots`
int32[2 n], equal on all devices, and `info` int32[8].
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from . import _calls, _library, _lu_calls
from ._batching import batch_factor_operation, batch_solution
from ._layout import Layout, Resolved
from ._operands import pad_rows
from ._operation import REPLICATED, Operation, Specs, define, rows_spec, typed, vector_spec
from ._primitives import factor_specs, made_on_these, mismatch_to_nan, one_device_factor

# --- factorisation ---------------------------------------------------------------------------


def _factor_types(a: Any, *, r: Resolved, natural: bool) -> list[Any]:
    rows, vector = factor_specs(a, r)
    return [
        typed(a, r.layout, (r.factor_rows * r.layout.ranks, r.n), a.dtype, rows),
        typed(a, r.layout, (r.aux_count * r.layout.ranks,), a.dtype, vector),
        typed(a, r.layout, (2 * r.n,), jnp.int32, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _getrf_one_device(r: Resolved, a: Array, *, natural: bool) -> list[Array]:
    """A factor made on one device in the shapes of the layout, marked as such."""
    work, aux, pivots, info = getrf_p.bind(a[: r.n], r=r.on_one_rank, natural=natural)
    return [
        pad_rows(work, r.factor_rows * r.layout.ranks),
        pad_rows(aux, r.aux_count * r.layout.ranks),
        pivots,
        info.at[_calls.MADE_ON].set(1),
    ]


getrf_p = define(
    "jaxmg_getrf",
    Operation(
        block=_lu_calls.getrf,
        library=_library.getrf,
        one_device=_getrf_one_device,
        pad=lambda r, a, natural: [pad_rows(a, r.padded_rows)],
        specs=lambda layout, natural: (
            (rows_spec(layout),),
            (rows_spec(layout), vector_spec(layout), REPLICATED, REPLICATED),
        ),
        makes_factor=True,
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


def _solution_type(
    work: Any,
    aux: Any,
    pivots: Any,
    info: Any,
    b: Any,
    *,
    r: Resolved,
    replicated: bool,
    transpose: bool,
) -> list[Any]:
    spec = REPLICATED if replicated else rows_spec(r.layout)
    return [typed(work, r.layout, b.shape, b.dtype, spec)]


def _getrs_block(r: Resolved, ctx: Array, *operands: Array, **params: bool) -> list[Array]:
    *factor, b = operands
    b = made_on_these(r, factor[3], b)
    return [_lu_calls.getrs(r, ctx, *factor, b=b, **params)]


def _getrs_one_device(
    r: Resolved,
    work: Array,
    aux: Array,
    pivots: Array,
    info: Array,
    b: Array,
    *,
    replicated: bool,
    transpose: bool,
) -> list[Array]:
    rows = b.shape[0]
    b = mismatch_to_nan(r, info, b[: r.n], 1)
    work, aux = one_device_factor(r, work, aux)
    (x,) = getrs_p.bind(
        work, aux, pivots, info, b, r=r.on_one_rank, replicated=True, transpose=transpose
    )
    return [pad_rows(x, rows)]


def _getrs_specs(layout: Layout, *, replicated: bool, transpose: bool) -> tuple[Specs, Specs]:
    rhs = REPLICATED if replicated else rows_spec(layout)
    return (rows_spec(layout), vector_spec(layout), REPLICATED, REPLICATED, rhs), (rhs,)


getrs_p = define(
    "jaxmg_getrs",
    Operation(
        block=_getrs_block,
        library=_library.getrs,
        one_device=_getrs_one_device,
        pad=lambda r, *arrays, **params: arrays,
        specs=_getrs_specs,
    ),
    _solution_type,
    batch_solution,
)


# --- factorisation and solution in one -------------------------------------------------------


def _gesv_types(a: Any, b: Any, *, r: Resolved, replicated: bool) -> list[Any]:
    spec = REPLICATED if replicated else rows_spec(r.layout)
    return [typed(a, r.layout, b.shape, b.dtype, spec), *_factor_types(a, r=r, natural=False)]


def _gesv_one_device(r: Resolved, a: Array, b: Array, *, replicated: bool) -> list[Array]:
    """Nobody waits for messages there: the two calls are as fast."""
    work, aux, pivots, info = _getrf_one_device(r, a, natural=False)
    (x,) = _getrs_one_device(r, work, aux, pivots, info, b, replicated=replicated, transpose=False)
    return [x, work, aux, pivots, info]


gesv_p = define(
    "jaxmg_gesv",
    Operation(
        block=_lu_calls.gesv,
        one_device=_gesv_one_device,
        pad=lambda r, a, b, replicated: [pad_rows(a, r.padded_rows), b],
        specs=lambda layout, replicated: (
            (rows_spec(layout), REPLICATED if replicated else rows_spec(layout)),
            (
                REPLICATED if replicated else rows_spec(layout),
                rows_spec(layout),
                vector_spec(layout),
                REPLICATED,
                REPLICATED,
            ),
        ),
    ),
    _gesv_types,
    batch_solution,
)


# --- determinant -----------------------------------------------------------------------------


def _getdet_block(r: Resolved, ctx: Array, work: Array, pivots: Array, info: Array) -> list[Array]:
    results = _lu_calls.getdet(r, ctx, work, pivots, info)
    return [made_on_these(r, info, x) for x in results]


def _getdet_one_device(r: Resolved, work: Array, pivots: Array, info: Array) -> list[Array]:
    results = getdet_p.bind(work[: r.n], pivots, info, r=r.on_one_rank)
    return [mismatch_to_nan(r, info, x, 1) for x in results]


getdet_p = define(
    "jaxmg_getdet",
    Operation(
        block=_getdet_block,
        one_device=_getdet_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: (
            (rows_spec(layout), REPLICATED, REPLICATED),
            (REPLICATED, REPLICATED),
        ),
    ),
    lambda work, pivots, info, *, r: [
        typed(work, r.layout, (), work.dtype, REPLICATED),
        typed(work, r.layout, (), r.real_dtype, REPLICATED),
    ],
    batch_factor_operation,
)


# --- inverse ---------------------------------------------------------------------------------


def _getri_block(r: Resolved, ctx: Array, work: Array, pivots: Array, info: Array) -> list[Array]:
    return [made_on_these(r, info, _lu_calls.getri(r, ctx, work, pivots, info))]


def _getri_one_device(r: Resolved, work: Array, pivots: Array, info: Array) -> list[Array]:
    (x,) = getri_p.bind(work[: r.n], pivots, info, r=r.on_one_rank)
    return [pad_rows(mismatch_to_nan(r, info, x, 1), r.padded_rows)]


getri_p = define(
    "jaxmg_getri",
    Operation(
        block=_getri_block,
        one_device=_getri_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: (
            (rows_spec(layout), REPLICATED, REPLICATED),
            (rows_spec(layout),),
        ),
    ),
    lambda work, pivots, info, *, r: [
        typed(work, r.layout, (r.padded_rows, r.n), work.dtype, rows_spec(r.layout))
    ],
    batch_factor_operation,
)
