"""Orthonormal columns completed to a unitary matrix."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ._qr_layout import resolve_qr
from ._qr_primitives import geqrf_p, orgqr_p


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def completed(r: Any, u: Array) -> Array:
    """[U, W] of shape (padded m, m), given U (padded m, n).

    W is the last part of Q in U = Q [R; 0] by Householder reflections.
    """
    f = resolve_qr(r.layout, r.m, r.n, r.polar.dtype)
    q, _ = orgqr_p.bind(*geqrf_p.bind(u, r=f), r=f, columns=r.m)
    return jnp.concatenate([u, q[:, r.n :]], axis=1)


@completed.defjvp
def _completed_jvp(r: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    raise NotImplementedError(
        "gesvd: there is no derivative with full_matrices=True unless the matrix is square, since "
        "the vectors that complete a basis are arbitrary. Use full_matrices=False."
    )
