"""The Cholesky factor as an object that users keep, pass around and solve with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _calls, _cholesky, _manual, _mixed
from ._arguments import (
    broadcast_batches,
    cast,
    check_rhs,
    common_dtype,
    host_or_device,
    place_rhs,
)
from ._cholesky import Factor
from ._context import on_own_mesh
from ._layout import NATURAL, Layout, Resolved
from ._mixed import MixedFactor
from ._operands import constrain, constrain_rows, gathered, on_mesh, pad_rows
from ._prepared import Prepared, signature
from ._resolve import rhs_spec, splits_rows
from ._rows import keep_rows
from ._triangular_primitives import half_p, triangle_p
from ._vma import varying

# How right-hand sides of a signature lie: split by rows or else their spec.
_prepared: Prepared[tuple[bool, Any]] = Prepared()


def elimination_order(r: Resolved) -> np.ndarray:
    """Row of A that is eliminated at each place: tile 0 of every rank, tile 1 of every rank, ..."""
    index = np.arange(r.n)
    if r.order == NATURAL:
        return index
    rank, local = index // max(r.rows, 1), index % max(r.rows, 1)
    return np.lexsort((local, rank, local // r.tile))


Parts = Factor | MixedFactor


def _factorise(r: Resolved, a: Array) -> Parts:
    if r.mixed:
        return _mixed.factor(r, _cholesky.enter(r, on_mesh(r.layout, a)))
    f = _cholesky.factor(r, _cholesky.enter(r, on_mesh(r.layout, a)))
    return _cholesky.locate(r, f)


factorise: Callable[..., Parts] = on_own_mesh(jax.jit(_factorise, static_argnums=0))
factorise_in_place: Callable[..., Parts] = on_own_mesh(
    jax.jit(_factorise, static_argnums=0, donate_argnums=1)
)


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _solve(r: Resolved, split: bool, spec: Any, a: Array | None, f: Parts, b: Array) -> Array:
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    if r.n > 0 and b.shape[1] > 0:
        if r.layout.kind == "manual":
            if a is None:
                raise ValueError("a factor that took over its matrix cannot be used in shard_map.")
            source = varying(a)
            b = _manual.solve(r, _cholesky.enter(r, a), f, b, source)
        else:
            a = None if a is None else _cholesky.enter(r, on_mesh(r.layout, a))
            b = on_mesh(r.layout, b)
            if isinstance(f, MixedFactor):
                assert a is not None
                b = _mixed.solve(r, a, f, b, split=split)[0]
            else:
                b = _cholesky.solve(r, a, f, b, split=split)
            if spec is not None and not r.layout.explicit:
                b = constrain(r.layout, b, spec)
    return b[:, 0] if vector else b


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _logdet(r: Resolved, a: Array | None, f: Factor) -> Array:
    if r.n == 0:
        return jnp.zeros((), r.real_dtype)
    if r.layout.kind == "manual":
        assert a is not None
        source = varying(a)
        entered = _cholesky.enter(r, a)
        value: Array = _manual.logdet(r, source, entered, *(lax.stop_gradient(x) for x in f))
        return value
    a = None if a is None else _cholesky.enter(r, on_mesh(r.layout, a))
    return _cholesky.logdet(r, a, f)


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _inverse(r: Resolved, a: Array, f: Factor) -> Array:
    a = _cholesky.enter(r, on_mesh(r.layout, a))
    x: Array = _cholesky.inverse(r, a, *(lax.stop_gradient(x) for x in f))
    return x if x.shape[0] == r.n else gathered(r.layout, x)[: r.n]


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _triangle(r: Resolved, f: Factor) -> tuple[Array, Array]:
    if r.order == NATURAL:
        (x,) = triangle_p.bind(f.work, f.info, r=r, upper=False)
        x = constrain_rows(r.layout, x)
        return x if x.shape[0] == r.n else gathered(r.layout, x)[: r.n], jnp.arange(r.n)
    alone = f.info[_calls.MADE_ON] == 1
    order = jnp.where(alone, jnp.arange(r.n), jnp.asarray(elimination_order(r)))
    # Row g of the work buffer holds column g of conj(L), in natural numbering on both sides.
    work = gathered(r.layout, f.work)[: r.n]
    lower = jnp.tril(jnp.conj(work[order][:, order].T))
    return _calls.unless_failed(f.info, lower), order


def _half(r: Resolved, f: Factor, b: Array, *, back: bool, split: bool = False) -> Array:
    """L^-1 b, or L^-H b if `back`, with no derivatives."""
    if r.n == 0 or b.shape[1] == 0:
        return b
    even = r.n % r.layout.ranks == 0
    if split and r.layout.kind == "dist" and (even or not r.layout.explicit):
        b = pad_rows(b, r.padded_rows)
        (x,) = half_p.bind(f.work, f.info, b, r=r, back=back, replicated=False)
        return keep_rows(r, x[: r.n])
    b = gathered(r.layout, b)
    out: Array = half_p.bind(f.work, f.info, b, r=r, back=back, replicated=True)[0]
    return out


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["a", "parts"], meta_fields=["r", "lower"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class CholeskyFactor:
    """A Cholesky factorisation that stays spread over the devices. A pytree.

    Made by :func:`jaxmg.linalg.cho_factor`. It passes through ``jit``, ``grad``, ``vmap`` and
    ``scan``; derivatives flow through the matrix that it was made of, and a factor of a batch of
    matrices has batched solutions. Unpacks as SciPy's pair: ``c, lower = cho_factor(A)``.

    Attributes:
        a: the matrix (None if the factor took over its buffer: derivatives then are those with
            respect to right-hand sides alone).
        parts: the arrays of the factor, in a form of its own; see :meth:`factor`.
        r: layout, sizes and element type.
        lower: which triangle of the matrix was read (None: all of it).
    """

    a: Any
    parts: Parts
    r: Resolved
    lower: bool | None = None

    def __iter__(self) -> Iterator[Any]:
        yield self
        yield self.lower

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix, batch axes first."""
        return (*self.parts.work.shape[:-2], self.r.n, self.r.n)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return jnp.dtype(self.r.dtype)

    @property
    def status(self) -> Array:
        """0, or the order of the first leading minor that is not positive definite, or a kind."""
        parts = self.parts
        return _cholesky.jitted_status(
            parts.verdict if isinstance(parts, MixedFactor) else parts.info
        )

    @property
    def in_full(self) -> CholeskyFactor:
        """Itself, or what it would be without mixed precision: factored anew."""
        if not self.r.mixed:
            return self
        r = dataclasses.replace(self.r, mixed=False)
        return CholeskyFactor(self.a, factorise(r, lax.stop_gradient(self.a)), r, self.lower)

    @property
    def n(self) -> int:
        """Size of the matrix."""
        return self.r.n

    @property
    def layout(self) -> Layout:
        return self.r.layout

    @property
    def precision(self) -> int:
        return self.r.precision

    @property
    def has_matrix(self) -> bool:
        """Whether derivatives with respect to the matrix are known."""
        return self.a is not None

    def forward(self, x: Array, split: bool = False) -> tuple[Array, ...]:
        """Y with L Y = X for X of shape (n, k), rows numbered as those of the matrix.

        In a tuple, as of factors with several parts. `split`: X, and Y, split by rows.
        """
        assert isinstance(self.parts, Factor)
        return (_half(self.r, self.parts, x, back=False, split=split),)

    def backward(self, pieces: tuple[Array, ...]) -> Array:
        """X with L^H X = Y."""
        assert isinstance(self.parts, Factor)
        return _half(self.r, self.parts, pieces[0], back=True)

    def product(self, x: Array) -> Array:
        """The matrix times X, whole on every device if axes are explicit."""
        return gathered(self.r.layout, _cholesky.matvec(self.r, self.a, x))

    @property
    def _batch_axes(self) -> int:
        return int(self.parts.work.ndim) - 2

    def _mapped(self, function: Callable[..., Any]) -> Any:
        for _ in range(self._batch_axes):
            function = jax.vmap(function)
        return function(self)

    def solve(self, b: Any) -> Array:
        """Solves A x = b.

        Args:
            b: shape (n,), or (..., n, k) whose batch axes broadcast with those of the factor.

        Returns:
            x with the shape of `b` (batch axes broadcast).
        """
        axes = self._batch_axes
        key = None if axes else signature(b, None, (self.r,))
        known = _prepared.get(key)
        if known is not None:
            return _solve(self.r, *known, self.a, self.parts, b)
        given, b = b, host_or_device(b, "b")
        if b.ndim > 2 or axes:
            return self._solve_batch(b)
        dtype = common_dtype("cho_solve", factor=self, b=b)
        if dtype != self.r.dtype:
            raise TypeError(
                f"cho_solve: b has dtype {b.dtype} beside a factor of {self.r.dtype}; factor the "
                f"matrix as {dtype} first."
            )
        check_rhs("cho_solve", b, self.r.n)
        b = cast(b, dtype)
        spec = rhs_spec(b, None, self.r.layout)
        layout = self.r.layout
        even = self.r.n % layout.ranks == 0
        split = splits_rows(spec, layout) and (even or not layout.explicit)
        b = place_rhs(b, layout)
        how = split, None if split else spec
        if b is given:
            _prepared.put(key, how)
        return _solve(self.r, *how, self.a, self.parts, b)

    def _solve_batch(self, b: Any) -> Array:
        tail = b.shape if b.ndim == 1 else b.shape[-2:]
        mine = self.shape[:-2]
        batch = broadcast_batches("cho_solve", mine, () if b.ndim == 1 else b.shape[:-2])
        b = jnp.broadcast_to(b, (*batch, *tail))
        # Axes that the factor lacks, or has with size 1 only, are not mapped over it.
        aligned = (*(None,) * (len(batch) - len(mine)), *mine)
        mapped = [have == size for have, size in zip(aligned, batch, strict=True)]
        drop = tuple(i for i, used in enumerate(mapped[len(batch) - len(mine) :]) if not used)
        factor = jax.tree.map(lambda x: jnp.squeeze(x, axis=drop), self) if drop else self
        function: Callable[..., Any] = CholeskyFactor.solve
        for used in reversed(mapped):
            function = jax.vmap(function, (0 if used else None, 0))
        x: Array = function(factor, b)
        return x

    def logdet(self) -> Array:
        """log(det(A)), real, with the shape of the batch."""

        def one(f: CholeskyFactor) -> Array:
            f = f.in_full
            return _logdet(f.r, f.a, f.parts)

        out: Array = self._mapped(one)
        return out

    def inv(self) -> Array:
        """The inverse of the matrix, Hermitian, with its shape and sharding."""
        if self.a is None or self.r.layout.kind == "manual":
            raise ValueError(
                "inv: needs the matrix (overwrite_a=False) and is not available inside shard_map."
            )

        def one(f: CholeskyFactor) -> Array:
            f = f.in_full
            return f.a if f.r.n == 0 else _inverse(f.r, f.a, f.parts)

        out: Array = self._mapped(one)
        return out

    def factor(self) -> tuple[Array, Array]:
        """L and the order p with A[p][:, p] = L L^H.

        Rows are eliminated in an order that balances the load, hence the permutation. L is
        collected from all devices then: this is meant for matrices that fit on one. A factor with
        ``order="natural"`` has p = 0, 1, ..., and L keeps the rows on their devices.

        Returns:
            The lower triangle L, shape (n, n), and the indices p, shape (n,).
        """
        if self.r.layout.kind == "manual":
            raise ValueError("factor: not available inside shard_map.")

        def one(f: CholeskyFactor) -> tuple[Array, Array]:
            f = f.in_full
            return _triangle(f.r, f.parts)

        out: tuple[Array, Array] = self._mapped(one)
        return out
