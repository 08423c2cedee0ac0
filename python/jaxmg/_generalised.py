"""The generalised eigenproblem of a Hermitian A and a Hermitian positive definite B = L L^H.

    type 1   A x = w B x     C = L^-1 A L^-H    x = L^-H y    x^H B x = 1
    type 2   A B x = w x     C = L^H A L        x = L^-H y    x^H B x = 1
    type 3   B A x = w x     C = L^H A L        x = L y       x^H B^-1 x = 1

with C y = w y. LAPACK: xSYGVD, xHEGVD. Eigenvalues are as accurate as cond(B) allows. All products
go round the ring of ranks, and triangular systems are solved where their rows lie.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import _eig, _matmul, _natural
from ._decomposition import Results
from ._eig import NO_TANGENT
from ._hermitian import valid_part, weight
from ._layout import NATURAL, Resolved, resolve_plan
from ._matmul import Ring
from ._operands import pad_rows
from ._syevd import EigenCall, decompose
from ._triangular_primitives import trsm_p

TYPES = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class GeneralisedCall:
    """Everything static about one call.

    Attributes:
        eig: the call for C.
        type: which problem.
        triangle: which triangle of A and B is valid, as in Resolved.
    """

    eig: EigenCall
    type: int
    triangle: int

    @property
    def n(self) -> int:
        return self.eig.r.n

    @functools.cached_property
    def ring(self) -> Ring:
        return Ring(self.eig.r.layout)

    def _plan(self, routine: str) -> Resolved:
        r = self.eig.r
        return resolve_plan(r.layout, r.n, r.dtype, order=NATURAL, routine=routine)

    @functools.cached_property
    def factor(self) -> Resolved:
        return self._plan("potrf")

    @functools.cached_property
    def solve(self) -> Resolved:
        return self._plan("trsm")

    def whole(self, a: Array) -> Array:
        """A from its valid part."""
        part = valid_part(self.triangle, a)
        return weight(self.triangle) * (part + _matmul.adjoint(self.ring, part, self.n))


def _solved(call: GeneralisedCall, lower: Array, y: Array, adjoint: bool = False) -> Array:
    """L^-1 Y, or L^-H Y, for Y split by rows."""
    ring, n = call.ring, call.n
    fixed = lax.stop_gradient(lower)

    def run(transpose: int, y: Array) -> Array:
        x: Array = trsm_p.bind(
            fixed, y, r=call.solve, replicated=False, upper=False, transpose=transpose, unit=False
        )[0]
        return _matmul.rows(ring, x)

    def back(y: Array) -> Array:
        if not adjoint:
            return run(1, y)
        return _matmul.conj(run(0, _matmul.conj(y)))

    def product(x: Array) -> Array:
        if adjoint:
            return _matmul.adjoint_times(ring, lower, x, n)
        return _matmul.times(ring, lower, x)

    out: Array = lax.custom_linear_solve(
        product,
        y,
        lambda _, y: run(2 if adjoint else 0, y),
        transpose_solve=lambda _, y: back(y),
    )
    return out


def _congruent(call: GeneralisedCall, lower: Array, a: Array) -> Array:
    """L^-1 A L^-H."""
    half = _solved(call, lower, a)
    return _solved(call, lower, _matmul.adjoint(call.ring, half, call.n))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _factor(call: GeneralisedCall, b: Array) -> tuple[Array, Array]:
    """L, and info, of a Hermitian B with padded rows."""
    lower, info = _natural.factorise(call.factor, False, b)
    return pad_rows(_matmul.rows(call.ring, lower), call.eig.r.padded_rows), info


@_factor.defjvp
def _factor_jvp(call: GeneralisedCall, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    # dL = L phi(L^-1 dB L^-H): phi takes the lower triangle, and half of the diagonal.
    lower, info = _factor(call, *primals)
    change = _congruent(call, lower, tangents[0])
    rows = _matmul.rows(call.ring, jnp.arange(change.shape[0]))[:, None]
    columns = jnp.arange(call.n)[None, :]
    half = jnp.where(rows == columns, 0.5 * change, jnp.zeros_like(change))
    phi = jnp.where(rows > columns, change, half)
    return (lower, info), (_matmul.times(call.ring, lower, phi), NO_TANGENT)


def generalised_call(call: GeneralisedCall, a: Array, b: Array) -> Results:
    """The program of one call."""
    r, ring, enter = call.eig.r, call.ring, call.eig.operand.enter
    if r.n == 0:
        return decompose(call.eig, a)
    a = call.whole(_eig.enter(r, enter(a)))
    lower, failure = _factor(call, call.whole(_eig.enter(r, enter(b))))
    if call.type == 1:
        c = _congruent(call, lower, a)
    else:
        c = _matmul.adjoint_times(ring, lower, _matmul.times(ring, a, lower), r.n)
    averaged = dataclasses.replace(call.eig.wanted, average=True)
    out = decompose(dataclasses.replace(call.eig, wanted=averaged), c)
    if out.right is not None:
        if call.type == 3:
            out.right = _matmul.times(ring, lower, out.right)
        else:
            out.right = _solved(call, lower, out.right, adjoint=True)
    out.info = jnp.where(failure[0] != 0, failure, out.info)
    return out


run_generalised = jax.jit(generalised_call, static_argnums=0)
