"""Derivatives with respect to a Hermitian matrix, or to one triangle of it.

A Hermitian matrix is weight * (part + part^H). Which part is taken decides what a derivative with
respect to the stored numbers is:

- whole matrix valid: part = A, weight 1/2, and cotangents come out Hermitian;
- one triangle valid: part = that triangle, its diagonal real and halved, weight 1. The other
  triangle is not read and its cotangent is zero.

Nothing n x n is transposed: part^H x is a product that contracts the rows of the part.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ._dot import contract
from ._operands import places


def _strict(triangle: int, rows: Array, columns: Array) -> Array:
    return rows > columns if triangle == 0 else rows < columns


def weight(triangle: int) -> float:
    return 0.5 if triangle < 0 else 1.0


def valid_part(triangle: int, a: Array, first_row: Any = 0) -> Array:
    """The part with weight * (part + part^H) = A. `first_row`: index of row 0 of `a` in A."""
    if triangle < 0:
        return a
    rows, columns = places(a, first_row)
    strict = jnp.where(_strict(triangle, rows, columns), a, jnp.zeros_like(a))
    diagonal = jnp.where(rows == columns, a, jnp.zeros_like(a))
    return strict + (0.5 * jnp.real(diagonal)).astype(a.dtype)


def weighted_triangle(triangle: int, change: Array, first_row: Any = 0) -> Array:
    """W with Re sum(conj(X) * W) = Re sum(conj(X) * (change of A)) for every Hermitian X."""
    if triangle < 0:
        return change
    rows, columns = places(change, first_row)
    zero = jnp.zeros_like(change)
    strict = jnp.where(_strict(triangle, rows, columns), 2 * change, zero)
    return strict + jnp.where(rows == columns, change, zero)


def transposed(part: Array, x: Array, out_sharding: Any = None) -> Array:
    """part^H x."""
    dims = (((0,), (0,)), ((), ()))
    if out_sharding is None:
        return contract(jnp.conj(part), x, dims)
    return contract(jnp.conj(part), x, dims, out_sharding=out_sharding)
