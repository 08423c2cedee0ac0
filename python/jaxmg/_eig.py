"""Eigenvalues and eigenvectors of a Hermitian matrix on global arrays, and their derivatives.

    A V = V diag(w)      dw = Re diag(M),  dV = V (F * M),
    M = V^H dA V         F_ij = 1 / (w_j - w_i) for i != j,  F_ii = 0

The rule fixes the phase of an eigenvector by v^H dv = 0: derivatives of functions that depend on
phases are not defined by the matrix. Eigenvalues that differ by no more than rounding count as
equal, with F_ij = 0, so that functions which are invariant under rotations within an eigenspace
have the derivative that they have, instead of NaN or noise.

No rule differentiates a foreign call, and one decomposition serves value, forward and reverse
mode. The products go round the ring of ranks; see _ring.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _matmul
from ._eig_primitives import ResolvedEig, syevd_p
from ._hermitian import valid_part, weight
from ._matmul import Ring
from ._operands import on_all_devices, pad_rows
from ._rows import keep_rows

NO_TANGENT = np.zeros((8,), jax.dtypes.float0)


def enter(r: Any, a: Array) -> Array:
    """A with padded rows, pinned, as those of its cotangent, to the ranks."""
    return pad_rows(keep_rows(r, a), r.padded_rows)


def _bind(r: ResolvedEig, a: Array, **params: Any) -> list[Array]:
    *results, info = syevd_p.bind(a, r=r, **params)
    return [*results, on_all_devices(r.layout, info)]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def decompose(r: ResolvedEig, a: Array) -> tuple[Array, Array, Array]:
    """All eigenvalues, eigenvectors (padded rows, n) and info of a matrix with padded rows."""
    w, v, info = _bind(r, a, vectors=True, first=0, count=r.n)
    return w, v, info


def rounding(w: Array) -> Array:
    """8 sqrt(n) eps max|w|: eigenvalues, or singular values, that differ by less count as equal."""
    eps = float(jnp.finfo(w.dtype).eps)
    return 8 * max(1, w.shape[-1]) ** 0.5 * eps * jnp.max(jnp.abs(lax.stop_gradient(w)))


def inverse_gaps(ring: Ring, w: Array, rows: int) -> Array:
    """1 / (w_j - w_i) with rows split over the ranks; zero for equal numbers."""
    mine = _matmul.rows(ring, pad_rows(w, rows))
    gap = w[None, :] - mine[:, None]
    differ = jnp.abs(gap) > rounding(w)
    return jnp.where(differ, 1 / jnp.where(differ, gap, 1), 0)


def _rotated(r: ResolvedEig, ring: Ring, v: Array, da: Array) -> tuple[Array, Array]:
    """P V, where P is the part with weight (P + P^H) = dA, and Re diag(V^H dA V)."""
    pv = _matmul.times(ring, valid_part(r.triangle, da), v)
    dw = 2 * weight(r.triangle) * jnp.sum(jnp.real(_matmul.conj(v) * pv), axis=0)
    return pv, dw


@decompose.defjvp
def _decompose_jvp(r: ResolvedEig, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    w, v, info = decompose(r, *primals)
    ring = Ring(r.layout)
    pv, dw = _rotated(r, ring, v, tangents[0])
    t = _matmul.adjoint_times(ring, v, pv, r.n)
    m = weight(r.triangle) * (t + _matmul.adjoint(ring, t, r.n))
    dv = _matmul.times(ring, v, inverse_gaps(ring, w, m.shape[0]).astype(m.dtype) * m)
    return (w, v, info), (dw, dv, NO_TANGENT)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def values(r: ResolvedEig, a: Array) -> tuple[Array, Array]:
    """All eigenvalues and info, without eigenvectors unless a derivative asks for them."""
    w, info = _bind(r, a, vectors=False, first=0, count=0)
    return w, info


@values.defjvp
def _values_jvp(r: ResolvedEig, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    w, v, info = decompose(r, *primals)
    _, dw = _rotated(r, Ring(r.layout), v, tangents[0])
    return (w, info), (dw, NO_TANGENT)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def some(r: ResolvedEig, first: int, count: int, a: Array) -> tuple[Array, Array, Array]:
    """All eigenvalues, eigenvectors first .. first + count - 1, and info."""
    w, v, info = _bind(r, a, vectors=True, first=first, count=count)
    return w, v, info


@some.defjvp
def _some_jvp(
    r: ResolvedEig, first: int, count: int, primals: Sequence[Any], tangents: Sequence[Any]
) -> Any:
    # The change of one eigenvector has parts along all others.
    (w, v, info), (dw, dv, _) = jax.jvp(
        functools.partial(decompose, r), tuple(primals), tuple(tangents)
    )
    chosen = slice(first, first + count)
    return (w, v[:, chosen], info), (dw, dv[:, chosen], NO_TANGENT)
