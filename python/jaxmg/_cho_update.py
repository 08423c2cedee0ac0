"""Cholesky factors of A + v v^H and A - v v^H from those of A, on global arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from . import _cholesky
from ._cholesky import Factor
from ._context import on_own_mesh
from ._dot import dot
from ._layout import Resolved
from ._natural import change_of_factor
from ._operands import (
    constrain_rows,
    gathered,
    is_split,
    like,
    on_all_devices,
    on_mesh,
    pad_rows,
    places,
    reshard,
    type_spec,
)
from ._products import rows_product, rows_transpose
from ._rows import keep_rows
from ._triangular_primitives import cholupdate_p, update_triangle_p


def outer(r: Resolved, a: Array, v: Array, w: Array) -> Array:
    """v w^H with the shape and the rows of `a`."""
    layout = r.layout
    v, w = pad_rows(gathered(layout, v), a.shape[0]), gathered(layout, w)
    if not layout.explicit:
        return keep_rows(r, dot(v, jnp.conj(w).T))
    spec = type_spec(a)
    if is_split(spec, (0,)):
        v = reshard(layout, v, PartitionSpec(spec[0], None))
    return like(layout, dot(v, jnp.conj(w).T), a)


# --- the factor object ----------------------------------------------------------------------


def _update(
    r: Resolved, downdate: bool, a: Array | None, f: Factor, v: Array
) -> tuple[Array | None, Factor]:
    v = on_mesh(r.layout, v)
    if a is not None:
        change = outer(r, a, v, v)
        a = a - change if downdate else a + change
    f = Factor(*(lax.stop_gradient(x) for x in f))
    fixed = gathered(r.layout, lax.stop_gradient(v))
    work, aux, info = cholupdate_p.bind(*f, fixed, r=r, downdate=downdate)
    return a, Factor(work, aux, on_all_devices(r.layout, info))


update: Callable[..., tuple[Array | None, Factor]] = on_own_mesh(
    jax.jit(_update, static_argnums=(0, 1))
)
update_in_place: Callable[..., tuple[Array | None, Factor]] = on_own_mesh(
    jax.jit(_update, static_argnums=(0, 1), donate_argnums=(2, 3))
)


# --- a triangle in natural order ------------------------------------------------------------


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _triangle(r: Resolved, upper: bool, downdate: bool, x: Array, v: Array) -> tuple[Array, Array]:
    fixed = gathered(r.layout, v)
    new, info = update_triangle_p.bind(x, fixed, r=r, upper=upper, downdate=downdate)
    new = constrain_rows(r.layout, new)
    if new.shape[0] != x.shape[0]:
        new = gathered(r.layout, new)[: x.shape[0]]
    return like(r.layout, new, x), info


def _lower_part(x: Array) -> Array:
    rows, columns = places(x)
    return jnp.where(rows >= columns, x, jnp.zeros_like(x))


@_triangle.defjvp
def _triangle_jvp(
    r: Resolved, upper: bool, downdate: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    # d(L L^H +- v v^H) = part + part^H with part = dL L^H +- dv v^H
    x, v = primals
    new, info = _triangle(r, upper, downdate, x, v)
    lower, moved, result = x, tangents[0], new
    if upper:
        lower, moved, result = (rows_transpose(r, y) for y in (lower, moved, result))
    part = rows_product(r, _lower_part(moved), rows_transpose(r, _lower_part(lower)))
    change = outer(r, part, tangents[1], v)
    part = part - change if downdate else part + change
    moved = change_of_factor(r, result, part, 1.0)
    moved = rows_transpose(r, moved) if upper else moved
    return (new, info), (like(r.layout, moved, new), np.zeros(info.shape, jax.dtypes.float0))


def _update_triangle(
    r: Resolved, upper: bool, downdate: bool, x: Array, v: Array
) -> tuple[Array, Array]:
    if r.n == 0:
        return x, jnp.zeros((8,), jnp.int32)
    x = _cholesky.enter(r, on_mesh(r.layout, x))
    new, info = _triangle(r, upper, downdate, x, on_mesh(r.layout, v))
    return new, on_all_devices(r.layout, info)


update_triangle: Callable[..., tuple[Array, Array]] = on_own_mesh(
    jax.jit(_update_triangle, static_argnums=(0, 1, 2))
)
