"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._arguments import (
    broadcast_batches,
    cast,
    common_dtype,
    host_or_device,
    place_matrix,
    triangle_of,
)
from .._context import calling_on
from .._decomposition import Results
from .._generalised import TYPES, GeneralisedCall, run_generalised
from .._layout import AnyMesh
from .._preparation import Specs
from .._resolve import is_concrete
from .._syevd import EigenCall, eigen, prepare_eigen


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EighSelection(NamedTuple):
    """Eigenvalues in an interval, their eigenvectors, and how many there are; the rest is NaN."""

    eigenvalues: Array
    eigenvectors: Array
    found: Array


@dataclasses.dataclass(frozen=True)
class _Options:
    """What of the arguments does not belong to one matrix."""

    routine: str
    lower: bool | None
    average: bool
    vectors: bool
    mesh: AnyMesh | None
    in_specs: Any
    T_A: int | None
    indices: tuple[int, int] | None = None
    interval: tuple[Any, Any] | None = None
    max_count: int | None = None
    type: int = 1


def _triangle(routine: str, UPLO: Any) -> bool | None:
    if UPLO is None:
        return None
    if UPLO in ("L", "U"):
        return bool(UPLO == "L")
    raise ValueError(f"{routine}: UPLO is {UPLO!r}; accepted are None, 'L' and 'U'.")


def _indices(routine: str, subset: Any, n: int) -> tuple[int, int] | None:
    if subset is None:
        return None
    try:
        low, high = (int(i) for i in subset)
    except (TypeError, ValueError):
        low, high = 1, 0
    if not 0 <= low <= high < n:
        raise ValueError(
            f"{routine}: subset_by_index is {subset!r}; accepted are two integers with "
            f"0 <= first <= last < {n}."
        )
    return low, high


def _interval(routine: str, o: _Options, a: Any) -> tuple[Any, Any] | None:
    subset = o.interval
    if subset is None:
        if o.max_count is not None:
            raise ValueError(f"{routine}: max_count belongs to subset_by_value.")
        return None
    if o.indices is not None:
        raise ValueError(f"{routine}: give subset_by_index or subset_by_value, not both.")
    if len(subset) != 2:
        raise ValueError(f"{routine}: subset_by_value is {subset!r}; accepted is (low, high).")
    if o.max_count is None and not is_concrete(a) and isinstance(a, jax.Array):
        raise ValueError(
            f"{routine}: subset_by_value needs max_count under jit and in batches, where the "
            "number of results has to be known in advance."
        )
    return subset


@functools.partial(jax.jit, static_argnums=0)
def _select(size: int, low: Any, high: Any, w: Array, v: Array | None) -> tuple[Any, ...]:
    """The first `size` eigenvalues in (low, high], their eigenvectors and their number."""
    first = jnp.sum(w <= low)
    count = jnp.maximum(jnp.sum(w <= high) - first, 0)
    inside = jnp.arange(size) < count

    def cut(x: Array) -> Array:
        axis = x.ndim - 1
        x = jnp.pad(x, [(0, 0)] * axis + [(0, size)])
        x = lax.dynamic_slice_in_dim(x, first, size, axis)
        return jnp.where(inside, x, jnp.asarray(jnp.nan, x.dtype))

    return cut(w), None if v is None else cut(v), count


def _generalised(o: _Options, call: EigenCall, a: Any, b: Any) -> Results:
    triangle = triangle_of(o.lower)
    if triangle < 0 and not o.average:
        triangle = 0  # any half of a Hermitian matrix
    b = place_matrix(b, call.r.layout, call.r.n)
    general = GeneralisedCall(call, o.type, triangle)
    with calling_on(call.r.layout):
        out: Results = run_generalised(general, a, b)
    return out


def _one(o: _Options, a: Any, b: Any = None) -> tuple[Any, ...]:
    """w, V or None, and the count or None, of one matrix (and B)."""
    indices = _indices(o.routine, o.indices, a.shape[1])
    interval = _interval(o.routine, o, a)
    call, a = prepare_eigen(
        o.routine,
        a,
        o.T_A,
        mesh=o.mesh,
        in_specs=o.in_specs,
        matrix_specs=None,
        pad=True,
        lower=o.lower if b is None else None,
        n=None,
        vectors=o.vectors,
        subset=indices,
    )
    if b is None:
        wanted = dataclasses.replace(call.wanted, average=o.average)
        out = eigen(dataclasses.replace(call, wanted=wanted), a)
    else:
        out = _generalised(o, call, a, b)
    w, v, count = out.values, out.right, None
    if interval is not None:
        size = call.r.n if o.max_count is None else min(int(o.max_count), call.r.n)
        w, v, count = _select(size, *interval, w, v)
        if o.max_count is None:
            w, v = w[: int(count)], None if v is None else v[:, : int(count)]
    if v is not None:
        v = call.operand.leave(v, call.r.n)
    return w, v, count


