"""The primitive of the polar decomposition, on global arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from . import _qdwh
from ._batching import batch_factor_operation
from ._operands import pad_rows
from ._operation import REPLICATED, Operation, define, rows_spec, typed
from ._polar_place import ResolvedPolar


def _types(a: Any, *, r: ResolvedPolar, want_h: bool) -> list[Any]:
    shapes = [(r.padded(r.m), r.n)] + [(r.padded(r.n), r.n)] * want_h
    out = [typed(a, r.layout, shape, a.dtype, rows_spec(r.layout)) for shape in shapes]
    return [*out, typed(a, r.layout, (8,), jnp.int32, REPLICATED)]


def _one_device(r: ResolvedPolar, a: Array, *, want_h: bool) -> list[Array]:
    *results, info = polar_p.bind(a[: r.m], r=r.on_one_rank, want_h=want_h)
    return [*(pad_rows(x, r.padded(x.shape[0])) for x in results), info]


polar_p = define(
    "jaxmg_polar",
    Operation(
        block=_qdwh.polar,
        one_device=_one_device,
        pad=lambda r, a, want_h: [pad_rows(a, r.padded(r.m))],
        specs=lambda layout, want_h: (
            (rows_spec(layout),),
            (*(rows_spec(layout),) * (2 if want_h else 1), REPLICATED),
        ),
    ),
    _types,
    batch_factor_operation,
)
