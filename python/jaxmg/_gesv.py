"""LU factorisation and solution in one call if nothing is differentiated; see _one_call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array, lax
from jax.interpreters import ad

from . import _cholesky, _lu, _one_call
from ._layout import Resolved
from ._lu import Factor
from ._lu_primitives import gesv_p
from ._operands import on_all_devices, pad_rows, reshard, type_spec

Solution = tuple[Array, Array, Array, Array, Array]


def solve(r: Resolved, a: Array, b: Array, *, split: bool) -> tuple[Array, Factor]:
    """x = A^-1 b, as of :func:`_lu.solve`, and the factor, as of :func:`_lu.factor`."""
    x, *factor = _together(r, split, a, b)
    return x, Factor(*(lax.stop_gradient(part) for part in factor))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _together(r: Resolved, split: bool, a: Array, b: Array) -> Solution:
    def apply(rhs: Array, replicated: bool) -> tuple[Array, Any]:
        x, *factor = gesv_p.bind(a, rhs, r=r, replicated=replicated)
        return x, factor

    x, (work, aux, pivots, info) = _cholesky.on_ranks(r, b, apply, split)
    if r.layout.explicit:
        x = reshard(r.layout, x, type_spec(b))
    return x, work, aux, pivots, on_all_devices(r.layout, info)


def _together_jvp(
    r: Resolved, split: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Solution, Solution]:
    def apart(a: Array, b: Array) -> Solution:
        f = _lu.factor(r, a)
        return _lu.solve(r, a, f, b, split=split), *f

    return _one_call.jvp_of(apart, primals, tangents)


_together.defjvp(_together_jvp, symbolic_zeros=True)


def _transpose(
    cotangents: Sequence[Any], a: Array, b: Any, *, r: Resolved, replicated: bool
) -> tuple[None, Any]:
    """Of x as a linear map of b: a solution with A^T."""
    ct = cotangents[0]
    if type(ct) is ad.Zero:
        return None, ad.Zero(b.aval)
    f = _lu.factor(r, a)
    x = _lu.solve(r, a, f, ct[: r.n], split=not replicated, transpose=True)
    return None, pad_rows(x, ct.shape[0])


ad.primitive_transposes[gesv_p] = _transpose
