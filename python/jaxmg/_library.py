"""Small problems on one GPU, by the dense solvers that come with JAX.

A call of the engine is a chain of launches, which takes its time even if there is little to do.
Below some size one kernel of a library is faster. What a call means stays the same: which triangle
is read, statuses, NaN after a failure, derivatives.

These functions stand for operations of one device, with whole matrices. The factors that they make
are used by nobody else and have a form of their own:

    Cholesky  work = L with A = L L^H, aux = A, which is kept only if failures are to be located
    LU        work = L and U, pivots = p, p^-1 with A^T[p] = L U
    QR        work and aux = Q and R, the larger one first
"""

from __future__ import annotations

import os
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from . import _calls, errors
from ._calls import unless_failed
from ._dot import dot
from ._hermitian import transposed
from ._operands import places
from ._scattered import scattered

VARIABLE = "JAXMG_LIBRARY_BELOW"

# The largest n for which JAX's own solver takes less time on one GPU (H200), by element type.
_DTYPES = ("float32", "float64", "complex64", "complex128")
_FASTER = {
    "potrs": (4096, 4096, 4096, 4096),
    "potri": (256, 256, 256, 256),
    "lu_solve": (2048, 1024, 2048, 1024),
    "qr": (512, 256, 256, 256),
    "syevd": (2048, 2048, 3072, 2048),
    "eigenvalues": (1024, 1024, 1024, 1024),
}
# Relative mismatch above which a matrix is not Hermitian, as of the engine's probe.
_HERMITIAN = 1e-3


def size_in_environment(variable: str) -> int | None:
    """The number that an environment variable holds (None: it is not set)."""
    text = os.environ.get(variable, "")
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{variable}: got {text!r}; accepted are integers >= 0.")
    return int(text)


def setting() -> int | None:
    """What the environment says of all routines and platforms (None: nothing)."""
    return size_in_environment(VARIABLE)


def below(routine: str, dtype: str, platform: str) -> int:
    """The largest n for which `routine` is left to JAX's own solver on one device; 0: none."""
    if routine not in _FASTER:
        return 0
    chosen = setting()
    if chosen is not None:
        return chosen
    return _FASTER[routine][_DTYPES.index(dtype)] if platform == "cuda" else 0


# --- what is common --------------------------------------------------------------------------


def _report(kind: Array, position: Any = 0) -> Array:
    """An `info` of that kind; the position belongs to positive ones."""
    info = jnp.zeros((8,), jnp.int32).at[0].set(kind.astype(jnp.int32))
    info = info.at[1].set(jnp.where(kind > 0, position, 0).astype(jnp.int32))
    return info.at[_calls.PHASE].set(_calls.NATURAL_ORDER)


def _first(*kinds: Any) -> Array:
    """The first kind that is a failure. Each is a pair of a condition and a kind."""
    found: Array = jnp.asarray(errors.OK, jnp.int32)
    for condition, kind in reversed(kinds):
        found = jnp.where(condition, kind, found)
    return found


def _one_triangle(a: Array, triangle: int) -> Array:
    """The valid part of a Hermitian matrix, zero elsewhere."""
    if triangle < 0:
        return a
    row, column = places(a)
    return jnp.where(row >= column if triangle == 0 else row <= column, a, jnp.zeros_like(a))


def _real_diagonal(a: Array) -> Array:
    """The same without the imaginary parts on the diagonal, which nobody uses."""
    if not jnp.iscomplexobj(a):
        return a
    row, column = places(a)
    return jnp.where(row == column, jnp.real(a).astype(a.dtype), a)


def _size(a: Array) -> Array:
    """The largest absolute value of a real or imaginary part; NaN if there is one."""
    if jnp.iscomplexobj(a):
        return jnp.max(jnp.maximum(jnp.abs(jnp.real(a)), jnp.abs(jnp.imag(a))))
    return jnp.max(jnp.abs(a))


def _differs(a: Array) -> Array:
    """Whether A is not Hermitian, by one vector, as the engine judges it (hermitian_probe.h):

    y = A v,  z = A^H v  with |v_i| < 1 / n;   max |y - z| > threshold max |y|
    """
    n = a.shape[0]
    row = lax.iota(jnp.int32, n)
    v = (scattered(row, row, 0, a.dtype) / (2 * n)).astype(a.dtype)
    y, z = dot(a, v), transposed(a, v)
    return jnp.max(jnp.abs(y - z)) > _HERMITIAN * jnp.max(jnp.abs(y))


def _hermitian(a: Array, triangle: int) -> tuple[Array, Array, list[tuple[Any, int]]]:
    """The valid part of A, its largest element, and what may be wrong with it."""
    used = _one_triangle(a, triangle)
    size, valid = _size(used), _real_diagonal(used)
    faults: list[tuple[Any, int]] = [(~jnp.isfinite(size), errors.NON_FINITE)]
    if triangle < 0:
        faults.append((_differs(valid), errors.NOT_HERMITIAN))
    return valid, size, faults


def _triangular(a: Array, b: Array, **options: bool) -> Array:
    x: Array = lax.linalg.triangular_solve(a, b, left_side=True, **options)
    return x


# --- Cholesky --------------------------------------------------------------------------------


