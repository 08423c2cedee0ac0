"""The polar decomposition A = U H of matrices with m >= n on global arrays, and its derivatives.

    M = U^H dA     H W + W H = M - M^H     (Sylvester equation with skew W)
    dU = U W + (dA - U M) H^-1             dH = M - W H

The equation is solved in the eigenvectors of H, which only derivatives need. They are those of
``stop_gradient(H)``: H itself carries the derivative through the product that defines the solution,
so that derivatives of any order are right for repeated singular values too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import _matmul
from ._eig import NO_TANGENT, rounding
from ._eig_primitives import resolve_eig, syevd_p
from ._matmul import Ring
from ._operands import on_all_devices, pad_rows
from ._polar_place import ResolvedPolar
from ._polar_primitives import polar_p
from ._rows import keep_rows


def enter(r: Any, a: Array, rows: int) -> Array:
    """A with padded rows, pinned, as those of its cotangent, to the ranks."""
    return pad_rows(keep_rows(r, a), r.padded(rows))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def decompose(r: ResolvedPolar, a: Array) -> tuple[Array, Array, Array]:
    """U (padded m, n), H (padded n, n) and info."""
    u, h, info = polar_p.bind(a, r=r, want_h=True)
    return u, h, on_all_devices(r.layout, info)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def unitary(r: ResolvedPolar, a: Array) -> tuple[Array, Array]:
    """U and info."""
    u, info = polar_p.bind(a, r=r, want_h=False)
    return u, on_all_devices(r.layout, info)


def inverse_sums(ring: Ring, w: Array, rows: int) -> Array:
    """1 / (w_i + w_j) with rows split over the ranks; zero where both are zero."""
    mine = _matmul.rows(ring, pad_rows(w, rows))
    total = w[None, :] + mine[:, None]
    limit = rounding(w)
    positive = total > limit
    return jnp.where(positive, 1 / jnp.where(positive, total, 1), 0)


@dataclasses.dataclass(frozen=True)
class _Spectral:
    """H, and the eigenvalues and eigenvectors of ``stop_gradient(H)``."""

    ring: Ring
    n: int
    h: Array
    w: Array
    v: Array

    def _solve(
        self,
        product: Callable[[Array], Array],
        run: Callable[[Array], Array],
        right: Array,
    ) -> Array:
        def transpose(_: Any, x: Array) -> Array:
            # H is Hermitian: its transpose is its conjugate.
            return _matmul.conj(run(_matmul.conj(x)))

        out: Array = lax.custom_linear_solve(
            product, right, lambda _, x: run(x), transpose_solve=transpose
        )
        return out

    def sylvester(self, s: Array) -> Array:
        """X with H X + X H = S."""
        ring, v = self.ring, self.v
        sums = inverse_sums(ring, self.w, s.shape[0]).astype(s.dtype)

        def run(s: Array) -> Array:
            t = _matmul.adjoint_times(ring, v, _matmul.times(ring, s, v), self.n)
            return _matmul.times(ring, v, _matmul.times_adjoint(ring, sums * t, v, self.n))

        def product(x: Array) -> Array:
            return _matmul.times(ring, self.h, x) + _matmul.times(ring, x, self.h)

        return self._solve(product, run, s)

    def divide(self, y: Array) -> Array:
        """Y H^-1."""
        ring, v = self.ring, self.v
        limit = rounding(self.w)
        positive = self.w > limit
        inverse = jnp.where(positive, 1 / jnp.where(positive, self.w, 1), 0).astype(y.dtype)

        def run(y: Array) -> Array:
            return _matmul.times_adjoint(ring, _matmul.times(ring, y, v) * inverse, v, self.n)

        return self._solve(lambda x: _matmul.times(ring, x, self.h), run, y)


def _change(r: ResolvedPolar, u: Array, h: Array, da: Array) -> tuple[Array, Array]:
    """dU and dH."""
    ring = Ring(r.layout)
    fixed = lax.stop_gradient(h)
    eig = resolve_eig(r.layout, r.n, r.dtype)
    w, v, _ = syevd_p.bind(fixed, r=eig, vectors=True, first=0, count=r.n)
    spectral = _Spectral(ring, r.n, h, w, v)
    m = _matmul.adjoint_times(ring, u, da, r.m)
    turn = spectral.sylvester(m - _matmul.adjoint(ring, m, r.n))
    du = _matmul.times(ring, u, turn)
    if r.m > r.n:
        du = du + spectral.divide(da - _matmul.times(ring, u, m))
    dh = m - _matmul.times(ring, turn, h)
    return du, 0.5 * (dh + _matmul.adjoint(ring, dh, r.n))


@decompose.defjvp
def _decompose_jvp(r: ResolvedPolar, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    u, h, info = decompose(r, *primals)
    du, dh = _change(r, u, h, tangents[0])
    return (u, h, info), (du, dh, NO_TANGENT)


@unitary.defjvp
def _unitary_jvp(r: ResolvedPolar, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    u, h, info = decompose(r, *primals)
    du, _ = _change(r, u, h, tangents[0])
    return (u, info), (du, NO_TANGENT)
