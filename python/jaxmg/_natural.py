"""The Cholesky factor in natural order as an array, with derivatives.

    A = L L^H,    dL = L phi(L^-1 dA L^-H),    phi: the lower triangle, its diagonal halved

With dA = weight * (part + part^H), see _hermitian, and Y = L^-1 (L^-1 part)^H,

    L^-1 dA L^-H = weight * (Y + Y^H)

Murray, "Differentiation of the Cholesky decomposition", 2016.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _cholesky, _triangular
from ._context import on_own_mesh
from ._hermitian import valid_part, weight
from ._layout import Resolved
from ._operands import constrain_rows, gathered, like, on_all_devices, on_mesh, places
from ._products import rows_product, rows_transpose
from ._rows import keep_rows
from ._triangular import Form
from ._triangular_primitives import triangle_p

LOWER = Form(lower=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def factorise(r: Resolved, upper: bool, a: Array) -> tuple[Array, Array]:
    """L, or L^H if `upper`, with the rows and the sharding of `a`, and info."""
    f = _cholesky.factor(r, a)
    (x,) = triangle_p.bind(f.work, f.info, r=r, upper=upper)
    x = constrain_rows(r.layout, x)
    if a.shape[0] != x.shape[0]:
        x = gathered(r.layout, x)[: a.shape[0]]
    return like(r.layout, x, a), f.info


@factorise.defjvp
def _factorise_jvp(
    r: Resolved, upper: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    x, info = factorise(r, upper, *primals)
    lower = rows_transpose(r, x) if upper else x
    change = change_of_factor(r, lower, valid_part(r.triangle, tangents[0]), weight(r.triangle))
    change = rows_transpose(r, change) if upper else change
    return (x, info), (like(r.layout, change, x), np.zeros(info.shape, jax.dtypes.float0))


def change_of_factor(r: Resolved, lower: Array, part: Array, factor: float) -> Array:
    """dL for dA = factor * (part + part^H); all arrays n x n and split by rows."""
    even = r.layout.kind == "dist" and r.n % r.layout.ranks == 0

    def solve(b: Array) -> Array:
        return keep_rows(r, _triangular.solve(r, LOWER, lower, b, split=even))

    def phi(x: Array) -> Array:
        rows, columns = places(x)
        strict = jnp.where(rows > columns, x, jnp.zeros_like(x))
        return strict + 0.5 * jnp.where(rows == columns, x, jnp.zeros_like(x))

    y = solve(rows_transpose(r, solve(part)))
    return rows_product(r, lower, phi(factor * (y + rows_transpose(r, y))))


def _call(r: Resolved, upper: bool, a: Array) -> tuple[Array, Array]:
    if r.n == 0:
        return a, jnp.zeros((8,), jnp.int32)
    x, info = factorise(r, upper, _cholesky.enter(r, on_mesh(r.layout, a)))
    return x, on_all_devices(r.layout, info)


run: Callable[..., tuple[Array, Array]] = on_own_mesh(jax.jit(_call, static_argnums=(0, 1)))
run_in_place: Callable[..., tuple[Array, Array]] = on_own_mesh(
    jax.jit(_call, static_argnums=(0, 1), donate_argnums=2)
)
