"""Factorisation and solution in one call of the engine, where nothing is differentiated.

Substitution with a factor is a chain of messages from device to device, two for each tile. Half of
them are not needed if the right-hand sides are eliminated together with the matrix. Derivatives are
those of the two calls one after the other: differentiated programs make these instead, so that
there is one factorisation in any case.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from . import _cholesky
from ._cholesky import Factor
from ._layout import RELABELLED, Resolved, entries
from ._operands import on_all_devices, pad_rows, reshard, type_spec
from ._primitives import posv_p

VARIABLE = "JAXMG_ELIMINATE_RHS"

Solution = tuple[Array, Array, Array, Array]


def setting() -> bool | None:
    """What the environment says: never, wherever it can be done, or nothing."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}: got {text!r}; accepted are 0 and 1.")
    return None if not text else text == "1"


def pays(r: Resolved, nrhs: int) -> bool:
    """Whether right-hand sides had better be eliminated together with the matrix."""
    layout = r.layout
    if layout.kind != "dist" or r.n == 0 or nrhs == 0:
        return False
    if r.backend != "native" or r.mixed or r.gathered or r.order != RELABELLED:
        return False
    chosen = setting()
    if chosen is None:
        # Tiles on CPUs take far longer than messages between threads.
        chosen = layout.platform == "cuda" and layout.ranks > 1
    return chosen and _eliminated(r, nrhs) == nrhs


@functools.lru_cache(maxsize=1024)
def _eliminated(r: Resolved, nrhs: int) -> int:
    layout = r.layout
    plan = entries(
        "posv", r.n, r.dtype, layout.ranks, layout.platform, nrhs=nrhs, tile=r.tile, order=r.order
    )
    return int(plan["eliminated_rhs"])


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


def _one_after_the_other(r: Resolved, split: bool, a: Array, b: Array) -> Solution:
    f = _cholesky.factor(r, a)
    return _cholesky.solve(r, a, f, b, split=split), *f


def _together_jvp(
    r: Resolved, split: bool, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Solution, Solution]:
    # No product with a tangent that is known to be zero: it would be as large as A.
    moving = [not isinstance(t, SymbolicZero) for t in tangents]

    def moved(*given: Array) -> Solution:
        rest = iter(given)
        a, b = (next(rest) if m else x for x, m in zip(primals, moving, strict=True))
        return _one_after_the_other(r, split, a, b)

    pairs = [(x, t) for x, t, m in zip(primals, tangents, moving, strict=True) if m]
    out: tuple[Solution, Solution] = jax.jvp(moved, [x for x, _ in pairs], [t for _, t in pairs])
    return out


_together.defjvp(_together_jvp, symbolic_zeros=True)


def _transpose(
    cotangents: Sequence[Any], a: Array, b: Any, *, r: Resolved, replicated: bool
) -> tuple[None, Any]:
    """Of x as a linear map of b: (A^-1)^T = conj(A^-1)."""
    ct = cotangents[0]
    if type(ct) is ad.Zero:
        return None, ad.Zero(b.aval)
    x = _cholesky.solve(r, a, _cholesky.factor(r, a), jnp.conj(ct)[: r.n], split=not replicated)
    return None, pad_rows(jnp.conj(x), ct.shape[0])


ad.primitive_transposes[posv_p] = _transpose
