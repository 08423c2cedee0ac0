"""The LU factor as an object that users keep, pass around and solve with."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _lu, _lu_manual, _manual
from ._cholesky import jitted_status
from ._condition import inverse_norm1
from ._context import on_own_mesh
from ._factor_base import FactorBase
from ._layout import Resolved
from ._lu import Factor
from ._operands import constrain, gathered, on_mesh
from ._resolve import is_concrete
from .errors import JaxMgWarning


class SlogdetResult(NamedTuple):
    """Sign (for complex matrices: phase) and log(abs(det(A)))."""

    sign: Array
    logabsdet: Array


TRANSPOSITIONS = {0: "N", 1: "T", 2: "H", "N": "N", "T": "T", "H": "H", "C": "H"}


def transposition(trans: Any) -> str:
    """ "N", "T" or "H" for what SciPy and LAPACK call `trans`."""
    try:
        found = None if isinstance(trans, bool) else TRANSPOSITIONS.get(trans)
    except TypeError:
        found = None
    if found is None:
        raise ValueError(
            f"trans: got {trans!r}; accepted are 0 or 'N' (A x = b), 1 or 'T' (A^T x = b), and 2, "
            "'H' or 'C' (A^H x = b)."
        )
    return found


def norm1(a: Array) -> Array:
    """The largest sum of absolute values in a column."""
    return jnp.max(jnp.sum(jnp.abs(a), axis=0))


def _factorise(r: Resolved, a: Array) -> Factor:
    return _lu.factor(r, _lu.enter(r, on_mesh(r.layout, a)))


def _factorise_with_norm(r: Resolved, a: Array) -> tuple[Factor, Array]:
    return _factorise(r, a), norm1(a[: r.n])


factorise: Callable[..., Factor] = on_own_mesh(jax.jit(_factorise, static_argnums=0))
factorise_in_place: Callable[..., tuple[Factor, Array]] = on_own_mesh(
    jax.jit(_factorise_with_norm, static_argnums=0, donate_argnums=1)
)


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _solve(
    r: Resolved, trans: str, split: bool, spec: Any, a: Array | None, f: Factor, b: Array
) -> Array:
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    if r.n > 0 and b.shape[1] > 0:
        conjugate = trans == "H" and r.is_complex
        b = jnp.conj(b) if conjugate else b
        transpose = trans != "N"
        if r.layout.kind == "manual":
            if a is None:
                raise ValueError("a factor that took over its matrix cannot be used in shard_map.")
            source = _manual.varying(a)
            b = _lu_manual.solve(r, _lu.enter(r, a), f, b, source, transpose=transpose)
        else:
            a = None if a is None else _lu.enter(r, on_mesh(r.layout, a))
            b = _lu.solve(r, a, f, on_mesh(r.layout, b), split=split, transpose=transpose)
        b = jnp.conj(b) if conjugate else b
        if spec is not None and not r.layout.explicit:
            b = constrain(r.layout, b, spec)
    return b[:, 0] if vector else b


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _slogdet(r: Resolved, a: Array | None, f: Factor) -> SlogdetResult:
    if r.n == 0:
        return SlogdetResult(jnp.ones((), r.dtype), jnp.zeros((), r.real_dtype))
    if r.layout.kind == "manual":
        assert a is not None
        source, parts = _manual.varying(a), _lu.stopped(f)
        return SlogdetResult(*_lu_manual.slogdet(r, source, _lu.enter(r, a), *parts))
    a = None if a is None else _lu.enter(r, on_mesh(r.layout, a))
    return SlogdetResult(*_lu.slogdet(r, a, f))


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _inverse(r: Resolved, a: Array, f: Factor) -> Array:
    x = _lu.inverse(r, _lu.enter(r, on_mesh(r.layout, a)), f)
    return x if x.shape[0] == r.n else gathered(r.layout, x)[: r.n]


def _factor_and_invert(r: Resolved, a: Array) -> Array:
    a = _lu.enter(r, on_mesh(r.layout, a))
    x = _lu.inverse(r, a, _lu.factor(r, a))
    return x if x.shape[0] == r.n else gathered(r.layout, x)[: r.n]


# The factor is never seen, so that the inverse takes its place.
invert: Callable[..., Array] = on_own_mesh(jax.jit(_factor_and_invert, static_argnums=0))
invert_in_place: Callable[..., Array] = on_own_mesh(
    jax.jit(_factor_and_invert, static_argnums=0, donate_argnums=1)
)


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _rcond(r: Resolved, norm: Array, f: Factor) -> Array:
    if r.n == 0:
        return jnp.ones((), r.real_dtype)
    solve = lambda trans: lambda b: _solve(r, trans, False, None, None, f, b)  # noqa: E731
    inverse = inverse_norm1(solve("N"), solve("H"), r.n, r.dtype)
    value = 1 / (norm * inverse)
    bad = jnp.asarray(jnp.nan, value.dtype)
    return jnp.where(f.info[0] > 0, jnp.zeros_like(value), jnp.where(f.info[0] < 0, bad, value))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["a", "parts", "norm"], meta_fields=["r"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class LUFactor(FactorBase):
    """An LU factorisation that stays spread over the devices. A pytree.

    Made by :func:`jaxmg.linalg.lu_factor`. It passes through ``jit``, ``grad``, ``vmap`` and
    ``scan``; derivatives flow through the matrix that it was made of, and a factor of a batch of
    matrices has batched solutions. Unpacks as SciPy's pair: ``lu, piv = lu_factor(A)``.

    Attributes:
        a: the matrix (None if the factor took over its buffer: derivatives then are those with
            respect to right-hand sides alone).
        parts: the arrays of the factor, in a form of its own: equations are eliminated in an
            order that balances the load. :func:`jaxmg.linalg.lu` gives P, L and U of A itself.
        norm: the 1-norm of a matrix that was taken over, else None.
        r: layout, sizes and element type.
    """

    a: Any
    parts: Factor
    norm: Any
    r: Resolved

    def __iter__(self) -> Iterator[Any]:
        yield self
        yield self.parts.pivots[..., self.r.n :]

    @property
    def status(self) -> Array:
        """0, or the number of the first equation that depends on others, or a kind (< 0)."""
        return jitted_status(self.parts.info)

    def solve(self, b: Any, trans: int | str = 0) -> Array:
        """Solves A x = b, or a transposed system.

        Args:
            b: shape (n,), or (..., n, k) whose batch axes broadcast with those of the factor.
            trans: 0 or "N": A x = b; 1 or "T": A^T x = b; 2 or "H": A^H x = b.

        Returns:
            x with the shape of `b` (batch axes broadcast).
        """
        kind = transposition(trans)
        return self._solve(
            "lu_solve",
            b,
            lambda f, split, spec, b: _solve(f.r, kind, split, spec, f.a, f.parts, b),
        )

    def slogdet(self) -> SlogdetResult:
        """Sign (or phase) and log(abs(det(A))), with the shape of the batch."""
        out: SlogdetResult = self._mapped(lambda f: _slogdet(f.r, f.a, f.parts))
        return out

    def det(self) -> Array:
        """The determinant; see :meth:`slogdet` for one that cannot overflow."""
        sign, log = self.slogdet()
        return sign * jnp.exp(log).astype(sign.dtype)

    def inv(self) -> Array:
        """The inverse of the matrix, with its shape and sharding."""
        if self.a is None or self.r.layout.kind == "manual":
            raise ValueError(
                "inv: needs the matrix (overwrite_a=False) and is not available inside shard_map."
            )
        out: Array = self._mapped(lambda f: f.a if f.r.n == 0 else _inverse(f.r, f.a, f.parts))
        return out

    def rcond(self, warn: bool = False) -> Array:
        """An estimate of 1 / (norm1(A) norm1(A^-1)), from some five solutions.

        By the method of Hager and Higham (LAPACK: xGECON): as a rule right to within a factor of
        3, and never too small by more than rounding. 0 for a singular matrix.

        Args:
            warn: eagerly, whether to warn if it is below the machine epsilon: then a solution may
                have no correct digit.
        """
        if self.r.layout.kind == "manual":
            raise ValueError("rcond: not available inside shard_map.")
        value = self._mapped(lambda f: _rcond(f.r, f._norm1(), f.parts))
        if warn and is_concrete(value):
            least = float(np.min(np.asarray(value), initial=np.inf))
            if not least >= float(jnp.finfo(self.r.real_dtype).eps):
                warnings.warn(
                    f"lu: the matrix is ill-conditioned (rcond = {least:.3g}); a solution may have "
                    "no correct digit.",
                    JaxMgWarning,
                    stacklevel=2,
                )
        out: Array = value
        return out

    def _norm1(self) -> Array:
        value: Array = self.norm if self.a is None else _norm1(self.r, self.a)
        return value


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _norm1(r: Resolved, a: Array) -> Array:
    rows = jnp.arange(a.shape[0])[:, None] < r.n
    return norm1(jnp.where(rows, on_mesh(r.layout, a), 0)) if r.n else jnp.zeros((), r.real_dtype)