def potrf(r: Any, a: Array) -> list[Array]:
    valid, _, faults = _hermitian(a, r.triangle)
    lower = jnp.conj(valid.T) if r.triangle == 1 else valid
    factor = lax.linalg.cholesky(lower, symmetrize_input=False)
    failed = ~jnp.isfinite(jnp.real(jnp.diagonal(factor))).all()
    info = _report(_first(*faults, (failed, errors.NOT_POSITIVE_DEFINITE)), r.n)
    return [factor, a.reshape(-1), info]


def potrs(
    r: Any, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> list[Array]:
    x = _triangular(work, b, lower=True)
    x = _triangular(work, x, lower=True, transpose_a=True, conjugate_a=True)
    return [unless_failed(info, x)]


def logdet(r: Any, work: Array, info: Array) -> list[Array]:
    value = 2 * jnp.sum(jnp.log(jnp.real(jnp.diagonal(work))))
    return [unless_failed(info, value)]


def potri(r: Any, work: Array, aux: Array, info: Array) -> list[Array]:
    inverse = _triangular(work, jnp.eye(r.n, dtype=work.dtype), lower=True)
    return [unless_failed(info, dot(jnp.conj(inverse.T), inverse))]


def locate(r: Any, work: Array, aux: Array, info: Array) -> list[Array]:
    """The engine says where a factorisation fails; see _calls.locate."""
    engine = r.by_engine

    def found(a: Array, info: Array) -> Array:
        context = _calls.context(engine.layout, engine.call_id)
        factor = _calls.potrf(engine, context, a)
        _, place = _calls.locate(engine, context, *factor)
        # A matrix on the edge may pass there.
        position = jnp.where(place[0] == errors.NOT_POSITIVE_DEFINITE, place[1], r.n)
        return info.at[1].set(position)

    a = aux.reshape(r.n, r.n)
    return [work, lax.cond(info[0] > 0, found, lambda _, info: info, a, info)]


# --- LU --------------------------------------------------------------------------------------


def getrf(r: Any, a: Array, *, natural: bool) -> list[Array]:
    """Of A^T, as in the engine, so that a singular matrix is told by an equation."""
    factors, _, order = lax.linalg.lu(a.T)
    zero = jnp.diagonal(factors) == 0
    faults = ((~jnp.isfinite(_size(a)), errors.NON_FINITE), (zero.any(), errors.SINGULAR))
    info = _report(_first(*faults), jnp.argmax(zero) + 1)
    order = order.astype(jnp.int32)
    place = jnp.zeros_like(order).at[order].set(lax.iota(jnp.int32, r.n), unique_indices=True)
    aux = jnp.zeros((r.aux_count,), a.dtype)
    return [factors, aux, jnp.concatenate([order, place]), info]


def getrs(
    r: Any,
    work: Array,
    aux: Array,
    pivots: Array,
    info: Array,
    b: Array,
    *,
    replicated: bool,
    transpose: bool,
) -> list[Array]:
    if transpose:  # A^T x = b:  L U x = b[p]
        x = _triangular(work, b[pivots[: r.n]], lower=True, unit_diagonal=True)
        x = _triangular(work, x, lower=False)
    else:  # A x = b:  U^T L^T x[p] = b
        x = _triangular(work, b, lower=False, transpose_a=True)
        x = _triangular(work, x, lower=True, transpose_a=True, unit_diagonal=True)
        x = x[pivots[r.n :]]
    return [unless_failed(info, x)]


# --- QR --------------------------------------------------------------------------------------


def geqrf(r: Any, a: Array) -> list[Array]:
    q, triangle = lax.linalg.qr(a, full_matrices=False)
    info = _report(_first((~jnp.isfinite(_size(a)), errors.NON_FINITE)))
    pair = (q, triangle) if r.m >= r.n else (triangle, q)
    work, aux = (unless_failed(info, x) for x in pair)
    return [work, aux.reshape(-1), info]


def orgqr(r: Any, work: Array, aux: Array, info: Array, *, columns: int) -> list[Array]:
    square = aux.reshape(r.rank, r.rank)
    return [work, square] if r.m >= r.n else [square, work]


# --- eigenproblems ---------------------------------------------------------------------------


def syevd(r: Any, a: Array, *, vectors: bool, first: int, count: int) -> list[Array]:
    a, size, faults = _hermitian(a, r.triangle)
    # Powers of two bring extreme matrices to where no square overflows or is lost.
    limit = -int(jnp.finfo(size.dtype).minexp) - 2
    usable = jnp.isfinite(size) & (size > 0)
    exponent = jnp.where(usable, jnp.clip(jnp.frexp(size)[1], -limit, limit), 0)
    scale, back = (
        jnp.ldexp(jnp.ones_like(size), -exponent),
        jnp.ldexp(jnp.ones_like(size), exponent),
    )
    v, w = lax.linalg.eigh(a * scale.astype(a.dtype), lower=r.triangle <= 0, symmetrize_input=False)
    missing = jnp.isnan(w)
    info = _report(_first(*faults, (missing.any(), errors.NO_CONVERGENCE)), missing.sum())
    results = [unless_failed(info, w * back)]
    if vectors:
        results.append(unless_failed(info, v[:, first : first + count]))
    return [*results, info]
