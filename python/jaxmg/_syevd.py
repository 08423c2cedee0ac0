"""Eigenvalues and eigenvectors of a Hermitian matrix: the call as users make it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from . import _cholesky, _eig, _eig_manual, _matmul, _native
from ._arguments import (
    check_backend,
    check_tile,
    precision_of,
    triangle_of,
)
from ._decomposition import Call, Program, Results
from ._eig_primitives import ResolvedEig, resolve_eig
from ._gather import small_eigenproblem
from ._layout import MIXED, AnyMesh
from ._matmul import Ring
from ._matrix_operand import prepare_matrix
from ._memory import NEGLIGIBLE
from ._preparation import Specs
from ._prepared import Prepared, signature
from ._resolve import is_concrete
from ._spectral_memory import check_bytes, eigen_bytes


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a call is to return.

    Attributes:
        vectors: whether eigenvectors are wanted.
        first, count: which of them, and which eigenvalues.
        average: whether (A + A^H) / 2 takes the place of A.
    """

    vectors: bool
    first: int
    count: int
    average: bool = False


EigenCall = Call[ResolvedEig, Wanted]


def _empty(call: EigenCall) -> Results:
    wanted = call.wanted
    shape = (call.operand.stored_rows, wanted.count)
    return Results(
        values=jnp.zeros((wanted.count,), call.r.real_dtype),
        right=jnp.zeros(shape, call.r.dtype) if wanted.vectors else None,
        info=jnp.zeros((8,), jnp.int32),
    )


def decompose(call: EigenCall, a: Array) -> Results:
    """The program of one call."""
    r, wanted = call.r, call.wanted
    if r.n == 0:
        return _empty(call)
    a = call.operand.enter(a)
    if r.layout.kind == "manual":
        source = _eig_manual.varying(a)
        out = _eig_manual.decompose(r, wanted.vectors, source, _eig_manual.enter(r, a))
    else:
        a = _eig.enter(r, a)
        if wanted.average:
            a = 0.5 * (a + _matmul.adjoint(Ring(r.layout), a, r.n))
        if not wanted.vectors:
            out = _eig.values(r, a)
        elif wanted.count == r.n:
            out = _eig.decompose(r, a)
        else:
            out = _eig.some(r, wanted.first, wanted.count, a)
    w, *v, info = out
    chosen = lax.slice_in_dim(w, wanted.first, wanted.first + wanted.count)
    return Results(values=chosen, right=v[0] if v else None, info=info)


eigen: Program[ResolvedEig, Wanted] = Program("syevd", decompose)

_prepared: Prepared[EigenCall] = Prepared()


def prepare_eigen(
    routine: str,
    a: Any,
    T_A: int | None,
    *,
    mesh: AnyMesh | None,
    in_specs: Specs,
    matrix_specs: Specs,
    pad: bool,
    lower: bool | None,
    n: int | None,
    vectors: bool,
    subset: tuple[int, int] | None = None,
    in_place: bool = True,
    backend: str = "native",
    precision: Any = None,
) -> tuple[EigenCall, Any]:
    """Checks the operand and works out the call and where the operand belongs.

    `subset`: first and last index of the wanted eigenvalues; `in_place`: whether A may be lost.
    """
    tile = check_tile(T_A)
    arithmetic = precision_of(precision)
    if arithmetic == MIXED:
        raise ValueError(f"precision: got {precision!r}; {routine} has no mixed precision.")
    operand, a = prepare_matrix(
        routine,
        a,
        mesh=mesh,
        in_specs=in_specs,
        matrix_specs=matrix_specs,
        tile=tile,
        pad=pad,
        rows=n,
        square=True,
    )
    size, layout = operand.columns, operand.layout
    _native.require_backend(backend, layout.platform, layout.ranks)
    r = resolve_eig(
        layout,
        size,
        operand.dtype,
        tile=tile,
        triangle=triangle_of(lower),
        backend=backend,
        precision=arithmetic,
        vectors=vectors,
    )
    r = small_eigenproblem(r, tile, vectors)
    first, last = (0, size - 1) if subset is None else subset
    count = last - first + 1

    call = Call(r, operand, Wanted(vectors, first, count))
    needed = functools.partial(_bytes_needed, call, not in_place)
    check_bytes(routine, layout, size, size, r.dtype, lambda _, n: needed(n))
    return call, a