def _solve(o: _Options, a: Any, b: Any = None) -> tuple[Any, ...]:
    """As _one, for matrices with leading batch axes."""
    given = {"a": host_or_device(a, "a")}
    if b is not None:
        given["b"] = host_or_device(b, "b")
    dtype = common_dtype(o.routine, **given)
    arrays = [cast(x, dtype) for x in given.values()]
    if b is not None:
        if o.type not in TYPES:
            raise ValueError(f"{o.routine}: type is {o.type!r}; accepted are {TYPES}.")
        if arrays[0].shape[-2:] != arrays[1].shape[-2:]:
            raise ValueError(
                f"{o.routine}: a has shape {arrays[0].shape} and b {arrays[1].shape}; accepted are "
                "matrices of one size."
            )
    batch = broadcast_batches(o.routine, *(x.shape[:-2] for x in (arrays[0], arrays[-1])))
    if not batch:
        return _one(o, *arrays)
    if o.interval is not None and o.max_count is None:
        raise ValueError(f"{o.routine}: subset_by_value needs max_count for a batch.")
    function = functools.partial(_one, o)
    for _ in batch:
        function = jax.vmap(function)
    return function(*(jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in arrays))


def eigh(
    a: Any,
    UPLO: str | None = None,
    symmetrize_input: bool = True,
    *,
    b: Any = None,
    type: int = 1,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[Any, Any] | None = None,
    max_count: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> EighResult | EighSelection:
    """Eigenvalues and eigenvectors of Hermitian matrices; see :func:`jaxmg.syevd`.

    With `b`, those of the generalised problem A x = w B x (type 1), A B x = w x (2) or B A x = w x
    (3), by the Cholesky factor of B: x^H B x = 1, for type 3 x^H B^-1 x = 1, as in SciPy. All is
    NaN if B is not positive definite.

    Args:
        a: the matrix, shape (..., n, n).
        UPLO: "L" or "U": only that triangle is read, as in NumPy. None: all of `a` is.
        symmetrize_input: without `UPLO`, whether (A + A^H) / 2 takes the place of A, as in
            ``jax.numpy.linalg``. False saves one copy of the matrix.
        b: the matrix B, Hermitian positive definite, of the shape of `a` (batch axes broadcast).
            `UPLO` and `symmetrize_input` mean both.
        type: which generalised problem.
        subset_by_index: first and last index of the wanted eigenvalues, counted from zero in
            ascending order, both included. Only their eigenvectors are formed.
        subset_by_value: (low, high): eigenvalues in the half-open interval (low, high].
        max_count: with `subset_by_value`, the largest number of eigenvalues to return; needed under
            ``jit`` and for batches. Results have that size then, padded by NaN.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: rows that are worked on together. None lets the plan choose.

    Returns:
        ``(eigenvalues, eigenvectors)``, with ``found``, the number of eigenvalues in the interval
        (which may exceed `max_count`), as a third with `max_count`. NaN after a failure.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import eigh
        >>> w, v = eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]), subset_by_index=(1, 1))
        >>> w.round(4).tolist(), v.shape
        ([3.0], (2, 1))
    """
    lower = _triangle("eigh", UPLO)
    average = symmetrize_input and lower is None
    o = _Options("eigh", lower, average, True, mesh, in_specs, T_A)
    o = dataclasses.replace(
        o, indices=subset_by_index, interval=subset_by_value, max_count=max_count, type=type
    )
    w, v, count = _solve(o, a, b)
    return EighResult(w, v) if max_count is None else EighSelection(w, v, count)


def eigvalsh(
    a: Any,
    UPLO: str | None = None,
    *,
    symmetrize_input: bool = True,
    b: Any = None,
    type: int = 1,
    subset_by_index: tuple[int, int] | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> Array:
    """Eigenvalues of Hermitian matrices, ascending. No eigenvectors are formed.

    Args:
        a: the matrix, shape (..., n, n).
        UPLO, symmetrize_input, b, type, subset_by_index, mesh, in_specs, T_A: as for
            :func:`eigh`.

    Returns:
        A real array of shape (..., n); NaN after a failure.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    lower = _triangle("eigvalsh", UPLO)
    average = symmetrize_input and lower is None
    o = _Options("eigvalsh", lower, average, False, mesh, in_specs, T_A, indices=subset_by_index)
    w: Array = _solve(dataclasses.replace(o, type=type), a, b)[0]
    return w
