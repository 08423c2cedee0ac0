"""The polar factor by the dynamically weighted Halley iteration, as the ranks work it out.

    X <- X (a I + b X^H X) (I + c X^H X)^-1,    X from A / alpha with alpha about norm2(A)

makes all singular values larger and leaves the singular vectors as they are; a, b and c are best
for singular values in [l, 1] and follow from l alone. With Z = I + c X^H X, by Cholesky,

    X <- (b / c) X + (a - b / c) X Z^-1.

Rounding in Z shows in A = U H as an error of about sqrt(c) eps norm2(A). Where a small l asks for a
large c, the weights are those for c = 100; if that saves a step, those for some c up to 1000, but
never for c > n > 100. Such a step makes small singular values 19 to 62 times larger. (The
literature takes steps with large c by a QR factorisation of [sqrt(c) X; I]. That is stable only if
large rows are eliminated first, so that rows would have to move between devices; and each such
step costs as much as two of these.)

Once all singular values are above NEAR, two steps by the series of (I - R)^(-1/2),

    X <- X + X (R / 2 + 3/8 R^2 + 5/16 R^3 + 35/128 R^4),    R = I - X^H X,

make them 1 to rounding, the last one with as many terms as the norm of R asks for. What is
Hermitian, X^H X and powers of R, takes half a product (_ring.hermitian_times).

The number l comes from norm((X^H X)^-1), as long as X^H X can be told from a singular matrix.
Where it cannot, l is taken as eps, and is looked for again some steps later.

Singular values far below eps norm2(A) do not move. What is left at zero is set to one by adding a
matrix that maps one null space to the other, which changes A = U H by no more than rounding.

Nakatsukasa, Bai, Gygi: Optimizing Halley's iteration for computing the matrix polar decomposition
(SIAM J. Matrix Anal. Appl. 31, 2010). Nakatsukasa, Higham: Stable and efficient spectral divide
and conquer algorithms (SIAM J. Sci. Comput. 35, 2013). LAPACK has no such routine.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _calls, _qr_calls, _ring
from ._dot import dot
from ._polar_place import Place, ResolvedPolar, bound, largest
from ._qr_layout import resolve_qr
from .errors import NO_CONVERGENCE, NON_FINITE, OK

BOUNDS_OF_C = tuple(100 * 10 ** (k / 4) for k in range(5))
NEAR = 0.775  # two steps by series reach 1 from here
MOST_STEPS = 40
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


def _weights(lowest: Array) -> tuple[Array, Array, Array]:
    """a, b and c for singular values in [lowest, 1]."""
    l2 = lowest * lowest
    d = jnp.cbrt(4 * (1 - l2) / (l2 * l2))
    root = jnp.sqrt(1 + d)
    a = root + 0.5 * jnp.sqrt(jnp.maximum(8 - 4 * d + 8 * (2 - l2) / (l2 * root), 0))
    b = (a - 1) ** 2 / 4
    return a, b, a + b - 1


@functools.cache
def _best_for(c: float) -> float:
    """The l for which c is the best weight."""
    low, high = 1e-4, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        d = np.cbrt(4 * (1 - middle**2) / middle**4)
        root = np.sqrt(1 + d)
        a = root + 0.5 * np.sqrt(8 - 4 * d + 8 * (2 - middle**2) / (middle**2 * root))
        low, high = (middle, high) if (a + 1) ** 2 / 4 - 1 > c else (low, middle)
    return high


def _halley(lowest: Array, least: Array) -> tuple[tuple[Array, Array, Array], Array]:
    """The weights for singular values in [lowest, 1], and their lower bound after the step."""
    weights = a, b, c = _weights(jnp.maximum(lowest, least))
    square = lowest * lowest
    return weights, jnp.minimum(lowest * (a + b * square) / (1 + c * square), 1)


def _least(n: int, lowest: Array) -> Array:
    """The l taken for all smaller ones: for the smallest c with which the fewest steps are left."""
    allowed = [_best_for(c) for c in BOUNDS_OF_C if c <= max(n, BOUNDS_OF_C[0])]
    least = jnp.asarray(allowed, lowest.dtype)

    def advance(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lowest, steps = state
        far = lowest < NEAR
        return jnp.where(far, _halley(lowest, least)[1], lowest), steps + far

    start = (jnp.full_like(least, 1) * lowest, jnp.zeros_like(least, dtype=jnp.int32))
    _, steps = lax.fori_loop(0, MOST_STEPS, advance, start)
    return least[jnp.argmin(steps)]


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
    """On the way to singular values of at least NEAR.

    Attributes:
        lowest: a lower bound of those that are not taken for zero.
        least: what stands for smaller ones when weights are chosen.
        trusted: whether `lowest` was found, and not assumed.
    """

    x: Array
    lowest: Array
    least: Array
    trusted: Array
    steps: Array


def _approach(p: Place, x: Array) -> _Far:
    """X, whose norm is about 1, with singular values in [lowest, 1], lowest >= NEAR."""

    def unfinished(s: _Far) -> Array:
        return (s.steps < MOST_STEPS) & (s.lowest < NEAR)

    def step(s: _Far) -> _Far:
        gram = p.gram(s.x)

        def search() -> tuple[Array, Array, Array]:
            found, trusted = _lowest(p, gram)
            lowest = jnp.where(trusted, found, s.lowest)
            return lowest, _least(p.r.n, lowest), trusted

        known = s.trusted | jnp.all(s.steps != jnp.asarray(SEARCHES, s.steps.dtype))
        lowest, least, trusted = lax.cond(known, lambda: (s.lowest, s.least, s.trusted), search)
        (a, b, c), raised = _halley(lowest, least)
        inverse, _ = _inverse(p, p.identity(gram) + c.astype(gram.dtype) * gram)
        x = (b / c).astype(x_type) * s.x + (a - b / c).astype(x_type) * p.times(s.x, inverse)
        return _Far(x, raised, least, trusted, s.steps + 1)

    x_type = x.dtype
    eps = jnp.asarray(np.finfo(p.r.dtype).eps, jnp.finfo(x_type).dtype)
    start = _Far(x, eps, _least(p.r.n, eps), jnp.asarray(False), jnp.int32(0))
    return lax.while_loop(unfinished, step, start)


# (I - R)^(-1/2): coefficients of R, R^2, ...
SERIES = (1 / 2, 3 / 8, 5 / 16, 35 / 128, 63 / 256)


def _sufficient(dtype: str, terms: int) -> float:
    """The norm of R up to which so many terms of the series are right to rounding."""
    return float((np.finfo(dtype).eps / 16 / SERIES[terms]) ** (1 / (terms + 1)))


class _Near(NamedTuple):
    x: Array
    defect: Array
    steps: Array


def _series(p: Place, x: Array, r: Array, size: Array) -> Array:
    """X (I - R)^(-1/2) with as many terms of the series as a norm of `size` asks for."""

    def with_square() -> Array:
        square = p.gram(r)
        start = SERIES[0] * r + SERIES[1] * square

        def with_more() -> Array:
            return start + p.hermitian(square, SERIES[2] * r + SERIES[3] * square)

        return lax.cond(size > _sufficient(p.r.dtype, 2), with_more, lambda: start)

    few = size <= _sufficient(p.r.dtype, 1)
    return x + p.times(x, lax.cond(few, lambda: SERIES[0] * r, with_square))


def _arrive(p: Place, x: Array) -> _Near:
    """X with singular values at 1, but for those that are zero; and norm2(I - X^H X) before."""
    enough = _sufficient(p.r.dtype, 4)

    def unfinished(s: _Near) -> Array:
        stuck = (s.steps > 1) & (s.defect > DEFICIENT)
        return (s.steps < MOST_SERIES) & (s.defect > enough) & ~stuck

    def step(s: _Near) -> _Near:
        r = p.identity(s.x) - p.gram(s.x)
        size = bound(p, r)
        return _Near(_series(p, s.x, r, size), size, s.steps + 1)

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
    near = _arrive(p, centred)
    return near._replace(steps=far.steps + near.steps)


def _completed(p: Place, x: Array, attempt: Array) -> Array:
    """X + (I - X X^H) Y (I - X^H X), which fills the null spaces of a partial isometry X.

    Y = I leaves diagonal and semidefinite matrices as they are; where it maps a part of one null
    space into the range of X, random numbers do better.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(0), attempt), p.rank)
    y = jax.random.normal(key, x.shape, x.dtype) / math.sqrt(p.r.n)
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
    enough = _sufficient(p.r.dtype, 4)

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
        # The error of U is seen in the skew part of U^H A alone: without it singular values are right
        # to rounding, which they would not be if one half were taken for both.
        h = p.adjoint_times(u, x)
        h = 0.5 * (h + p.adjoint(h))
        results.append(keep(h * up.astype(h.dtype)))
    place = lax.iota(jnp.int32, 8)
    position = jnp.where(kind == NO_CONVERGENCE, steps, 0)
    info = jnp.where(place == 0, kind, jnp.where(place == 1, position, 0))
    return [*results, jnp.where(place == 4, steps, info).astype(jnp.int32)]
