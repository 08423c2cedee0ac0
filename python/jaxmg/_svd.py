"""Singular values and vectors of matrices with m >= n on global arrays, and their derivatives.

    A = U_p H (polar decomposition),  H = V diag(s) V^H,  U = U_p V

is backward stable and forms neither A^H A nor anything else that squares the condition number
(Nakatsukasa, Higham: SIAM J. Sci. Comput. 35, 2013). Derivatives, with P = U^H dA V = S + K, its
Hermitian and its skew part:

    ds = Re diag(P)
    dU = U (F * S + G * K) + (dA V - U P) / s      F_ij = 1 / (s_j - s_i) for i != j
    dV = V (F * S - G * K)                         G_ij = 1 / (s_j + s_i)

On the diagonal, where only the sum of the phases of u_i and v_i is free, all of K / s goes to U.
Singular values that differ by no more than rounding count as equal, F_ij = 0 then, and those that
are zero up to rounding have G_ij = 0: functions that do not depend on the choice of vectors in a
space of equal singular values have the derivative that they have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import _matmul
from ._eig import NO_TANGENT, inverse_gaps, rounding
from ._eig_primitives import ResolvedEig, resolve_eig, syevd_p
from ._matmul import Ring
from ._operands import on_all_devices
from ._polar_place import ResolvedPolar
from ._polar_primitives import polar_p
from ._polar_rules import inverse_sums


@dataclasses.dataclass(frozen=True)
class ResolvedSvd:
    """One singular value decomposition, as far as it is known without data."""

    polar: ResolvedPolar

    @property
    def layout(self) -> Any:
        return self.polar.layout

    @property
    def m(self) -> int:
        return self.polar.m

    @property
    def n(self) -> int:
        return self.polar.n

    @functools.cached_property
    def eig(self) -> ResolvedEig:
        return resolve_eig(self.layout, self.n, self.polar.dtype)

    @functools.cached_property
    def ring(self) -> Ring:
        return Ring(self.layout)


def _joined(r: ResolvedSvd, first: Array, second: Array) -> Array:
    """The info of two stages: that of the first one that failed."""
    return on_all_devices(r.layout, jnp.where(first[0] != 0, first, second))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def decompose(r: ResolvedSvd, a: Array) -> tuple[Array, Array, Array, Array]:
    """U (padded m, n), s descending, V (padded n, n) and info."""
    u, h, info = polar_p.bind(a, r=r.polar, want_h=True)
    w, v, also = syevd_p.bind(h, r=r.eig, vectors=True, first=0, count=r.n)
    # H is semidefinite up to rounding. A sign goes to U; places among such numbers are noise.
    w, v = lax.rev(w, (0,)), lax.rev(v, (1,))
    u = _matmul.times(r.ring, u, v) * jnp.where(w < 0, -1, 1).astype(v.dtype)
    return u, _descending(w), v, _joined(r, info, also)


def _descending(w: Array) -> Array:
    return lax.rev(jnp.sort(jnp.abs(w)), (0,))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def values(r: ResolvedSvd, a: Array) -> tuple[Array, Array]:
    """s and info, without vectors unless a derivative asks for them."""
    _, h, info = polar_p.bind(a, r=r.polar, want_h=True)
    w, also = syevd_p.bind(h, r=r.eig, vectors=False, first=0, count=0)
    return _descending(w), _joined(r, info, also)


def _rotated(r: ResolvedSvd, u: Array, v: Array, da: Array) -> tuple[Array, Array]:
    """dA V and ds."""
    dav = _matmul.times(r.ring, da, v)
    return dav, jnp.sum(jnp.real(_matmul.conj(u) * dav), axis=0)


@values.defjvp
def _values_jvp(r: ResolvedSvd, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    u, s, v, info = decompose(r, *primals)
    _, ds = _rotated(r, u, v, tangents[0])
    return (s, info), (ds, NO_TANGENT)


@decompose.defjvp
def _decompose_jvp(r: ResolvedSvd, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    u, s, v, info = decompose(r, *primals)
    ring = r.ring
    dav, ds = _rotated(r, u, v, tangents[0])
    p = _matmul.adjoint_times(ring, u, dav, r.m)
    q = _matmul.adjoint(ring, p, r.n)
    rows = p.shape[0]
    f = inverse_gaps(ring, s, rows).astype(p.dtype) * (0.5 * (p + q))
    skew = 0.5 * (p - q)
    g = inverse_sums(ring, s, rows).astype(p.dtype) * skew
    diagonal = _matmul.rows(ring, jnp.arange(rows))[:, None] == jnp.arange(r.n)[None, :]
    du = _matmul.times(ring, u, f + jnp.where(diagonal, 2 * g, g))
    dv = _matmul.times(ring, v, f - jnp.where(diagonal, 0, g))
    if r.m > r.n:
        positive = s > rounding(s)
        inverse = jnp.where(positive, 1 / jnp.where(positive, s, 1), 0).astype(p.dtype)
        du = du + (dav - _matmul.times(ring, u, p)) * inverse
    return (u, s, v, info), (du, ds, dv, NO_TANGENT)


def _inverse_values(s: Array, rtol: float) -> Array:
    """1 / s, and 0 for what is at most rtol s[0]."""
    positive = s > rtol * jnp.max(s)
    return jnp.where(positive, 1 / jnp.where(positive, s, 1), jnp.where(jnp.isnan(s), s, 0))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def pseudo_inverse(r: ResolvedSvd, rtol: float, a: Array) -> Array:
    """A^+ (padded n, m), from singular values above rtol s[0]."""
    u, s, v, _ = decompose(r, a)
    scaled = v * _inverse_values(s, rtol).astype(v.dtype)
    return _matmul.times_adjoint(r.ring, scaled, u, r.m)


@pseudo_inverse.defjvp
def _pseudo_inverse_jvp(
    r: ResolvedSvd, rtol: float, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    """At constant rank, with X = A^+ (Golub, Pereyra: SIAM J. Numer. Anal. 10, 1973):

    dX = -X dA X + X X^H dA^H (I - A X) + (I - X A) dA^H X^H X
    """
    (a,), (da,) = primals, tangents
    ring, m, n = r.ring, r.m, r.n
    x = pseudo_inverse(r, rtol, a)
    times = functools.partial(_matmul.times, ring)
    xda = times(x, da)
    adjoint = _matmul.adjoint(ring, da, m)
    first = times(xda, x)
    rest = adjoint - times(_matmul.adjoint_times(ring, da, a, m), x)
    second = times(_matmul.times_adjoint(ring, x, x, n), rest)
    third = times(_matmul.adjoint(ring, xda, n), x)
    return x, second - first + third - times(times(x, a), third)
