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

from . import _lu_calls, _mixed_solve
from ._batching import batch_factor_operation, batch_solution
from ._dot import contract, dot
from ._layout import Layout, Resolved
from ._local_rows import LocalRows
from ._lu import linear_solve
from ._operands import gathered, on_all_devices, pad_rows
from ._operation import REPLICATED, Operation, Specs, define, rows_spec, typed

_THIN = 5  # parts of a factor after work and aux


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
    return [
        *_mixed_solve.factor_types(a, r),
        typed(a, r.layout, (2 * r.n,), jnp.int32, REPLICATED),
        typed(a, r.layout, (8,), jnp.int32, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED),
        typed(a, r.layout, (4,), r.real_dtype, REPLICATED),
    ]


def _factor_one_device(r: Resolved, a: Array) -> list[Array]:
    a = gathered(r.layout, a)[: r.n]
    return [*_mixed_solve.widened(r, MixedFactor(*mixed_lu_factor_p.bind(a, r=r.on_one_rank)))]


mixed_lu_factor_p = define(
    "jaxmg_mixed_lu_factor",
    Operation(
        block=_factor_block,
        one_device=_factor_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: (
            (rows_spec(layout),),
            _mixed_solve.factor_operand_specs(layout, _THIN),
        ),
        makes_factor=True,
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


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
    left, right = (f.columns, f.rows) if transpose else (f.rows, f.columns)
    norm, scaled_norm = (f.norms[2], f.norms[3]) if transpose else (f.norms[0], f.norms[1])
    scaled = _mixed_solve.Scaled(left[:, None], right[:, None], norm, scaled_norm)
    factor = f.work, f.aux, f.pivots, f.info
    equations = _mixed_solve.system(
        r,
        scaled,
        matrix.transposed_product if transpose else matrix.product,
        lambda low: _lu_calls.getrs(
            r.low, ctx, *factor, b=low, replicated=True, transpose=transpose
        ),
        hermitian=False,
        agree=matrix.agree,
    )
    return _mixed_solve.solve_block(
        equations,
        scaled,
        matrix,
        f.info,
        a,
        b,
        lambda a, b: _natively(r, ctx, a, b, transpose),
        replicated=replicated,
        consume=consume,
    )


def _solve_one_device(r: Resolved, *arrays: Array, **params: bool) -> list[Array]:
    return _mixed_solve.solve_one_device(mixed_lu_solve_p.bind, MixedFactor, r, *arrays, **params)


def _solve_specs(
    layout: Layout, *, replicated: bool, transpose: bool, consume: bool
) -> tuple[Specs, Specs]:
    return _mixed_solve.solution_specs(layout, _THIN, replicated=replicated, consume=consume)


mixed_lu_solve_p = define(
    "jaxmg_mixed_lu_solve",
    Operation(
        block=_solve_block,
        one_device=_solve_one_device,
        pad=lambda r, a, *arrays, **_: [pad_rows(a, r.padded_rows), *arrays],
        specs=_solve_specs,
    ),
    _mixed_solve.solution_types,
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
