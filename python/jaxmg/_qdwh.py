"""The polar factor by the dynamically weighted Halley iteration, as the ranks work it out.

    X <- X (a I + b X^H X) (I + c X^H X)^-1,    X from A / alpha with alpha about norm2(A)

maps all singular values of X to 1 and leaves the singular vectors as they are; a, b and c are best
for singular values in [l, 1] and follow from l alone. With Z = I + c X^H X, by Cholesky,

    X <- (b / c) X + (a - b / c) X Z^-1.

That is backward stable as long as c, which bounds the condition of Z, stays small. Where a small l
asks for more than c = 100, the weights are those for c = 100: a step then makes small singular
values 19 times larger. Three or four steps do for a well-conditioned matrix, 15 for any other in
double precision and 8 in single. (The literature takes steps with large c by a QR factorisation of
[sqrt(c) X; I]. That is stable only if large rows are eliminated first, so that rows would have to
move between devices; and each such step costs as much as two of these.)

Singular values far below eps norm2(A) do not move. What is left at zero is set to one by adding a
matrix that maps one null space to the other, which changes A = U H by no more than rounding.

Nakatsukasa, Bai, Gygi: Optimizing Halley's iteration for computing the matrix polar decomposition
(SIAM J. Matrix Anal. Appl. 31, 2010). Nakatsukasa, Higham: Stable and efficient spectral divide
and conquer algorithms (SIAM J. Sci. Comput. 35, 2013). LAPACK has no such routine.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _calls, _qr_calls, _ring
from ._dot import dot
from ._layout import Layout, Resolved, resolve_plan
from ._qr_layout import resolve_qr
from .errors import NO_CONVERGENCE, NON_FINITE, OK

LEAST = 0.04829156  # l for which c = 100
MOST_STEPS = 40
POWER_STEPS = 12  # for an estimate of norm2(A), and what it is taken times
MARGIN = 1.2
MOST_ATTEMPTS = 4
DEFICIENT = 1e-2  # norm of I - X^H X that tells of singular values which are not one


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

    def gram(self, a: Array, b: Array) -> Array:
        """A^H B."""
        return _ring.transposed_times(self.r.layout, self.rank, jnp.conj(a), b, self.r.n)

    def adjoint(self, a: Array) -> Array:
        return _ring.transposed(self.r.layout, self.rank, jnp.conj(a), self.r.n)


def _inverse(p: Place, z: Array) -> tuple[Array, Array]:
    """Z^-1 of a Hermitian positive definite Z, and the kind of a failure."""
    g = p.r.gram
    work, aux, info = _calls.potrf(g, p.ctx, z)
    x = _calls.potri(g, p.ctx, work, aux, info)
    return _ring.true_rows(g.layout, p.rank, x, g.n), info[0]


def _orthonormal(p: Place, s: Array, rows: int) -> tuple[Array, Array]:
    """Q and R of a matrix of `rows` rows, of which `s` are those of this rank."""
    f = resolve_qr(p.r.layout, rows, p.r.n, p.r.dtype)
    q, triangle = _qr_calls.orgqr(f, p.ctx, *_qr_calls.geqrf(f, p.ctx, s), columns=p.r.n)
    return q, triangle


def _weights(lowest: Array) -> tuple[Array, Array, Array]:
    """a, b and c for singular values in [lowest, 1]."""
    l2 = lowest * lowest
    d = jnp.cbrt(4 * (1 - l2) / (l2 * l2))
    root = jnp.sqrt(1 + d)
    a = root + 0.5 * jnp.sqrt(jnp.maximum(8 - 4 * d + 8 * (2 - l2) / (l2 * root), 0))
    b = (a - 1) ** 2 / 4
    return a, b, a + b - 1


def _lowest(p: Place, x: Array) -> Array:
    """A lower bound of the singular values of X, whose norm is about 1.

    1 / s^2 <= norm((X^H X)^-1) for every singular value s. The product loses what lies below
    sqrt(eps); eps is assumed then.
    """
    eps = float(np.finfo(p.r.dtype).eps)
    inverse, failed = _inverse(p, p.gram(x, x))
    found = 0.9 / jnp.sqrt(p.norm(inverse))
    trusted = (failed == OK) & (found * found > 10 * math.sqrt(p.r.n) * eps)
    return jnp.where(trusted, jnp.minimum(found, 1), jnp.asarray(eps, found.dtype))


def _step(p: Place, x: Array, weights: tuple[Array, Array, Array]) -> Array:
    a, b, c = weights
    inverse, _ = _inverse(p, p.identity(x) + c.astype(x.dtype) * p.gram(x, x))
    return (b / c).astype(x.dtype) * x + (a - b / c).astype(x.dtype) * p.times(x, inverse)


def _largest(p: Place, x: Array) -> Array:
    """About norm2(X), from below, by the power method for X^H X."""

    def unit(v: Array) -> Array:
        size = jnp.linalg.norm(v)
        return v / jnp.where(size > 0, size, 1).astype(v.dtype)

    def step(_: int, v: Array) -> Array:
        return unit(p.sum(dot(jnp.conj(x).T, dot(x, v))))

    v = unit(jax.random.normal(jax.random.PRNGKey(0), (x.shape[1], 1), x.dtype))
    v = lax.fori_loop(0, POWER_STEPS, step, v)
    return p.norm(dot(x, v))


class _State(NamedTuple):
    x: Array
    lowest: Array
    moved: Array
    steps: Array


def _iterate(p: Place, x: Array) -> tuple[Array, Array]:
    """X with its singular values at one, but for those that are zero; and the number of steps."""
    eps = float(np.finfo(p.r.dtype).eps)
    columns = jnp.max(p.sum(jnp.sum(jnp.abs(x), axis=0)))
    rows = p.max(jnp.max(jnp.sum(jnp.abs(x), axis=1)))
    # Both are bounds of norm2(X); the larger weight of rounding errors is that of long sums. They
    # can be sqrt(n) too large, which costs steps. An estimate may be a little too small, and that
    # does no harm: singular values above 1 go to 1 too.
    bound = jnp.minimum(p.norm(x), p.agreed(jnp.sqrt(columns * rows))) * (1 + 8 * eps)
    alpha = jnp.minimum(bound, MARGIN * _largest(p, x))
    x = x / jnp.where(alpha > 0, alpha, 1).astype(x.dtype)

    def unfinished(s: _State) -> Array:
        near = (s.moved <= float(np.cbrt(5 * eps))) & (1 - s.lowest <= 5 * eps)
        return (s.steps < MOST_STEPS) & ~near & ~jnp.isnan(s.moved)

    def step(s: _State) -> _State:
        weights = a, b, c = _weights(jnp.maximum(s.lowest, LEAST))
        x = _step(p, s.x, weights)
        square = s.lowest * s.lowest
        lowest = jnp.minimum(s.lowest * (a + b * square) / (1 + c * square), 1)
        return _State(x, lowest, p.norm(x - s.x), s.steps + 1)

    start = _State(x, _lowest(p, x), jnp.asarray(np.inf, alpha.dtype), jnp.int32(0))
    end = lax.while_loop(unfinished, step, start)
    return end.x, end.steps


def _polished(p: Place, x: Array) -> tuple[Array, Array]:
    """One Newton-Schulz step, X (3 I - X^H X) / 2, and norm(I - X^H X) before it."""
    gram = p.gram(x, x)
    one = p.identity(x)
    return 0.5 * p.times(x, 3 * one - gram), p.norm(one - gram)


def _completed(p: Place, x: Array, attempt: Array) -> Array:
    """X + (I - X X^H) Y (I - X^H X), which fills the null spaces of a partial isometry X.

    Y = I leaves diagonal and semidefinite matrices as they are; where it maps a part of one null
    space into the range of X, random numbers do better.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(0), attempt), p.rank)
    y = jax.random.normal(key, x.shape, x.dtype) / math.sqrt(p.r.n)
    y = _ring.true_rows(p.r.layout, p.rank, y, p.r.n)
    y = jnp.where(attempt == 1, p.identity(x), y)
    y = y - p.times(y, p.gram(x, x))
    return x + (y - p.times(x, p.gram(x, y)))


