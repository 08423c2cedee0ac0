"""Iterative refinement: full accuracy from a factor of lower precision.

Plain functions of thin arrays (n, k) that every device holds whole, for use inside `shard_map` or
on one device. They know neither the factorisation nor where the matrix lies: a solver describes
itself by a :class:`System`. Three methods, from the cheapest to the surest:

1. classical refinement (Wilkinson): x += M^-1 (b - A x), with M ~ A the low-precision factor.
   Each step gains a factor of about 1 / (cond(A) eps_low).
2. when that stalls, a Krylov method for A dx = b - A x with M as its preconditioner: conjugate
   gradients for a positive definite A, GMRES for a general one. Both converge where M^-1 A is far
   from the identity, as long as most of its eigenvalues are near 1.
3. when that stalls too, or there is no usable M: the caller's own high-precision solution.

LAPACK: xSPOSV, xSGESV (method 1 and 3); Carson and Higham, SIAM J. Sci. Comput. 40 (2018) A817.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

# What `info` says of the way to a solution; see docs/precision.md.
NATIVE, CLASSICAL, KRYLOV = 0, 1, 2
# Steps of refinement, and of a Krylov method in all, after which it is given up.
STEPS, KRYLOV_STEPS = 30, 60
# Krylov steps between two computations of the true residual.
CYCLE = 12
# A step of classical refinement that leaves more of the error than this is a stall: from there
# a Krylov method is faster. A cycle that leaves more than this of it ends the attempt.
STALL, KRYLOV_STALL = 0.25, 0.5


@dataclasses.dataclass(frozen=True)
class System:
    """A x = b as the refinement sees it. All arrays are (n, k), in high precision.

    Best scaled so that A, b and x are about 1: inner products are taken of them.

    Attributes:
        product: x -> A x.
        precondition: r -> M^-1 r, from the low-precision factor.
        error: (x, r) -> (k,): the backward error of each column over what is asked for. Columns
            with at most 1 are done.
        hermitian: whether A is Hermitian positive definite.
        agree: bool -> bool, equal on all devices; they must make the same calls.
        typed: tree -> tree: gives values the type of loop variables (see _manual.vary).
    """

    product: Callable[[Array], Array]
    precondition: Callable[[Array], Array]
    error: Callable[[Array, Array], Array]
    hermitian: bool
    agree: Callable[[Array], Array] = lambda flag: flag
    typed: Callable[[Any], Any] = lambda tree: tree


class Outcome(NamedTuple):
    """What became of a refinement.

    Attributes:
        x: the solution so far.
        converged: whether it is as accurate as asked.
        iterations: steps after the first solution, whichever method made them.
        path: CLASSICAL or KRYLOV.
    """

    x: Array
    converged: Array
    iterations: Array
    path: Array


class _State(NamedTuple):
    x: Array
    r: Array
    error: Array
    steps: Array
    going: Array


def _finite(error: Array) -> Array:
    return jnp.where(jnp.isnan(error), jnp.asarray(jnp.inf, error.dtype), error)


def _better(s: _State, x: Array, r: Array, error: Array, stall: float) -> tuple[_State, Array]:
    """Takes over the columns that improved; says whether all open ones improved well enough."""
    take = error < s.error
    open_ = s.error > 1
    gained = (error <= 1) | (jnp.isfinite(error) & (error <= stall * s.error))
    well = jnp.all(jnp.where(open_, gained, True))
    kept = s._replace(
        x=jnp.where(take, x, s.x), r=jnp.where(take, r, s.r), error=jnp.minimum(error, s.error)
    )
    return kept, well


def _open(error: Array) -> Array:
    return jnp.any(error > 1)


def _residual(system: System, b: Array, x: Array) -> tuple[Array, Array]:
    r = b - system.product(x)
    return r, _finite(system.error(x, r))


def _classical(system: System, b: Array, start: _State) -> _State:
    def body(s: _State) -> _State:
        x = s.x + system.precondition(s.r)
        r, error = _residual(system, b, x)
        kept, well = _better(s, x, r, error, STALL)
        steps = s.steps + 1
        going = system.agree(well & _open(kept.error) & (steps < STEPS))
        out: _State = system.typed(kept._replace(steps=steps, going=going))
        return out

    out: _State = lax.while_loop(lambda s: s.going, body, start)
    return out


def _krylov(system: System, b: Array, start: _State) -> _State:
    """Cycles of a Krylov method, each from the true residual of the one before it."""
    cycle = _conjugate_gradients if system.hermitian else _gmres

    def body(s: _State) -> _State:
        change, steps = cycle(system, s.x, s.r)
        x = s.x + change
        r, error = _residual(system, b, x)
        kept, well = _better(s, x, r, error, KRYLOV_STALL)
        total = s.steps + steps
        going = system.agree(well & _open(kept.error) & (total < KRYLOV_STEPS))
        out: _State = system.typed(kept._replace(steps=total, going=going))
        return out

    out: _State = lax.while_loop(lambda s: s.going, body, start)
    return out


def _dot(a: Array, b: Array) -> Array:
    """The inner product of each column, conjugate in the first."""
    return jnp.sum(jnp.conj(a) * b, axis=0)


def _ratio(above: Array, below: Array) -> Array:
    """above / below, and 0 where that means nothing: such a column stands still."""
    good = jnp.isfinite(above) & jnp.isfinite(below) & (below != 0)
    return jnp.where(good, above / jnp.where(good, below, jnp.ones_like(below)), 0)


class _Gradient(NamedTuple):
    change: Array
    r: Array
    p: Array
    rho: Array
    steps: Array
    going: Array


def _conjugate_gradients(system: System, x: Array, r: Array) -> tuple[Array, Array]:
    """One cycle for A dx = r: dx and the number of steps. All columns at once, each on its own.

    The factor is applied in low precision and so is a slightly different operator each time:
    hence beta = z_new^H (r_new - r) / rho (Polak and Ribiere), which keeps directions conjugate.
    """

    def body(s: _Gradient) -> _Gradient:
        q = system.product(s.p)
        alpha = _ratio(s.rho, jnp.real(_dot(s.p, q)))
        change = s.change + alpha * s.p
        r_new = s.r - alpha * q
        z = system.precondition(r_new)
        beta = _ratio(jnp.real(_dot(z, r_new - s.r)), s.rho)
        rho = jnp.real(_dot(z, r_new))
        steps = s.steps + 1
        # The recurrence tells a little less than the true residual: go to a quarter of the goal.
        far = jnp.any(_finite(system.error(x + change, r_new)) > 0.25)
        going = system.agree(far & (steps < CYCLE))
        out: _Gradient = system.typed(_Gradient(change, r_new, z + beta * s.p, rho, steps, going))
        return out

    z = system.precondition(r)
    start = _Gradient(
        jnp.zeros_like(x), r, z, jnp.real(_dot(z, r)), jnp.int32(0), jnp.asarray(True)
    )
    end = lax.while_loop(lambda s: s.going, body, system.typed(start))
    return end.change, end.steps


def _gmres(system: System, x: Array, r: Array) -> tuple[Array, Array]:
    """One cycle of CYCLE steps for A dx = r, preconditioned from the right.

        A Z_m = V_{m+1} H_m,  Z = M^-1 V;  dx = Z_m y,  y = argmin || beta e_1 - H_m y ||

    Each column has spaces of its own; their bases are orthogonalised twice (classical
    Gram-Schmidt), which is as good as Householder reflections.
    """
    del x
    n, k = r.shape
    steps = min(CYCLE, max(1, n))
    beta = jnp.sqrt(jnp.real(_dot(r, r)))
    v = jnp.zeros((steps + 1, n, k), r.dtype).at[0].set(_ratio(r, beta.astype(r.dtype)))
    z = jnp.zeros((steps, n, k), r.dtype)
    h = jnp.zeros((steps + 1, steps, k), r.dtype)

    def body(j: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        v, z, h = state
        direction = system.precondition(v[j])
        w = system.product(direction)
        column = jnp.zeros((steps + 1, k), r.dtype)
        for _ in range(2):
            part = jnp.einsum("ink,nk->ik", jnp.conj(v), w)  # rows of v beyond j are zero
            w = w - jnp.einsum("ink,ik->nk", v, part)
            column = column + part
        length = jnp.sqrt(jnp.real(_dot(w, w))).astype(r.dtype)
        column = column.at[j + 1].set(length)
        state = (v.at[j + 1].set(_ratio(w, length)), z.at[j].set(direction), h.at[:, j].set(column))
        out: tuple[Array, Array, Array] = system.typed(state)
        return out

    _, z, h = lax.fori_loop(0, steps, body, system.typed((v, z, h)))
    goal = jnp.zeros((k, steps + 1), r.dtype).at[:, 0].set(beta.astype(r.dtype))
    y = _least_squares(jnp.moveaxis(h, 2, 0), goal)
    return jnp.einsum("jnk,kj->nk", z, y), jnp.int32(steps)


def _least_squares(h: Array, goal: Array) -> Array:
    """argmin || goal - h y || for each h (m + 1, m), by QR; zero where h says nothing of y.

    The space of a Krylov method may end early: columns of h are zero, or nearly, from there on.
    """
    q, upper = jnp.linalg.qr(h)
    right = jnp.einsum("kij,ki->kj", jnp.conj(q), goal)
    diagonal = jnp.abs(jnp.diagonal(upper, axis1=1, axis2=2))
    tiny = jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal, axis=1, keepdims=True)
    # From the first column that depends on those before it, nothing is used.
    used = jnp.cumprod((diagonal > tiny).astype(jnp.int32), axis=1).astype(bool)
    identity = jnp.eye(h.shape[2], dtype=h.dtype)
    upper = jnp.where(used[:, :, None] & used[:, None, :], upper, identity)
    right = jnp.where(used, right, 0)
    y: Array = lax.linalg.triangular_solve(upper, right[..., None], left_side=True)[..., 0]
    return y


def refine(system: System, b: Array, usable: Array) -> Outcome:
    """Solves A x = b, k >= 1 columns, with a low-precision factor.

    Args:
        system: the matrix and the factor.
        b: right-hand sides, shape (n, k).
        usable: whether there is a factor at all; if not, nothing is tried.

    Returns:
        The solution and whether it is one; see :func:`with_fall_back` for what to do if not.
    """
    nothing = _State(
        x=jnp.zeros_like(b),
        r=b,
        error=jnp.full((b.shape[1],), jnp.inf, jnp.finfo(b.dtype).dtype),
        steps=jnp.int32(0),
        going=system.agree(usable),
    )
    after = _classical(system, b, system.typed(nothing))
    again = system.typed(after._replace(going=system.agree(usable & _open(after.error))))
    last = _krylov(system, b, again)
    accelerated = last.steps > after.steps
    return Outcome(
        x=last.x,
        converged=system.agree(usable & ~_open(last.error)),
        iterations=jnp.maximum(last.steps - 1, 0),
        path=jnp.where(accelerated, KRYLOV, CLASSICAL).astype(jnp.int32),
    )


def with_fall_back(
    outcome: Outcome,
    success: Callable[[Outcome, Any], Any],
    fall_back: Callable[[Outcome, Any], Any],
    operands: Any,
) -> Any:
    """success(outcome, operands) if it converged, else fall_back(outcome, operands)."""
    return lax.cond(outcome.converged, success, fall_back, outcome, operands)
