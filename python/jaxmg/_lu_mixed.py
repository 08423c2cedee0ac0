"""Solutions of float64 (complex128) accuracy from a float32 (complex64) LU factor.

    factor   P (R A C) Q ~ L U in low precision, R and C powers of two that bring the largest
             element of each row, then of each column, to 1 .. 2
    solve    refinement of (R A C) y = R b, x = C y, with A in high precision (_refinement)
    else     the high-precision factor of A, so that every outcome, failures included, is that of
             the ordinary solve

As _mixed does for Cholesky: the scaling is exact, and A may have elements far outside of the range
of float32. The product A x is taken by each device with its own rows; only thin arrays travel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from . import _calls, _lu_calls, _refinement
from ._batching import batch_factor_operation, batch_solution
from ._dot import contract, dot
from ._layout import Layout, Resolved
from ._local_rows import LocalRows
from ._lu import linear_solve
from ._mixed import FACTOR_FAILED, ITERATIONS, NOT_CONVERGED, PATH
from ._operands import gathered, on_all_devices, pad_rows
from ._operation import (
    REPLICATED,
    Operation,
    Specs,
    define,
    factor_specs,
    rows_spec,
    typed,
    vector_spec,
)


class MixedFactor(NamedTuple):
    """A low-precision factor, and what belongs to the scaling.

    Attributes:
        work, aux, pivots, info: the factor of R A C, as of _lu_primitives.
        rows, columns: (n,), the diagonals of R and C.
        norms: (4,), the inf-norms of A, of R A C and of the transposes of both.
    """

    work: Array
    aux: Array
    pivots: Array
    info: Array
    rows: Array
    columns: Array
    norms: Array


class _Matrix(LocalRows):
    """A general matrix of which each device holds some rows."""

    def product(self, x: Array) -> Array:
        """A x."""
        return self.whole(dot(self.block, x))

    def transposed_product(self, x: Array) -> Array:
        """A^T x."""
        return self.total(contract(self.block, self.own(x), (((0,), (0,)), ((), ()))))

    def valid(self) -> Array:
        """A column that is 1 for rows of A and 0 for padding."""
        return (self.index < self.r.n).astype(self.r.real_dtype)


# --- factorisation ---------------------------------------------------------------------------


def _unit(largest: Array) -> Array:
    """2^-floor(log2(x)) for positive finite x, else 1."""
    good = jnp.isfinite(largest) & (largest > 0)
    _, exponent = jnp.frexp(jnp.where(good, largest, 1))
    # Twice half the exponent: its power alone may not be a number.
    half = -(exponent - 1) // 2
    one = jnp.ones_like(largest)
    whole = jnp.ldexp(jnp.ldexp(one, half), 1 - exponent - half)
    return jnp.where(good & jnp.isfinite(whole) & (whole > 0), whole, 1)


def _size(a: Array) -> Array:
    return (
        jnp.maximum(jnp.abs(jnp.real(a)), jnp.abs(jnp.imag(a))) if jnp.iscomplexobj(a) else abs(a)
    )


def _scales(matrix: _Matrix) -> tuple[Array, Array]:
    """The diagonal of R, of this device's rows, and that of C."""
    mine = _unit(jnp.max(_size(matrix.block), axis=1))
    largest = jnp.max((mine * matrix.valid())[:, None] * _size(matrix.block), axis=0)
    return mine, _unit(lax.pmax(largest, matrix.axes) if matrix.axes else largest)


def _norms(matrix: _Matrix, mine: Array, columns: Array) -> Array:
    own = jnp.abs(matrix.block) * matrix.valid()[:, None]
    scaled = mine[:, None] * own * columns

    def largest(sums: Array) -> Array:
        return jnp.max(matrix.whole(sums), initial=0)

    return jnp.stack(
        [
            largest(jnp.sum(own, axis=1)),
            largest(jnp.sum(scaled, axis=1)),
            jnp.max(matrix.total(jnp.sum(own, axis=0))),
            jnp.max(matrix.total(jnp.sum(scaled, axis=0))),
        ]
    )


def _factor_block(r: Resolved, ctx: Array, a: Array) -> tuple[Array, ...]:
    matrix = _Matrix(r, a)
    mine, columns = _scales(matrix)
    low = (mine[:, None] * a * columns).astype(r.low.dtype)
    factor = _lu_calls.getrf(r.low, ctx, low, natural=False)
    return *factor, matrix.whole(mine), columns, _norms(matrix, mine, columns)