class _Attempt(NamedTuple):
    x: Array
    defect: Array
    attempt: Array
    steps: Array


def _square(p: Place, x: Array) -> tuple[Array, Array, Array]:
    """The unitary polar factor of an n x n matrix; whether it was found; steps taken."""

    def unfinished(s: _Attempt) -> Array:
        return (s.defect > DEFICIENT) & (s.attempt < MOST_ATTEMPTS)

    def attempt(s: _Attempt) -> _Attempt:
        x = lax.cond(s.attempt == 0, lambda x: x, lambda x: _completed(p, x, s.attempt), s.x)
        x, steps = _iterate(p, x)
        x, defect = _polished(p, x)
        return _Attempt(x, defect, s.attempt + 1, s.steps + steps)

    infinite = jnp.asarray(np.inf, jnp.finfo(x.dtype).dtype)
    end = lax.while_loop(unfinished, attempt, _Attempt(x, infinite, jnp.int32(0), jnp.int32(0)))
    return end.x, end.defect <= DEFICIENT, end.steps


def _power_of_two(largest: Array) -> tuple[Array, Array]:
    """Powers of two s and 1 / s with s * largest about 1."""
    _, exponent = jnp.frexp(largest)
    limit = jnp.finfo(largest.dtype).maxexp - 2
    exponent = jnp.clip(exponent, -limit, limit)
    one = jnp.ones_like(largest)
    return jnp.ldexp(one, -exponent), jnp.ldexp(one, exponent)


def polar(r: ResolvedPolar, ctx: Array, a: Array, *, want_h: bool) -> list[Array]:
    """U, [H,] info of the rows of A on this rank, which are zero beyond the end."""
    p = Place(r, ctx)
    largest = p.max(jnp.max(jnp.maximum(jnp.abs(jnp.real(a)), jnp.abs(jnp.imag(a)))))
    # Maxima over ranks may pass over NaN.
    finite = p.sum(jnp.sum(~jnp.isfinite(a), dtype=jnp.int32)) == 0
    down, up = _power_of_two(jnp.where(finite, largest, 1))
    x = jnp.where(finite, a * down.astype(a.dtype), jnp.zeros_like(a))
    if r.m > r.n:
        q, x = _orthonormal(p, x, r.m)
        u, found, steps = _square(p, x)
        unitary = p.times(q, u)
    else:
        u, found, steps = _square(p, x)
        unitary = u
    kind = jnp.where(finite, jnp.where(found, OK, NO_CONVERGENCE), NON_FINITE)
    good = kind == OK
    keep = lambda x: jnp.where(good, x, jnp.asarray(jnp.nan, x.dtype))  # noqa: E731
    results = [keep(unitary)]
    if want_h:
        h = p.gram(u, x)
        h = 0.5 * (h + p.adjoint(h))
        results.append(keep(h * up.astype(h.dtype)))
    place = lax.iota(jnp.int32, 8)
    position = jnp.where(kind == NO_CONVERGENCE, steps, 0)
    info = jnp.where(place == 0, kind, jnp.where(place == 1, position, 0))
    return [*results, jnp.where(place == 4, steps, info).astype(jnp.int32)]