def _bytes_needed(call: EigenCall, kept: bool, n: int) -> int:
    """Of such a call for a matrix of size n, on one device."""
    r, wanted = call.r, call.wanted
    count = min(wanted.count, n) if wanted.vectors else 0
    layout = r.on_one_rank.layout if r.gathered else r.layout
    return eigen_bytes(layout, n, r.dtype, count, kept or r.gathered, r.backend, r.precision)


def syevd(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_eigenvectors: bool = True,
    return_status: bool = False,
    pad: bool = True,
    *,
    matrix_specs: Specs = None,
    donate: bool = False,
    lower: bool | None = None,
    backend: str | None = None,
    precision: Any = None,
    check: bool = False,
    n: int | None = None,
) -> Any:
    """Eigenvalues and eigenvectors of a Hermitian matrix that is spread over devices.

    A V = V diag(w) with ascending w and orthonormal columns of V, by reduction to a band and to
    tridiagonal form, divide and conquer, and back-transformation (LAPACK: xSYEVD, xHEEVD). About
    9 n^3 operations with eigenvectors and 4/3 n^3 without, in real arithmetic; memory for some
    five matrices, spread over the devices (without eigenvectors for two).

    Args:
        a: the matrix, shape (n, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). All of it must be valid unless `lower` is given; imaginary
            parts of its diagonal are ignored. NumPy arrays are accepted.
        T_A: rows that are worked on together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix.
        return_eigenvectors: whether to return V too. Without it no eigenvectors are formed,
            unless a derivative needs them.
        return_status: whether to return the status too.
        pad: False says that each shard of `a` has been padded by ``calculate_padding(rows, T_A)``
            rows already.
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        backend: as in :func:`jaxmg.potrs`. With "cusolvermg", `T_A` is the block size that the
            matrix is redistributed to, up to 1024.
        precision: arithmetic of products that make float32 eigenvectors on GPUs, as in
            :func:`jaxmg.potrs`, but for "mixed", which there is not: "highest" makes them in
            float32, and by default tensor cores do, each number as two half-precision ones. The
            reduction to a band is in the element type in any case.
        check: eagerly, whether to wait and raise an exception on failure; under ``checkify``,
            whether to report one. Elsewhere under ``jit`` it does nothing.
        n: the true size of a matrix that was padded to (devices * ceil(n / devices), n); V is
            padded likewise then.

    Returns:
        w, real, shape (n,), equal on all devices; V, shape (n, n), split by rows as A is (whole on
        every device if JAX cannot split n rows evenly), if `return_eigenvectors`; the status, an
        int32 scalar, if `return_status`: 0, a positive number if eigenvalues did not converge, or
        a negative one that :func:`jaxmg.errors.explain` explains. After a failure all is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        BackendUnavailableError: the devices, or the libraries found, are not those of `backend`.
        ConvergenceError, NonFiniteInputError, NotHermitianError: with `check`.

    Eigenvectors are determined up to a phase (a sign), and up to a rotation within the space of a
    repeated eigenvalue. None is singled out here, so that they may differ between numbers of
    devices; derivatives take v^H dv = 0. Derivatives of any order exist of w if eigenvalues are
    distinct, and of functions that do not depend on the choice in any case; eigenvalues that
    differ by less than 8 sqrt(n) eps max|w| count as equal. See ``docs/derivatives.md``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> w, v = jaxmg.syevd(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> w.round(4).tolist()
        [1.0, 3.0]
    """
    given = a
    options = (T_A, mesh, in_specs, matrix_specs, pad, lower, n, precision, backend, donate)
    key = signature(a, None, (*options, return_eigenvectors, check))
    call = _prepared.get(key)
    if call is None:
        in_place = donate or not is_concrete(a)
        call, a = prepare_eigen(
            "syevd",
            a,
            T_A,
            mesh=mesh,
            in_specs=in_specs,
            matrix_specs=matrix_specs,
            pad=pad,
            lower=lower,
            n=n,
            vectors=return_eigenvectors,
            in_place=in_place,
            backend=check_backend("syevd", backend),
            precision=precision,
        )
        call = dataclasses.replace(call, report=check)
        needed = _bytes_needed(call, not in_place, call.r.n)
        if a is given and needed < NEGLIGIBLE[call.r.layout.platform]:
            _prepared.put(key, call)
    out = eigen(call, a, given=given if donate else None, check=check)
    results = [out.values]
    if return_eigenvectors:
        results.append(call.operand.leave(out.right, call.operand.columns, padded=n is not None))
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    return results[0] if len(results) == 1 else tuple(results)