def _factor_types(a: Any, *, r: Resolved) -> list[Any]:
    rows, vector = factor_specs(a, r)
    low = r.low
    return [
        typed(a, r.layout, (r.padded_rows, r.n), low.dtype, rows),
        typed(a, r.layout, (low.aux_count * r.layout.ranks,), low.dtype, vector),
        typed(a, r.layout, (2 * r.n,), jnp.int32, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (4,), r.real_dtype, REPLICATED),
    ]


def _factor_one_device(r: Resolved, a: Array) -> list[Array]:
    a = gathered(r.layout, a)[: r.n]
    f = MixedFactor(*mixed_lu_factor_p.bind(a, r=r.on_one_rank))
    work, aux = pad_rows(f.work, r.padded_rows), pad_rows(f.aux, r.low.aux_count * r.layout.ranks)
    return [*f._replace(work=work, aux=aux, info=f.info.at[_calls.MADE_ON].set(1))]


mixed_lu_factor_p = define(
    "jaxmg_mixed_lu_factor",
    Operation(
        block=_factor_block,
        one_device=_factor_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            (rows_spec(layout), vector_spec(layout), *(REPLICATED,) * 5),
        ),
        makes_factor=True,
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


def _over(above: Array, below: Array) -> Array:
    """above / below, with 0 / 0 = 0."""
    return jnp.where(above == 0, 0, above / below)


def _system(
    r: Resolved, ctx: Array, matrix: _Matrix, f: MixedFactor, transpose: bool
) -> _refinement.System:
    """(R A C) y = R b, or its transpose, and how far a y is from a backward stable solution.

    In inf-norms, with eps that of the high precision, both of these must be at most 1:

        || b - A x ||     / (sqrt(n) eps || A || || x ||)             as xSGESV
        || R (b - A x) || / (sqrt(n) eps || R A C || || C^-1 x ||)
    """
    left, right = (f.columns, f.rows) if transpose else (f.rows, f.columns)
    left, right = left[:, None], right[:, None]
    norm, scaled_norm = (f.norms[2], f.norms[3]) if transpose else (f.norms[0], f.norms[1])
    goal = float(jnp.finfo(r.dtype).eps) * max(1, r.n) ** 0.5
    times = matrix.transposed_product if transpose else matrix.product

    def precondition(residual: Array) -> Array:
        size = jnp.max(jnp.abs(residual), axis=0)
        size = jnp.where(jnp.isfinite(size) & (size > 0), size, jnp.ones_like(size))
        low = (residual / size).astype(r.low.dtype)
        low = _lu_calls.getrs(
            r.low,
            ctx,
            f.work,
            f.aux,
            f.pivots,
            f.info,
            b=low,
            replicated=True,
            transpose=transpose,
        )
        return size * low.astype(residual.dtype)

    def error(y: Array, residual: Array) -> Array:
        def largest(v: Array) -> Array:
            return jnp.max(jnp.abs(v), axis=0)

        plain = _over(largest(residual / left), goal * norm * largest(right * y))
        scaled = _over(largest(residual), goal * scaled_norm * largest(y))
        return jnp.maximum(plain, scaled)

    return _refinement.System(
        lambda y: left * times(right * y), precondition, error, hermitian=False, agree=matrix.agree
    )


def _natively(
    r: Resolved, ctx: Array, a: Array, b: Array, transpose: bool
) -> tuple[Array, Array, Array]:
    """x, info and what A became, by the factor in high precision."""
    factor = _lu_calls.getrf(r, ctx, a, natural=False)
    x = _lu_calls.getrs(r, ctx, *factor, b=b, replicated=True, transpose=transpose)
    return x, factor[3], factor[0]


def _solve_block(
    r: Resolved,
    ctx: Array,
    a: Array,
    *arrays: Array,
    replicated: bool,
    transpose: bool,
    consume: bool,
) -> list[Array]:
    *parts, b = arrays
    f, matrix = MixedFactor(*parts), _Matrix(r, a)
    whole = b if replicated else matrix.whole(b)
    left, right = (f.columns, f.rows) if transpose else (f.rows, f.columns)
    scaled = left[:, None] * whole
    # Columns of b about 1, by powers of two.
    _, exponent = jnp.frexp(jnp.max(jnp.abs(scaled), axis=0))
    unit = jnp.ldexp(jnp.ones((whole.shape[1],), r.real_dtype), exponent)
    unit = jnp.where(jnp.isfinite(unit) & (unit > 0), unit, 1)
    usable = (f.info[0] == 0) & (f.info[_calls.MADE_ON] == 0)
    found = _refinement.refine(_system(r, ctx, matrix, f, transpose), scaled / unit, usable)

    def success(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        info = jnp.zeros_like(f.info).at[ITERATIONS].set(found.iterations)
        x = unit * (right[:, None] * found.x)
        return [x, info.at[PATH].set(found.path), *operands[:consume]]

    def fall_back(found: Any, operands: tuple[Array, Array]) -> list[Array]:
        a, b = operands
        if not consume:  # a copy in the place of the low-precision factor; see _mixed
            a = jnp.where(found.iterations >= 0, a, jnp.zeros((), r.dtype))
        x, info, work = _natively(r, ctx, a, b, transpose)
        why = jnp.where(usable, NOT_CONVERGED, FACTOR_FAILED)
        info = info.at[ITERATIONS].set(why).at[PATH].set(_refinement.NATIVE)
        return [x, info, *[work][:consume]]

    x, *rest = _refinement.with_fall_back(found, success, fall_back, (a, whole))
    return [x if replicated else matrix.own(x), *rest]


def _solve_types(
    a: Any, *arrays: Any, r: Resolved, replicated: bool, transpose: bool, consume: bool
) -> list[Any]:
    b = arrays[-1]
    spec = REPLICATED if replicated else rows_spec(r.layout)
    matrix = typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows_spec(r.layout))
    return [
        typed(a, r.layout, b.shape, b.dtype, spec),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        *[matrix][:consume],
    ]


def _solve_one_device(
    r: Resolved, a: Array, *arrays: Array, replicated: bool, transpose: bool, consume: bool
) -> list[Array]:
    a, *parts, b = (gathered(r.layout, x) for x in (a, *arrays))
    f, one = MixedFactor(*parts), r.on_one_rank
    f = f._replace(
        work=f.work[: r.n],
        aux=f.aux[: one.low.aux_count],
        info=f.info.at[_calls.MADE_ON].set(1 - f.info[_calls.MADE_ON]),
    )
    x, info, *work = mixed_lu_solve_p.bind(
        a[: r.n], *f, b[: r.n], r=one, replicated=True, transpose=transpose, consume=consume
    )
    return [pad_rows(x, b.shape[0]), info, *[pad_rows(x, r.padded_rows) for x in work]]


def _solve_specs(
    layout: Layout, *, replicated: bool, transpose: bool, consume: bool
) -> tuple[Specs, Specs]:
    rows = rows_spec(layout)
    rhs = REPLICATED if replicated else rows
    factor = (rows, vector_spec(layout), *(REPLICATED,) * 5)
    return (rows, *factor, rhs), (rhs, REPLICATED, *(rows,) * consume)


mixed_lu_solve_p = define(
    "jaxmg_mixed_lu_solve",
    Operation(
        block=_solve_block,
        one_device=_solve_one_device,
        pad=lambda r, a, *arrays, **_: [pad_rows(a, r.padded_rows), *arrays],
        specs=_solve_specs,
    ),
    _solve_types,
    batch_solution,
)


def factor(r: Resolved, a: Array) -> MixedFactor:
    """The low-precision factor of a matrix without tangents."""
    f = MixedFactor(*mixed_lu_factor_p.bind(a, r=r))
    return f._replace(info=on_all_devices(r.layout, f.info))


def solve(
    r: Resolved,
    a: Array,
    f: MixedFactor,
    b: Array,
    *,
    split: bool = False,
    consume: bool = False,
) -> tuple[Array, Array, Array | None]:
    """Solves A x = b for b of shape (n, k), k >= 1.

    Args:
        r, a, b, split: as of _lu.solve. Derivatives use the same factor.
        f: the factor of `a`.
        consume: whether to hand back what the buffer of A has become.

    Returns:
        x, `info` with ITERATIONS and PATH set, and the buffer or None.
    """
    stopped = lax.stop_gradient(a)
    f = MixedFactor(*(lax.stop_gradient(part) for part in f))

    def apply(rhs: Array, replicated: bool, transpose: bool) -> tuple[Array, Any]:
        x, *more = mixed_lu_solve_p.bind(
            stopped, *f, rhs, r=r, replicated=replicated, transpose=transpose, consume=consume
        )
        return x, more

    x, (info, *work) = linear_solve(r, a, b, apply, split=split)
    return x, on_all_devices(r.layout, info), work[0] if work else None
