"""The primitives of the Cholesky family and of block-cyclic storage, on global arrays.

A factor is three arrays: `work` (ranks * factor_rows, n), `aux` (ranks * aux_count,) and `info`
int32[8].
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _calls, _library
from ._batching import batch_factor_operation, batch_solution
from ._layout import Layout, Resolved
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

# --- factorisation ---------------------------------------------------------------------------


def factor_types(a: Any, *, r: Any) -> list[Any]:
    rows, vector = factor_specs(a, r)
    return [
        typed(a, r.layout, (r.factor_rows * r.layout.ranks, r.n), a.dtype, rows),
        typed(a, r.layout, (r.aux_count * r.layout.ranks,), a.dtype, vector),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def padded_factor(r: Any, work: Array, aux: Array, info: Array) -> list[Array]:
    """A factor made on one device in the shapes of the layout, marked as such."""
    return [
        pad_rows(work, r.factor_rows * r.layout.ranks),
        pad_rows(aux, r.aux_count * r.layout.ranks),
        info.at[_calls.MADE_ON].set(1),
    ]


def one_device_factor(r: Resolved, work: Array, aux: Array) -> tuple[Array, Array]:
    one = r.on_one_rank
    return work[: one.factor_rows], aux[: one.aux_count]


def _potrf_one_device(r: Resolved, a: Array) -> list[Array]:
    return padded_factor(r, *potrf_p.bind(a[: r.n], r=r.on_one_rank))


potrf_p = define(
    "jaxmg_potrf",
    Operation(
        block=_calls.potrf,
        library=_library.potrf,
        one_device=_potrf_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            (rows_spec(layout), vector_spec(layout), REPLICATED),
        ),
        makes_factor=True,
    ),
    factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


def _solution_type(
    work: Any, aux: Any, info: Any, b: Any, *, r: Resolved, replicated: bool
) -> list[Any]:
    spec = REPLICATED if replicated else rows_spec(r.layout)
    return [typed(work, r.layout, b.shape, b.dtype, spec)]


def mismatch_to_nan(r: Resolved, info: Array, b: Array, made_on: int) -> Array:
    """b, or NaN if the factor was made with another number of ranks than it is used with."""
    return jnp.where(info[_calls.MADE_ON] == made_on, b, jnp.asarray(jnp.nan, b.dtype))


def made_on_these(r: Resolved, info: Array, x: Array) -> Array:
    """On one of several ranks: x, or NaN if a factor that users hold was made on one rank."""
    if r.exposed and r.layout.kind == "dist":
        return mismatch_to_nan(r, info, x, 0)
    return x


def _potrs_block(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> list[Array]:
    b = made_on_these(r, info, b)
    return [_calls.potrs(r, ctx, work, aux, info, b, replicated=replicated)]


def _potrs_one_device(
    r: Resolved, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> list[Array]:
    rows = b.shape[0]
    b = mismatch_to_nan(r, info, b[: r.n], 1)
    work, aux = one_device_factor(r, work, aux)
    (x,) = potrs_p.bind(work, aux, info, b, r=r.on_one_rank, replicated=True)
    return [pad_rows(x, rows)]


def _potrs_specs(layout: Layout, *, replicated: bool) -> tuple[Specs, Specs]:
    rhs = REPLICATED if replicated else rows_spec(layout)
    return (rows_spec(layout), vector_spec(layout), REPLICATED, rhs), (rhs,)


potrs_p = define(
    "jaxmg_potrs",
    Operation(
        block=_potrs_block,
        library=_library.potrs,
        one_device=_potrs_one_device,
        pad=lambda r, *arrays, replicated: arrays,
        specs=_potrs_specs,
    ),
    _solution_type,
    batch_solution,
)


# --- factorisation and solution in one -------------------------------------------------------


def _posv_types(a: Any, b: Any, *, r: Resolved, replicated: bool) -> list[Any]:
    spec = REPLICATED if replicated else rows_spec(r.layout)
    return [typed(a, r.layout, b.shape, b.dtype, spec), *factor_types(a, r=r)]


def _posv_one_device(r: Resolved, a: Array, b: Array, *, replicated: bool) -> list[Array]:
    """Nobody waits for messages there: the two calls are as fast."""
    work, aux, info = _potrf_one_device(r, a)
    (x,) = _potrs_one_device(r, work, aux, info, b, replicated=replicated)
    return [x, work, aux, info]


posv_p = define(
    "jaxmg_posv",
    Operation(
        block=_calls.posv,
        one_device=_posv_one_device,
        pad=lambda r, a, b, replicated: [pad_rows(a, r.padded_rows), b],
        specs=lambda layout, replicated: (
            (rows_spec(layout), REPLICATED if replicated else rows_spec(layout)),
            (
                REPLICATED if replicated else rows_spec(layout),
                rows_spec(layout),
                vector_spec(layout),
                REPLICATED,
            ),
        ),
    ),
    _posv_types,
    batch_solution,
)


# --- log-determinant -------------------------------------------------------------------------


def _logdet_one_device(r: Resolved, work: Array, info: Array) -> list[Array]:
    return list(logdet_p.bind(work[: r.on_one_rank.factor_rows], info, r=r.on_one_rank))


logdet_p = define(
    "jaxmg_logdet",
    Operation(
        block=lambda r, ctx, work, info: [_calls.logdet(r, ctx, work, info)],
        library=_library.logdet,
        one_device=_logdet_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: ((rows_spec(layout), REPLICATED), (REPLICATED,)),
    ),
    lambda work, info, *, r: [typed(work, r.layout, (), r.real_dtype, REPLICATED)],
    batch_factor_operation,
)


# --- inverse ---------------------------------------------------------------------------------


def _potri_block(r: Resolved, ctx: Array, work: Array, aux: Array, info: Array) -> list[Array]:
    return [made_on_these(r, info, _calls.potri(r, ctx, work, aux, info))]


def _potri_one_device(r: Resolved, work: Array, aux: Array, info: Array) -> list[Array]:
    short, aux = one_device_factor(r, work, aux)
    (x,) = potri_p.bind(short, aux, info, r=r.on_one_rank)
    return [pad_rows(mismatch_to_nan(r, info, x, 1), r.padded_rows)]


potri_p = define(
    "jaxmg_potri",
    Operation(
        block=_potri_block,
        library=_library.potri,
        one_device=_potri_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: (
            (rows_spec(layout), vector_spec(layout), REPLICATED),
            (rows_spec(layout),),
        ),
    ),
    lambda work, aux, info, *, r: [
        typed(work, r.layout, (r.padded_rows, r.n), work.dtype, rows_spec(r.layout))
    ],
    batch_factor_operation,
)


# --- place of a failure ----------------------------------------------------------------------


def _locate_types(work: Any, aux: Any, info: Any, *, r: Resolved) -> list[Any]:
    return [
        work.update(weak_type=False),
        typed(work, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _locate_one_device(r: Resolved, work: Array, aux: Array, info: Array) -> list[Array]:
    short, aux = one_device_factor(r, work, aux)
    short, info = locate_p.bind(short, aux, info, r=r.on_one_rank)
    return [pad_rows(short, work.shape[0]), info.at[_calls.MADE_ON].set(1)]


locate_p = define(
    "jaxmg_locate",
    Operation(
        block=_calls.locate,
        library=_library.locate,
        one_device=_locate_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: (
            (rows_spec(layout), vector_spec(layout), REPLICATED),
            (rows_spec(layout), REPLICATED),
        ),
        makes_factor=True,
    ),
    _locate_types,
    batch_factor_operation,
)


# --- block-cyclic storage --------------------------------------------------------------------


def cyclic_order(n: int, ranks: int, tile: int, rows: int) -> np.ndarray:
    """For each row of block-cyclic storage, `rows` to a rank, the row of A there (n: none)."""
    index = np.arange(n)
    tiles = index // tile
    place = (tiles % ranks) * rows + (tiles // ranks) * tile + index % tile
    order = np.full(ranks * rows, n)
    order[place] = index
    return order


def _cyclic_block(r: Resolved, ctx: Array, a: Array, *, inverse: bool) -> list[Array]:
    a = pad_rows(a, r.rows)
    a = _calls.cyclic(ctx, a, n=r.n, tile=r.tile, inverse=inverse)
    return [a[: -(-r.n // r.layout.ranks)] if inverse else a]


def _cyclic_one_device(r: Resolved, a: Array, *, inverse: bool) -> list[Array]:
    order = cyclic_order(r.n, r.layout.ranks, r.tile, r.rows)
    if inverse:
        back = np.zeros(r.n, np.int64)
        back[order[order < r.n]] = np.flatnonzero(order < r.n)
        return [pad_rows(a[back], -(-r.n // r.layout.ranks) * r.layout.ranks)]
    padded = pad_rows(a[: r.n], r.n + 1)  # the last row is zero
    return [padded[order]]


def _cyclic_type(a: Any, *, r: Resolved, inverse: bool) -> list[Any]:
    rows = -(-r.n // r.layout.ranks) if inverse else r.rows
    shape = (rows * r.layout.ranks, a.shape[1])
    return [typed(a, r.layout, shape, a.dtype, rows_spec(r.layout))]


cyclic_p = define(
    "jaxmg_cyclic",
    Operation(
        block=_cyclic_block,
        one_device=_cyclic_one_device,
        pad=lambda r, a, inverse: [a],
        specs=lambda layout, inverse: ((rows_spec(layout),), (rows_spec(layout),)),
    ),
    _cyclic_type,
    batch_factor_operation,
)
