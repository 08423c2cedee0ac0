"""What mixed-precision solutions have in common, whatever the factor.

A factor in low precision of the scaled matrix S = R A C, with R and C powers of two, preconditions
the refinement of S y = R b, x = C y, with A in high precision (_refinement). Where that fails, or
the low-precision factorisation did, the system is solved by a factor in high precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from . import _calls, _refinement
from ._layout import Layout, Resolved
from ._local_rows import LocalRows
from ._operands import gathered, pad_rows
from ._operation import REPLICATED, Specs, factor_specs, rows_spec, typed, vector_spec

# Elements of `info` after a mixed-precision solve; see core/status.h.
ITERATIONS, PATH = 4, 5
# What ITERATIONS says if the fall-back was needed, as LAPACK's ITER.
FACTOR_FAILED, NOT_CONVERGED = -3, -31

Natively = Callable[[Array, Array], tuple[Array, Array, Array]]


class Scaled(NamedTuple):
    """The scaled matrix S = R A C.

    Attributes:
        left, right: (n, 1), the diagonals of R and C.
        norm, scaled_norm: the inf-norms of A and of S.
    """

    left: Array
    right: Array
    norm: Array
    scaled_norm: Array


def factor_types(a: Any, r: Resolved) -> list[Any]:
    """Types of the parts that every low-precision factor has first: work and aux."""
    rows, vector = factor_specs(a, r)
    low = r.low
    return [
        typed(a, r.layout, (r.padded_rows, r.n), low.dtype, rows),
        typed(a, r.layout, (low.aux_count * r.layout.ranks,), low.dtype, vector),
    ]


def factor_operand_specs(layout: Layout, thin: int) -> Specs:
    """Specs of work and aux, and of `thin` parts after them that all devices have."""
    return (rows_spec(layout), vector_spec(layout), *(REPLICATED,) * thin)


def widened(r: Resolved, f: Any) -> Any:
    """A factor made on one rank, in the shapes of one that many ranks made."""
    return f._replace(
        work=pad_rows(f.work, r.padded_rows),
        aux=pad_rows(f.aux, r.low.aux_count * r.layout.ranks),
        info=f.info.at[_calls.MADE_ON].set(1),
    )


def _over(above: Array, below: Array) -> Array:
    """above / below, with 0 / 0 = 0."""
    return jnp.where(above == 0, 0, above / below)


def system(
    r: Resolved,
    s: Scaled,
    times: Callable[[Array], Array],
    solve_low: Callable[[Array], Array],
    *,
    hermitian: bool,
    agree: Callable[[Array], Array],
) -> _refinement.System:
    """S y = R b, and how far a y is from being a backward stable solution.

    In inf-norms, with eps that of the high precision, both of these must be at most 1:

        || b - A x ||     / (sqrt(n) eps || A || || x ||)        as xSPOSV and xSGESV
        || R (b - A x) || / (sqrt(n) eps || S || || C^-1 x ||)   as holds for a factor of S

    Args:
        r: the factorisation.
        s: the scaled matrix.
        times: A x of a whole x.
        solve_low: S^-1 of right-hand sides in low precision.
        hermitian, agree: as of _refinement.System.
    """
    goal = float(jnp.finfo(r.dtype).eps) * max(1, r.n) ** 0.5

    def product(y: Array) -> Array:
        return s.left * times(s.right * y)

    def precondition(residual: Array) -> Array:
        size = jnp.max(jnp.abs(residual), axis=0)
        size = jnp.where(jnp.isfinite(size) & (size > 0), size, jnp.ones_like(size))
        low = solve_low((residual / size).astype(r.low.dtype))
        return size * low.astype(residual.dtype)

    def error(y: Array, residual: Array) -> Array:
        def largest(v: Array) -> Array:
            return jnp.max(jnp.abs(v), axis=0)

        plain = _over(largest(residual / s.left), goal * s.norm * largest(s.right * y))
        scaled = _over(largest(residual), goal * s.scaled_norm * largest(y))
        return jnp.maximum(plain, scaled)

    return _refinement.System(product, precondition, error, hermitian=hermitian, agree=agree)


def solve_block(
    equations: _refinement.System,
    s: Scaled,
    rows: LocalRows,
    info: Array,
    a: Array,
    b: Array,
    natively: Natively,
    *,
    replicated: bool,
    consume: bool,
) -> list[Array]:
    """x, info and, if `consume`, what A became, on a rank.

    Args:
        equations, s: what is refined.
        rows: the rank's rows of A.
        info: of the low-precision factor.
        a, b: the rank's rows of A and its part of the right-hand sides.
        natively: (A, whole b) -> x, info and what A became, by the factor in high precision.
    """
    whole = b if replicated else rows.whole(b)
    scaled = s.left * whole
    # Columns of b about 1, by powers of two.
    _, exponent = jnp.frexp(jnp.max(jnp.abs(scaled), axis=0))
    unit = jnp.ldexp(jnp.ones((whole.shape[1],), rows.r.real_dtype), exponent)
    unit = jnp.where(jnp.isfinite(unit) & (unit > 0), unit, 1)
    usable = (info[0] == 0) & (info[_calls.MADE_ON] == 0)
    found = _refinement.refine(equations, scaled / unit, usable)

    def success(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        fresh = jnp.zeros_like(info).at[ITERATIONS].set(found.iterations)
        x = unit * (s.right * found.x)
        return [x, fresh.at[PATH].set(found.path), *operands[:consume]]

    def fall_back(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        a, b = operands
        if not consume:
            # By a choice that is always the same a copy is made here, where it may take the place
            # of the low-precision factor. XLA's own would be made before anything is refined.
            a = jnp.where(found.iterations >= 0, a, jnp.zeros((), rows.r.dtype))
        x, native, work = natively(a, b)
        why = jnp.where(usable, NOT_CONVERGED, FACTOR_FAILED)
        native = native.at[ITERATIONS].set(why).at[PATH].set(_refinement.NATIVE)
        return [x, native, *[work][:consume]]

    x, *rest = _refinement.with_fall_back(found, success, fall_back, (a, whole))
    return [x if replicated else rows.own(x), *rest]


def solution_types(
    a: Any, *arrays: Any, r: Resolved, replicated: bool, consume: bool, **_: bool
) -> list[Any]:
    """Types of x, info and, if `consume`, of what A became."""
    b = arrays[-1]
    spec = REPLICATED if replicated else rows_spec(r.layout)
    matrix = typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows_spec(r.layout))
    return [
        typed(a, r.layout, b.shape, b.dtype, spec),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        *[matrix][:consume],
    ]


def solution_specs(
    layout: Layout, thin: int, *, replicated: bool, consume: bool
) -> tuple[Specs, Specs]:
    """Specs of A, the factor's parts (`thin` of them after aux) and b; and of the results."""
    rows = rows_spec(layout)
    rhs = REPLICATED if replicated else rows
    operands = (rows, *factor_operand_specs(layout, thin), rhs)
    return operands, (rhs, REPLICATED, *(rows,) * consume)


def solve_one_device(
    bind: Callable[..., Any],
    factor: Callable[..., Any],
    r: Resolved,
    *arrays: Array,
    **params: bool,
) -> list[Array]:
    """A solution on one rank, of arrays in the shapes of many.

    Args:
        bind: of the primitive.
        factor: type of the factor's parts.
        r, arrays, params: as the primitive was given them.
    """
    a, *parts, b = (gathered(r.layout, x) for x in arrays)
    f, one = factor(*parts), r.on_one_rank
    f = f._replace(
        work=f.work[: r.n],
        aux=f.aux[: one.low.aux_count],
        info=f.info.at[_calls.MADE_ON].set(1 - f.info[_calls.MADE_ON]),
    )
    params = {**params, "replicated": True}
    x, info, *work = bind(a[: r.n], *f, b[: r.n], r=one, **params)
    return [pad_rows(x, b.shape[0]), info, *[pad_rows(x, r.padded_rows) for x in work]]
