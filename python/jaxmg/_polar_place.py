"""Who works on a polar decomposition, and what all ranks do together for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from . import _ring
from ._dot import dot
from ._layout import Layout, Resolved, resolve_plan
from ._polar_plan import WIDE_MARGIN
from ._scattered import scattered

POWER_STEPS = 12


@dataclasses.dataclass(frozen=True)
class ResolvedPolar:
    """One polar decomposition of an m x n matrix, m >= n, as far as it is known without data.

    Attributes:
        layout: where the rows lie.
        m, n: true size of the matrix.
        dtype: name of the element type.
        tile: rows that Cholesky factorisations eliminate together (0: chosen by the plan).
        gathered: whether every device works on all of the matrix by itself; see _gather.
        exposed: as in Resolved.
    """

    layout: Layout
    m: int
    n: int
    dtype: str
    tile: int = 0
    gathered: bool = False
    exposed: bool = False

    @functools.cached_property
    def gram(self) -> Resolved:
        """The Cholesky factorisations of n x n matrices on the way."""
        return resolve_plan(self.layout, self.n, self.dtype, tile=self.tile)

    @property
    def call_id(self) -> int:
        return self.gram.call_id

    @functools.cached_property
    def on_one_rank(self) -> ResolvedPolar:
        single = Layout(platform=self.layout.platform)
        return dataclasses.replace(self, layout=single, gathered=False)

    def padded(self, size: int) -> int:
        return self.layout.ranks * _ring.block_rows(self.layout, size)


class Place(NamedTuple):
    """Who works: the call and the context of this rank."""

    r: ResolvedPolar
    ctx: Array

    @property
    def rank(self) -> Array:
        return self.ctx[0]

    def sum(self, x: Array) -> Array:
        return lax.psum(x, self.r.layout.axes) if self.r.layout.axes else x

    def max(self, x: Array) -> Array:
        return lax.pmax(x, self.r.layout.axes) if self.r.layout.axes else x

    def agreed(self, x: Array) -> Array:
        """The number that rank 0 has: bit by bit the same on all ranks, for branches."""
        return self.sum(jnp.where(self.rank == 0, x, jnp.zeros_like(x)))

    def norm(self, x: Array) -> Array:
        """Frobenius norm."""
        return self.agreed(jnp.sqrt(self.sum(jnp.sum(jnp.square(jnp.abs(x))))))

    def identity(self, like: Array) -> Array:
        """Rows of the identity beside a block of n columns."""
        columns = lax.broadcasted_iota(jnp.int32, like.shape, 1)
        return (_ring.row_index(like, self.rank) == columns).astype(like.dtype)

    # Products of n x n matrices.
    def times(self, a: Array, b: Array) -> Array:
        return _ring.times(self.r.layout, self.rank, a, b, self.r.n)

    def adjoint_times(self, a: Array, b: Array) -> Array:
        """A^H B."""
        return _ring.transposed_times(self.r.layout, self.rank, jnp.conj(a), b, self.r.n)

    def adjoint(self, a: Array) -> Array:
        return _ring.transposed(self.r.layout, self.rank, jnp.conj(a), self.r.n)

    def hermitian(self, a: Array, b: Array) -> Array:
        """A^H B where it is Hermitian."""
        return _ring.hermitian_times(self.r.layout, self.rank, a, b, self.r.n)

    def gram(self, x: Array) -> Array:
        return self.hermitian(x, x)


def largest(p: Place, product: Callable[[Array], Array], like: Array) -> Array:
    """About norm2(M) of a Hermitian M with M v = `product`(v), from below, by the power method.

    Above n^(-1 / (2 steps)) norm2(M) but for very few starts.
    """

    def unit(v: Array) -> Array:
        size = jnp.linalg.norm(v)
        return v / jnp.where(size > 0, size, 1).astype(v.dtype)

    places = lax.broadcasted_iota(jnp.int32, (like.shape[1], 1), 0)
    v = unit(scattered(places, jnp.zeros_like(places), 0, like.dtype))
    v = lax.fori_loop(0, POWER_STEPS, lambda _, v: unit(product(v)), v)
    return p.agreed(jnp.linalg.norm(product(v)))


def bound(p: Place, h: Array) -> Array:
    """A bound of norm2(H) for a Hermitian H: for certain, or almost, whichever is less."""
    height, n = h.shape

    def product(v: Array) -> Array:  # H v = H^H v
        v = jnp.pad(v, ((0, p.r.layout.ranks * height - n), (0, 0)))
        mine = lax.dynamic_slice_in_dim(v, p.rank * height, height)
        return p.sum(dot(jnp.conj(h).T, mine))

    return jnp.minimum(p.norm(h), WIDE_MARGIN * largest(p, product, h))
