"""The polar factor by the dynamically weighted Halley iteration, as the ranks work it out.

    X <- X (a I + b X^H X) (I + c X^H X)^-1,    X from A / alpha with alpha about norm2(A)

makes all singular values larger and leaves the singular vectors as they are; a, b and c are best
for singular values in [l, 1] and follow from l alone. With Z = I + c X^H X, by Cholesky,

    X <- (b / c) X + (a - b / c) X Z^-1.

Rounding in Z shows in A = U H as an error of about sqrt(c) eps norm2(A). Where a small l asks for a
large c, the weights are those for some c between 100 and 1000, never for c > n > 100: the smallest
with which the whole takes least time. Such a step makes small singular values 19 to 62 times
larger. (The literature takes steps with large c by a QR factorisation of [sqrt(c) X; I]. That is
stable only if large rows are eliminated first, so that rows would have to move between devices;
and each such step costs as much as two of these.)

From singular values above some 0.8 on, one or two steps by the series of (I - R)^(-1/2),

    X <- X + X (R / 2 + 3/8 R^2 + 5/16 R^3 + 35/128 R^4),    R = I - X^H X,

with one, two or four terms make them 1 to rounding. What is Hermitian, X^H X and powers of R, takes
half a product (_ring.hermitian_times).

The number l comes from norm((X^H X)^-1), as long as X^H X can be told from a singular matrix.
Where it cannot, l is taken as eps, and is looked for again some steps later.

Singular values far below eps norm2(A) do not move. What is left at zero is set to one by adding a
matrix that maps one null space to the other, which changes A = U H by no more than rounding.

Nakatsukasa, Bai, Gygi: Optimizing Halley's iteration for computing the matrix polar decomposition
(SIAM J. Matrix Anal. Appl. 31, 2010). Nakatsukasa, Higham: Stable and efficient spectral divide
and conquer algorithms (SIAM J. Sci. Comput. 35, 2013). LAPACK has no such routine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _calls, _polar_plan, _qr_calls, _ring
from ._dot import dot
from ._polar_place import Place, ResolvedPolar, bound, largest
from ._qr_layout import resolve_qr
from ._scattered import scattered
from .errors import NO_CONVERGENCE, NON_FINITE, OK

SEARCHES = (0, 4, 8)  # steps before which the least singular value is looked for, if it is small
MOST_SERIES = 8
MARGIN = 1.2  # what an estimate of norm2(A) is taken times
MOST_ATTEMPTS = 4
DEFICIENT = 0.9  # norm of I - X^H X after a step by series: some singular values do not move


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


def _lowest(p: Place, gram: Array) -> tuple[Array, Array]:
    """A lower bound of the singular values of X with this X^H X, and whether it can be trusted.

    1 / s^2 <= norm2((X^H X)^-1) for every singular value s. The product loses what lies below
    sqrt(eps).
    """
    inverse, failed = _inverse(p, gram)
    found = 0.9 / jnp.sqrt(bound(p, inverse))
    limit = 10 * math.sqrt(p.r.n) * float(np.finfo(p.r.dtype).eps)
    return jnp.minimum(found, 1), (failed == OK) & (found * found > limit)


class _Far(NamedTuple):
    """On the way to singular values near 1.

    Attributes:
        lowest: a lower bound of those that are not taken for zero.
        least: what stands for smaller ones when weights are chosen.
        trusted: whether `lowest` was found, and not assumed.
        left: number of steps to come.
    """

    x: Array
    lowest: Array
    least: Array
    trusted: Array
    left: Array
    steps: Array


def _approach(p: Place, x: Array) -> _Far:
    """X, whose norm is about 1, with singular values in [lowest, 1] near 1."""

    def unfinished(s: _Far) -> Array:
        return (s.steps < _polar_plan.MOST_STEPS) & (s.left > 0)

    def step(s: _Far) -> _Far:
        gram = p.gram(s.x)

        def search() -> tuple[Array, Array, Array, Array]:
            found, trusted = _lowest(p, gram)
            lowest = jnp.where(trusted, found, s.lowest)
            return lowest, *_polar_plan.plan(p.r.n, p.r.dtype, lowest), trusted

        known = s.trusted | jnp.all(s.steps != jnp.asarray(SEARCHES, s.steps.dtype))
        lowest, least, left, trusted = lax.cond(
            known, lambda: (s.lowest, s.least, s.left, s.trusted), search
        )
        (a, b, c), lowest = _polar_plan.raised(lowest, least)
        inverse, _ = _inverse(p, p.identity(gram) + c.astype(gram.dtype) * gram)
        x = (b / c).astype(x_type) * s.x + (a - b / c).astype(x_type) * p.times(s.x, inverse)
        return _Far(x, lowest, least, trusted, left - 1, s.steps + 1)

    x_type = x.dtype
    eps = jnp.asarray(np.finfo(p.r.dtype).eps, jnp.finfo(x_type).dtype)
    # The first step looks for the least singular value and plans those that come.
    start = _Far(x, eps, eps, jnp.asarray(False), jnp.int32(1), jnp.int32(0))
    return lax.while_loop(unfinished, step, start)


class _Near(NamedTuple):
    x: Array
    defect: Array
    steps: Array


def _series(p: Place, x: Array, r: Array, terms: Array) -> Array:
    """X (I - R)^(-1/2) by the first `terms` (1, 2 or 4) terms behind I."""
    a = _polar_plan.SERIES

    def with_square() -> Array:
        square = p.gram(r)
        start = a[0] * r + a[1] * square
        more = lambda: start + p.hermitian(square, a[2] * r + a[3] * square)  # noqa: E731
        return lax.cond(terms > 2, more, lambda: start)

    return x + p.times(x, lax.cond(terms > 1, with_square, lambda: a[0] * r))


def _arrive(p: Place, x: Array, expected: Array) -> _Near:
    """X with singular values at 1, but for those that are zero; and norm2(I - X^H X) before.

    `expected`: the norm that I - X^H X has at the beginning, but for those that are zero.
    """
    dtype = p.r.dtype
    enough = _polar_plan.sufficient(dtype, 4)

    def unfinished(s: _Near) -> Array:
        stuck = (s.steps > 1) & (s.defect > DEFICIENT)
        return (s.steps < MOST_SERIES) & (s.defect > enough) & ~stuck

    def step(s: _Near) -> _Near:
        r = p.identity(s.x) - p.gram(s.x)
        size = bound(p, r)
        first = _polar_plan.first_terms(dtype, jnp.minimum(size, expected))
        terms = jnp.where(s.steps == 0, first, 4)
        for last in (4, 2, 1):
            terms = jnp.where(size <= _polar_plan.sufficient(dtype, last), last, terms)
        return _Near(_series(p, s.x, r, terms), size, s.steps + 1)

    infinite = jnp.asarray(np.inf, jnp.finfo(x.dtype).dtype)
    return lax.while_loop(unfinished, step, _Near(x, infinite, jnp.int32(0)))


def _iterate(p: Place, x: Array) -> _Near:
    eps = float(np.finfo(p.r.dtype).eps)
    columns = jnp.max(p.sum(jnp.sum(jnp.abs(x), axis=0)))
    rows = p.max(jnp.max(jnp.sum(jnp.abs(x), axis=1)))
    # Both are bounds of norm2(X); the larger weight of rounding errors is that of long sums. They
    # can be sqrt(n) too large, which costs steps. An estimate may be a little too small, and that
    # does no harm: singular values above 1 go to 1 too.
    most = jnp.minimum(p.norm(x), p.agreed(jnp.sqrt(columns * rows))) * (1 + 8 * eps)
    square = largest(p, lambda v: p.sum(dot(jnp.conj(x).T, dot(x, v))), x)
    alpha = jnp.minimum(most, MARGIN * jnp.sqrt(square))
    far = _approach(p, x / jnp.where(alpha > 0, alpha, 1).astype(x.dtype))
    # Singular values from l to 1 differ least from 1 when their squares lie evenly around it.
    centred = far.x * jnp.sqrt(2 / (1 + jnp.square(far.lowest))).astype(x.dtype)
    near = _arrive(p, centred, _polar_plan.size_of_rest(far.lowest))
    return near._replace(steps=far.steps + near.steps)


def _completed(p: Place, x: Array, attempt: Array) -> Array:
    """X + (I - X X^H) Y (I - X^H X), which fills the null spaces of a partial isometry X.

    Y = I leaves diagonal and semidefinite matrices as they are; where it maps a part of one null
    space into the range of X, random numbers do better.
    """
    columns = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    y = scattered(_ring.row_index(x, p.rank), columns, attempt, x.dtype) / math.sqrt(p.r.n)
    y = _ring.true_rows(p.r.layout, p.rank, y, p.r.n)
    y = jnp.where(attempt == 1, p.identity(x), y)
    y = y - p.times(y, p.gram(x))
    return x + (y - p.times(x, p.adjoint_times(x, y)))


class _Attempt(NamedTuple):
    x: Array
    defect: Array
    attempt: Array
    steps: Array


def _square(p: Place, x: Array) -> tuple[Array, Array, Array]:
    """The unitary polar factor of an n x n matrix; whether it was found; steps taken."""
    enough = _polar_plan.sufficient(p.r.dtype, 4)

    def unfinished(s: _Attempt) -> Array:
        return (s.defect > enough) & (s.attempt < MOST_ATTEMPTS)

    def attempt(s: _Attempt) -> _Attempt:
        x = lax.cond(s.attempt == 0, lambda x: x, lambda x: _completed(p, x, s.attempt), s.x)
        found = _iterate(p, x)
        return _Attempt(found.x, found.defect, s.attempt + 1, s.steps + found.steps)

    infinite = jnp.asarray(np.inf, jnp.finfo(x.dtype).dtype)
    end = lax.while_loop(unfinished, attempt, _Attempt(x, infinite, jnp.int32(0), jnp.int32(0)))
    return end.x, end.defect <= enough, end.steps


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
        # The error of U shows in the skew part of U^H A. Without it singular values are right to
        # rounding, which they would not be if one half were taken for both.
        h = p.adjoint_times(u, x)
        h = 0.5 * (h + p.adjoint(h))
        results.append(keep(h * up.astype(h.dtype)))
    place = lax.iota(jnp.int32, 8)
    position = jnp.where(kind == NO_CONVERGENCE, steps, 0)
    info = jnp.where(place == 0, kind, jnp.where(place == 1, position, 0))
    return [*results, jnp.where(place == 4, steps, info).astype(jnp.int32)]
