"""QR on global arrays: factor, Q and R, and their derivatives.

The factor is that of ``stop_gradient(A)``; A itself carries the derivative. So one factorisation
serves values, forward and reverse mode, at any order, and no rule ever differentiates a foreign
call.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from ._cholesky import Factor
from ._dot import dot
from ._hermitian import transposed
from ._operands import constrain_rows, gathered, on_all_devices, on_mesh, pad_rows, reshard
from ._qr_layout import QrLayout
from ._qr_primitives import geqrf_p, orgqr_p, qr_r_p

WHOLE = PartitionSpec(None, None)


def enter(r: QrLayout, a: Array) -> Array:
    """A with rows that fill all shards, split over the ranks."""
    a = pad_rows(on_mesh(r.layout, a), r.padded_rows)
    return constrain_rows(r.layout, reshard(r.layout, a, r.layout.rows_spec))


def factor(r: QrLayout, a: Array) -> Factor:
    work, aux, info = geqrf_p.bind(lax.stop_gradient(a), r=r)
    return Factor(work, aux, on_all_devices(r.layout, info))


def trim(r: QrLayout, x: Array, rows: int) -> Array:
    """The first rows of an array whose rows fill all shards."""
    if x.shape[0] == rows:
        return x
    return gathered(r.layout, x)[:rows]


def whole(r: QrLayout, x: Array) -> Array:
    """A small matrix, the same on all devices."""
    if r.layout.kind != "dist" or r.layout.explicit:
        return gathered(r.layout, x)
    return lax.with_sharding_constraint(x, r.layout.sharding(WHOLE))


def adjoint_product(r: QrLayout, a: Array, b: Array) -> Array:
    """a^H b for two matrices whose rows lie on the ranks: small, the same on all devices."""
    if not r.layout.explicit:
        return transposed(a, b)
    rows = r.layout.rows_spec
    a, b = reshard(r.layout, a, rows), reshard(r.layout, b, rows)
    return transposed(a, b, out_sharding=r.layout.typed(WHOLE))


def _solved_by_triangle(r: QrLayout, triangle: Array, x: Array) -> Array:
    """x R^-1 for x whose rows lie on the ranks. The inverse is formed, so that x stays there."""
    eye = on_mesh(r.layout, jnp.eye(triangle.shape[0], dtype=triangle.dtype))
    inverse = lax.linalg.triangular_solve(triangle, eye, left_side=True, lower=False)
    return dot(x, inverse)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def q_and_r(r: QrLayout, a: Array, work: Array, aux: Array, info: Array) -> tuple[Array, Array]:
    """Q (padded_rows, k) and R (padded_rank, n), both with their rows on the ranks."""
    q, triangle = orgqr_p.bind(work, aux, info, r=r, columns=r.rank)
    return constrain_rows(r.layout, q), constrain_rows(r.layout, triangle)


@q_and_r.defjvp
def _q_and_r_jvp(r: QrLayout, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """With A = [A1 A2], A1 of k columns, R = [R1 R2], and X = dA1 R1^-1, C = Q^H X:

    W = lower(C) - lower(C)^H + i Im diag(C)      (strictly lower; W is skew-Hermitian)
    dQ = X - Q (C - W),   dR1 = (C - W) R1,   dR2 = dQ^H A2 + Q^H dA2
    """
    q, triangle = q_and_r(r, *primals)
    k = r.rank
    da = reshard(r.layout, tangents[0], r.layout.rows_spec)
    r1 = whole(r, triangle)[:k, :k]
    x = _solved_by_triangle(r, r1, da[:, :k])
    c = adjoint_product(r, q, x)
    low = jnp.tril(c, -1)
    skew = low - jnp.conj(low.T)
    if r.is_complex:
        skew = skew + jnp.diag(1j * jnp.imag(jnp.diagonal(c))).astype(c.dtype)
    dq = x - dot(q, c - skew)
    dr = dot(c - skew, r1)
    if r.n > k:
        dr2 = adjoint_product(r, dq, primals[0][:, k:]) + adjoint_product(r, q, da[:, k:])
        dr = jnp.concatenate([dr, dr2], axis=1)
    dr = reshard(r.layout, pad_rows(dr, r.padded_rank), r.layout.rows_spec)
    return (q, triangle), (dq, dr)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def r_alone(r: QrLayout, a: Array, work: Array, aux: Array, info: Array) -> Array:
    """R (padded_rank, n), its rows on the ranks."""
    (triangle,) = qr_r_p.bind(work, info, r=r)
    return constrain_rows(r.layout, triangle)


@r_alone.defjvp
def _r_alone_jvp(r: QrLayout, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    (_, triangle), (_, dr) = jax.jvp(
        lambda a: q_and_r(r, a, *primals[1:]), (primals[0],), (tangents[0],)
    )
    return triangle, dr


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def complete(r: QrLayout, a: Array, work: Array, aux: Array, info: Array) -> tuple[Array, Array]:
    """As q_and_r with a square Q."""
    q, triangle = orgqr_p.bind(work, aux, info, r=r, columns=r.m)
    return constrain_rows(r.layout, q), constrain_rows(r.layout, triangle)


@complete.defjvp
def _complete_jvp(r: QrLayout, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        'qr: the derivative of mode="complete" of a tall matrix is not defined, since the columns '
        'of Q that A does not determine are arbitrary. Use mode="reduced".'
    )
