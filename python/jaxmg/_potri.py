"""Inverse of a Hermitian positive definite matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from . import _cholesky, errors
from ._arguments import (
    cast,
    check_backend,
    check_matrix,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    precision_of,
)
from ._context import calling_on
from ._layout import MIXED, AnyMesh
from ._memory import check_memory
from ._operands import gathered
from ._potrs import solve_call
from ._preparation import Specs, prepare_matrix
from ._prepared import Prepared, signature
from ._resolve import check_mesh, check_specs, is_concrete
from ._solve_call import Call

run_inverse = jax.jit(solve_call, static_argnums=0)
_run_donating = jax.jit(solve_call, static_argnums=0, donate_argnums=1)
_prepared: Prepared[Call] = Prepared()


def prepare_inverse(
    routine: str,
    a: Any,
    T_A: int | None,
    *,
    mesh: AnyMesh | None,
    in_specs: Specs,
    matrix_specs: Specs,
    pad: bool,
    lower: bool | None,
    precision: Any,
    n: int | None,
    backend: str = "native",
) -> tuple[Call, Any]:
    """Checks the operand of an inverse and works out the call and where the operand belongs."""
    arithmetic = precision_of(precision)
    if arithmetic == MIXED:
        raise ValueError(
            f"precision: got {precision!r}; {routine} has no mixed precision. For A^-1 B use "
            "jaxmg.potrs(A, B, precision='mixed')."
        )
    a = host_or_device(a, "a")
    check_matrix(routine, a)
    r, a, local_rows = prepare_matrix(
        routine,
        cast(a, common_dtype(routine, a=a)),
        tile=check_tile(T_A),
        mesh=check_mesh(mesh),
        spec=check_specs(in_specs, matrix_specs)[0],
        pad=pad,
        lower=lower,
        n=n,
        precision=arithmetic,
        backend=backend,
    )
    return Call(r, local_rows=local_rows, want_inverse=True), a


def potri(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    matrix_specs: Specs = None,
    donate: bool = False,
    lower: bool | None = None,
    precision: Any = None,
    backend: str | None = None,
    check: bool = False,
    n: int | None = None,
) -> Any:
    """Inverts A by Cholesky, with A Hermitian positive definite and spread over devices.

    The whole inverse, both triangles, in the user's order and with A's rows on A's devices. It
    takes n^3 operations, a third of them for the factor, and one more matrix at most: none if
    `donate` or a dead operand under ``jit`` lets it take the place of A. LAPACK: xPOTRF, xPOTRI.

    Args:
        a: the matrix, shape (n, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). All of it must be valid unless `lower` is given; imaginary
            parts of its diagonal are ignored. NumPy arrays are accepted.
        T_A: rows that are eliminated together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix.
        return_status: whether to return the status too.
        pad: False says that each shard of `a` has been padded by ``calculate_padding(rows, T_A)``
            rows already.
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        precision: as in :func:`jaxmg.potrs`.
        backend: as in :func:`jaxmg.potrs`.
        check: as of :func:`jaxmg.potrs`.
        n: the true size of a matrix that was padded to (devices * ceil(n / devices), n).

    Returns:
        A^-1 with the shape and the rows of `a` (whole on every device if JAX cannot split n rows
        evenly; give a padded matrix with `n` for a split result); with the status, an int32 scalar
        as of :func:`jaxmg.potrs`, if `return_status`. After a failure the inverse is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        BackendUnavailableError: the devices, or the libraries found, are not those of `backend`.
        NotPositiveDefiniteError, NonFiniteInputError, NotHermitianError: with `check`.

    Derivatives: d(A^-1) = -A^-1 dA A^-1, at any order, from one factorisation.

    Example:
        >>>         >>> import jaxmg
        >>> jaxmg.potri(jnp.array([[2.0, 1.0], [1.0, 1.0]])).round(4).tolist()
        [[1.0, -1.0], [-1.0, 2.0]]
    """
    given = a
    options = (T_A, mesh, in_specs, matrix_specs, pad, lower, n, precision, backend, donate)
    key = signature(a, None, (*options, return_status, check))
    call = _prepared.get(key)
    if call is None:
        call, a = prepare_inverse(
            "potri",
            a,
            T_A,
            mesh=mesh,
            in_specs=in_specs,
            matrix_specs=matrix_specs,
            pad=pad,
            lower=lower,
            precision=precision,
            n=n,
            backend=check_backend("potri", backend),
        )
        call = dataclasses.replace(call, want_status=return_status or check, report=check)
        small = check_memory("potri", call.r, 1, in_place=donate or not is_concrete(a))
        if small and a is given:
            _prepared.put(key, call)
    eager = is_concrete(a)
    with calling_on(call.r.layout):
        if donate and eager:
            with giving_away(a, given):
                out = _run_donating(call, a)
        else:
            out = run_inverse(call, a)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "potri")
        if failure is not None:
            raise failure
    x = out.inverse
    if n is None and call.r.layout.kind == "dist" and x.shape[0] != call.r.n:
        # The rows that were added so that every device has as many.
        x = gathered(call.r.layout, x)[: call.r.n]
    if return_status:
        return x, _cholesky.jitted_status(out.info)
    return x
