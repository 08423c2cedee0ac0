"""Which steps make singular values in [l, 1] one, and how many: what follows from l alone.

Steps far from 1 have the weights of the dynamically weighted Halley iteration, steps near it are
starts of the series of (I - R)^(-1/2) with R = I - X^H X; see _qdwh.
"""

from __future__ import annotations

import functools
import itertools

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

BOUNDS_OF_C = tuple(100 * 10 ** (k / 4) for k in range(5))
MOST_STEPS = 40
# Times as of n^3 operations in products, measured: a Hermitian product is 1.3, an inverse 1.6.
COST_FAR = 5.0
COST = {1: 3.5, 2: 4.8, 4: 6.1}  # of a step by series, by the number of its terms
SERIES = (1 / 2, 3 / 8, 5 / 16, 35 / 128, 63 / 256)  # coefficients of R, R^2, ...
FURTHER_TERMS = 1.3  # the remainder of the series over its first term, where R is not small
WIDE_MARGIN = 1.6  # what an estimate of a norm is taken times where it is to be a bound
Weights = tuple[Array, Array, Array]


def weights(lowest: Array) -> Weights:
    """a, b and c for singular values in [lowest, 1]."""
    l2 = lowest * lowest
    d = jnp.cbrt(4 * (1 - l2) / (l2 * l2))
    root = jnp.sqrt(1 + d)
    a = root + 0.5 * jnp.sqrt(jnp.maximum(8 - 4 * d + 8 * (2 - l2) / (l2 * root), 0))
    b = (a - 1) ** 2 / 4
    return a, b, a + b - 1


@functools.cache
def best_for(c: float) -> float:
    """The l for which c is the best weight."""
    low, high = 1e-4, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        d = np.cbrt(4 * (1 - middle**2) / middle**4)
        root = np.sqrt(1 + d)
        a = root + 0.5 * np.sqrt(8 - 4 * d + 8 * (2 - middle**2) / (middle**2 * root))
        low, high = (middle, high) if (a + 1) ** 2 / 4 - 1 > c else (low, middle)
    return high


def raised(lowest: Array, least: Array) -> tuple[Weights, Array]:
    """The weights for singular values in [lowest, 1], and their lower bound after the step.

    `least` stands for whatever is smaller.
    """
    a, b, c = weights(jnp.maximum(lowest, least))
    square = lowest * lowest
    return (a, b, c), jnp.minimum(lowest * (a + b * square) / (1 + c * square), 1)


def size_of_rest(lowest: Array) -> Array:
    """norm2(R) of singular values in [lowest, 1], scaled so that their squares lie around 1."""
    square = lowest * lowest
    return (1 - square) / (1 + square)


def sufficient(dtype: str, terms: int) -> float:
    """The norm of R up to which so many terms of the series are right to rounding."""
    return float((np.finfo(dtype).eps / 16 / SERIES[terms]) ** (1 / (terms + 1)))


@functools.cache
def _two_steps(dtype: str) -> tuple[tuple[float, int, float], ...]:
    """Costs of two steps by series, terms of the first, the norm of R up to which they suffice."""

    def reach(first: int, second: int) -> float:
        after = sufficient(dtype, second) / WIDE_MARGIN
        return float((after / (2 * FURTHER_TERMS * SERIES[first])) ** (1 / (first + 1)))

    pairs = itertools.product(COST, COST)
    ways = ((COST[i] + COST[j], i, reach(i, j)) for i, j in pairs)
    return tuple(sorted(ways))


def first_terms(dtype: str, size: Array) -> Array:
    """Of the first of two steps by series, for this norm of R."""
    terms = jnp.int32(max(COST))
    for _, first, reach in reversed(_two_steps(dtype)):
        terms = jnp.where(size <= reach, first, terms)
    return terms


def _cost_near(dtype: str, size: Array) -> Array:
    """What one or two steps by series cost for this norm of R; infinite if they do not suffice."""
    ways = [(COST[t], sufficient(dtype, t) / WIDE_MARGIN) for t in COST]
    ways += [(cost, reach) for cost, _, reach in _two_steps(dtype)]
    cost = jnp.full_like(size, jnp.inf)
    for price, reach in ways:
        cost = jnp.minimum(cost, jnp.where(size <= reach, price, jnp.inf))
    return cost


def plan(n: int, dtype: str, lowest: Array) -> tuple[Array, Array]:
    """What stands for smaller l when weights are chosen, and the number of steps far from 1.

    Those that cost least together with the steps by series, and of these the smallest weights.
    """
    allowed = [best_for(c) for c in BOUNDS_OF_C if c <= max(n, BOUNDS_OF_C[0])]
    least = jnp.asarray(allowed, lowest.dtype)

    def advance(step: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        lowest, cheapest, steps = state
        _, lowest = raised(lowest, least)
        cost = COST_FAR * step.astype(lowest.dtype) + _cost_near(dtype, size_of_rest(lowest))
        better = cost < cheapest
        return lowest, jnp.minimum(cost, cheapest), jnp.where(better, step, steps)

    start = jnp.full_like(least, 1)
    state = (start * lowest, start * jnp.inf, jnp.ones_like(least, dtype=jnp.int32))
    _, cheapest, steps = lax.fori_loop(jnp.int32(1), jnp.int32(MOST_STEPS), advance, state)
    best = jnp.argmin(cheapest)
    return least[best], steps[best]
