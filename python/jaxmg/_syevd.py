"""Eigenvalues and eigenvectors of a Hermitian matrix: the call as users make it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _cholesky, _eig, _eig_manual, _matmul, _native, errors
from ._arguments import (
    check_backend,
    check_tile,
    giving_away,
    triangle_of,
)
from ._context import calling_on
from ._eig_primitives import ResolvedEig, resolve_eig
from ._layout import AnyMesh
from ._matmul import Ring
from ._matrix_operand import Operand, prepare_matrix
from ._potrs import Specs
from ._resolve import is_concrete
from ._spectral_memory import check_bytes, eigen_bytes


@dataclasses.dataclass(frozen=True)
class Call:
    """Everything static about one call.

    Attributes:
        r: the decomposition.
        operand: the matrix.
        vectors: whether eigenvectors are wanted.
        first, count: which of them, and which eigenvalues.
        report: whether a failure is an error under checkify.
        average: whether (A + A^H) / 2 takes the place of A.
    """

    r: ResolvedEig
    operand: Operand
    vectors: bool
    first: int
    count: int
    report: bool = False
    average: bool = False


@dataclasses.dataclass
class Results:
    """What a call computed. A pytree."""

    w: Any = None
    v: Any = None
    info: Any = None


jax.tree_util.register_dataclass(Results, data_fields=["w", "v", "info"], meta_fields=[])


def _empty(call: Call) -> Results:
    shape = (call.operand.stored_rows, call.count)
    return Results(
        jnp.zeros((call.count,), call.r.real_dtype),
        jnp.zeros(shape, call.r.dtype) if call.vectors else None,
        jnp.zeros((8,), jnp.int32),
    )


def eigen_call(call: Call, a: Array) -> Results:
    """The program of one call."""
    r = call.r
    if r.n == 0:
        return _empty(call)
    a = call.operand.enter(a)
    if r.layout.kind == "manual":
        source = _eig_manual.varying(a)
        out = _eig_manual.decompose(r, call.vectors, source, _eig_manual.enter(r, a))
    else:
        a = _eig.enter(r, a)
        if call.average:
            a = 0.5 * (a + _matmul.adjoint(Ring(r.layout), a, r.n))
        if not call.vectors:
            out = _eig.values(r, a)
        elif call.count == r.n:
            out = _eig.decompose(r, a)
        else:
            out = _eig.some(r, call.first, call.count, a)
    w, *v, info = out
    if call.report:
        _cholesky.report("syevd", info)
    chosen = lax.slice_in_dim(w, call.first, call.first + call.count)
    return Results(chosen, v[0] if v else None, info)


run_eigen = jax.jit(eigen_call, static_argnums=0)
_run_donating = jax.jit(eigen_call, static_argnums=0, donate_argnums=1)


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
) -> tuple[Call, Any]:
    """Checks the operand and works out the call and where the operand belongs.

    `subset`: first and last index of the wanted eigenvalues; `in_place`: whether A may be lost.
    """
    tile = check_tile(T_A)
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
        layout, size, operand.dtype, tile=tile, triangle=triangle_of(lower), backend=backend
    )
    first, last = (0, size - 1) if subset is None else subset
    count = last - first + 1

    def needed(_: int, n: int) -> int:
        return eigen_bytes(
            layout, n, r.dtype, min(count, n) if vectors else 0, not in_place, backend
        )

    check_bytes(routine, layout, size, size, r.dtype, needed)
    return Call(r, operand, vectors, first, count), a


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
    differ by less than 8 eps max|w| count as equal. See ``docs/derivatives.md``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> w, v = jaxmg.syevd(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> w.round(4).tolist()
        [1.0, 3.0]
    """
    given = a
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
        in_place=donate or not is_concrete(a),
        backend=check_backend("syevd", backend),
    )
    call = dataclasses.replace(call, report=check)
    out = run_call(call, a, donate, given, check)
    results = [out.w]
    if return_eigenvectors:
        results.append(call.operand.leave(out.v, call.operand.columns, padded=n is not None))
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    return results[0] if len(results) == 1 else tuple(results)


def run_call(call: Call, a: Any, donate: bool, given: Any, check: bool) -> Results:
    """Runs a call, giving the matrix away if allowed, and raises what `check` asks for."""
    with calling_on(call.r.layout):
        if donate and is_concrete(a):
            with giving_away(a, given):
                out: Results = _run_donating(call, a)
        else:
            out = run_eigen(call, a)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "syevd")
        if failure is not None:
            raise failure
    return out
