"""Cholesky factorisation and solution in one call if nothing is differentiated; see _one_call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.interpreters import ad

from . import _cholesky, _one_call
from ._cholesky import Factor
from ._layout import Resolved
from ._operands import on_all_devices, pad_rows, reshard, type_spec
from ._primitives import posv_p

Solution = tuple[Array, Array, Array, Array]


def solve(r: Resolved, a: Array, b: Array, *, split: bool) -> tuple[Array, Factor]:
    """x = A^-1 b, as of :func:`_cholesky.solve`, and the factor, as of :func:`_cholesky.factor`."""
    x, *factor = _together(r, split, a, b)
    return x, Factor(*(lax.stop_gradient(part) for part in factor))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _together(r: Resolved, split: bool, a: Array, b: Array) -> Solution:
    def apply(rhs: Array, replicated: bool) -> tuple[Array, Any]:
        x, *factor = posv_p.bind(a, rhs, r=r, replicated=replicated)
        return x, factor

    x, (work, aux, info) = _cholesky.on_ranks(r, b, apply, split)
    if r.layout.explicit:
        x = reshard(r.layout, x, type_spec(b))
    return x, work, aux, on_all_devices(r.layout, info)


def _together_jvp(
    r: Resolved, split: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Solution, Solution]:
    def apart(a: Array, b: Array) -> Solution:
        f = _cholesky.factor(r, a)
        return _cholesky.solve(r, a, f, b, split=split), *f

    return _one_call.jvp_of(apart, primals, tangents)


_together.defjvp(_together_jvp, symbolic_zeros=True)


def _transpose(
    cotangents: Sequence[Any], a: Array, b: Any, *, r: Resolved, replicated: bool
) -> tuple[None, Any]:
    """Of x as a linear map of b: (A^-1)^T = conj(A^-1)."""
    ct = cotangents[0]
    if type(ct) is ad.Zero:
        return None, ad.Zero(b.aval)
    f = _cholesky.factor(r, a)
    x = _cholesky.solve(r, a, f, jnp.conj(ct)[: r.n], split=not replicated)
    return None, pad_rows(jnp.conj(x), ct.shape[0])


ad.primitive_transposes[posv_p] = _transpose
