"""Least squares and minimum-norm solutions on global arrays, and their derivatives.

T is a tall matrix (p x q, p >= q, full rank) with its QR factor: A itself for m >= n, A^H for
m < n. Two operations do everything, each the adjoint of the other:

    least(b) = T^+ b = R^-1 Q^H b,        norm(c) = (T^+)^H c = Q R^-H c

least_squares(A, b) is least(b) for T = A and norm(b) for T = A^H. Where T is tall enough, least(b)
is found without a factor if no derivative is asked for.

Derivatives come from the Hermitian system

    [I    T] [s]   [f]        u = least(f - norm(g)),  s = f - T u
    [T^H  0] [u] = [g]

as a ``custom_linear_solve``: it is linear in the right-hand side, knows T by products alone, and so
can be transposed and differentiated any number of times with the same factor.

    x = least(b):   [ds; dx] solves it for f = db - dT x,  g = -dT^H (b - T x)
    y = norm(c):    [dy; .]  solves it for f = dT least(y),  g = dc - dT^H y
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _qr
from ._cholesky import Factor
from ._dot import dot
from ._operands import constrain_rows, gathered, on_all_devices, on_mesh, pad_rows, reshard
from ._qr_layout import QrLayout
from ._qr_primitives import gels_p, geqrs_p, ormqr_p


class Core(NamedTuple):
    """R^+ = vh^H diag(inverse) u^H, the same on all devices."""

    u: Array
    inverse: Array
    vh: Array


class Tall(NamedTuple):
    """The factor of a tall matrix, and what stands for R^-1 (None: R itself)."""

    factor: Factor
    core: Core | None = None


def enter_adjoint(r: QrLayout, a: Array) -> Array:
    """A^H as :func:`_qr.enter` gives A. Both sides are padded, so that blocks change places."""
    layout = r.layout
    a = on_mesh(layout, a)
    rows = -(-a.shape[0] // layout.ranks) * layout.ranks
    a = jnp.pad(a, ((0, rows - a.shape[0]), (0, r.padded_rows - a.shape[1])))
    a = constrain_rows(layout, reshard(layout, a, layout.rows_spec))
    adjoint = reshard(layout, jnp.conj(a.T), layout.rows_spec)
    return constrain_rows(layout, adjoint)[:, : r.n]


def _rows(r: QrLayout, x: Array) -> Array:
    return reshard(r.layout, pad_rows(x, r.padded_rows), r.layout.rows_spec)


def least(r: QrLayout, tall: Tall, b: Array) -> tuple[Array, Array]:
    """T^+ b for b (padded_rows, k), whole on every device, and info."""
    tall = jax.tree.map(lax.stop_gradient, tall)
    if tall.core is None:
        x, info = geqrs_p.bind(*tall.factor, _rows(r, b), r=r, adjoint=False)
        return x, info
    (c,) = ormqr_p.bind(*tall.factor, _rows(r, b), r=r, adjoint=True)
    u, inverse, vh = tall.core
    c = _qr.whole(r, c)[: r.n]
    # One factor after the other: the product of the three loses what this keeps.
    return dot(jnp.conj(vh.T), inverse[:, None] * dot(jnp.conj(u.T), c)), tall.factor.info


def norm(r: QrLayout, tall: Tall, c: Array) -> tuple[Array, Array]:
    """(T^+)^H c for c (n, k): (padded_rows, k), its rows on the ranks, and info."""
    tall = jax.tree.map(lax.stop_gradient, tall)
    c = gathered(r.layout, c)
    if tall.core is None:
        y, info = geqrs_p.bind(*tall.factor, c, r=r, adjoint=True)
        return y, info
    u, inverse, vh = tall.core
    c = pad_rows(dot(u, inverse[:, None] * dot(vh, c)), r.padded_rank)
    (y,) = ormqr_p.bind(*tall.factor, reshard(r.layout, c, r.layout.rows_spec), r=r, adjoint=False)
    return y, tall.factor.info


def _solve_augmented(r: QrLayout, t: Array, tall: Tall, f: Array, g: Array) -> tuple[Array, Array]:
    def product(v: tuple[Array, Array]) -> tuple[Array, Array]:
        s, u = v
        return s + dot(t, u), _qr.adjoint_product(r, t, s)

    def run(_: Any, v: tuple[Array, Array]) -> tuple[Array, Array]:
        f, g = v
        u = least(r, tall, f - norm(r, tall, g)[0])[0]
        return f - dot(t, u), u

    def transpose(_: Any, v: tuple[Array, Array]) -> tuple[Array, Array]:
        # The inverse is Hermitian, so its transpose is its conjugate.
        return jax.tree.map(jnp.conj, run(_, jax.tree.map(jnp.conj, v)))

    out: tuple[Array, Array] = lax.custom_linear_solve(
        product, (f, g), run, transpose_solve=transpose
    )
    return out


def _no_tangent(info: Array) -> Any:
    return np.zeros(info.shape, jax.dtypes.float0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def least_squares(r: QrLayout, t: Array, b: Array, tall: Tall) -> tuple[Array, Array]:
    """least(b) as a function of T (padded_rows, n) and b (padded_rows, k); and info."""
    return least(r, tall, b)


@least_squares.defjvp
def _least_squares_jvp(r: QrLayout, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    t, b, tall = primals
    dt, db, _ = tangents
    x, info = least_squares(r, t, b, tall)
    dt = _rows(r, dt)
    f = db - dot(dt, x)
    g = -_qr.adjoint_product(r, dt, b - dot(t, x))
    _, dx = _solve_augmented(r, t, tall, f, g)
    return (x, info), (dx, _no_tangent(info))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def by_gram(r: QrLayout, t: Array, b: Array) -> tuple[Array, Array]:
    """The same with no factor: by the Gram matrix of T, where that is safe."""
    x, info = gels_p.bind(*map(lax.stop_gradient, (t, b)), r=r)
    return x, on_all_devices(r.layout, info)


@by_gram.defjvp
def _by_gram_jvp(r: QrLayout, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    # Derivatives want a factor, with which the value then comes at little cost.
    t, b = primals
    tall = Tall(_qr.factor(r, t))
    return jax.jvp(lambda t, b: least_squares(r, t, b, tall), (t, b), tuple(tangents))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def minimum_norm(r: QrLayout, t: Array, c: Array, tall: Tall) -> tuple[Array, Array]:
    """norm(c) as a function of T (padded_rows, n) and c (n, k); and info."""
    return norm(r, tall, c)


@minimum_norm.defjvp
def _minimum_norm_jvp(r: QrLayout, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    t, c, tall = primals
    dt, dc, _ = tangents
    y, info = minimum_norm(r, t, c, tall)
    dt = _rows(r, dt)
    # T^+ y = T^+ (T^+)^H c, as the second unknown of the system for f = y, g = 0.
    _, u = _solve_augmented(r, t, tall, y, jnp.zeros_like(c))
    dy, _ = _solve_augmented(r, t, tall, dot(dt, u), dc - _qr.adjoint_product(r, dt, y))
    return (y, info), (dy, _no_tangent(info))


def singular_values(r: QrLayout, a: Array, f: Factor, rcond: Any) -> tuple[Core, Array, Array]:
    """R^+ without singular values below rcond times the largest; all of them; their number."""
    triangle = _qr.whole(r, _qr.r_alone(r, a, *f))[: r.n]
    u, s, vh = jnp.linalg.svd(triangle, full_matrices=False)
    keep = (s > 0) & (s >= jnp.asarray(rcond, s.dtype) * s[0])
    inverse = jnp.where(keep, 1 / jnp.where(keep, s, 1), 0).astype(s.dtype)
    core = Core(*(lax.stop_gradient(x) for x in (u, inverse, vh)))
    return core, s, jnp.sum(keep)
