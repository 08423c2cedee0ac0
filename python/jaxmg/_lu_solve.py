"""Solution of A x = b with a general square A."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _gesv, _lu, _lu_manual, _lu_mixed, _manual, _one_call, errors
from ._arguments import check_backend, check_tile, precision_of, release
from ._cholesky import jitted_status, report
from ._context import calling_on
from ._layout import AnyMesh
from ._memory import check_memory
from ._operands import constrain, on_mesh
from ._preparation import Specs, prepare, without_local_padding
from ._prepared import Prepared, signature
from ._resolve import check_mesh, check_specs, is_concrete
from ._solve_call import Call, Results, run_in_place, solve_info


def _on_arrays(call: Call, a: Array, b: Array) -> Results:
    """On global arrays."""
    r = call.r
    if r.mixed:
        mixed = _lu_mixed.factor(r, lax.stop_gradient(a))
        x, info, work = _lu_mixed.solve(r, a, mixed, b, split=call.split, consume=call.keep_work)
        return Results(x=x, info=info, work=work)
    if call.together:
        x, f = _gesv.solve(r, a, b, split=call.split)
        return Results(x=x, info=f.info, work=f.work)
    f = _lu.factor(r, a)
    return Results(x=_lu.solve(r, a, f, b, split=call.split), info=f.info, work=f.work)


def solve_call(call: Call, a: Array, b: Array) -> Results:
    """The program of one call."""
    r = call.r
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    if call.local_rows:
        a = without_local_padding(r.layout, a, call.local_rows)
    if r.n == 0:
        out = Results(x=b, info=jnp.zeros((8,), jnp.int32), work=a)
    elif r.layout.kind == "manual":
        source = _manual.varying(a)
        a = _lu.enter(r, a)
        f = _lu.factor(r, a)
        x = _lu_manual.solve(r, a, f, b, source) if b.shape[1] else b
        out = Results(x=x, info=_manual.info_as_equal(r, f.info, source), work=f.work)
    else:
        a, b = on_mesh(r.layout, a), on_mesh(r.layout, b)
        out = _on_arrays(call, _lu.enter(r, a), b)
        if call.spec is not None and not r.layout.explicit:
            out.x = constrain(r.layout, out.x, call.spec)
    if call.report:
        report("lu_solve", out.info)
    out.x = out.x[:, 0] if vector else out.x
    out.info = out.info if call.want_status else None
    out.work = out.work if call.keep_work else None
    return out


run = jax.jit(solve_call, static_argnums=0)
_run_donating = jax.jit(solve_call, static_argnums=0, donate_argnums=1)


_prepared: Prepared[Call] = Prepared()


def lu_solve(
    a: Any,
    b: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    matrix_specs: Specs = None,
    donate: bool = False,
    precision: Any = None,
    backend: str | None = None,
    check: bool = False,
    n: int | None = None,
    return_info: bool = False,
) -> Any:
    """Solves A x = b by LU with partial pivoting, with A square and spread over devices.

        P A^T Q = L U,   2/3 n^3 operations and n^2 for each solution

    Every device factors its own rows of A where they lie: read column-major they are whole columns
    of A^T, so that the search for a pivot stays on one device. LAPACK: xGETRF, xGETRS.

    Works eagerly and under ``jit``, ``grad``, ``vmap``, ``scan`` and ``shard_map``. The mesh is
    found from the arrays, their types or the context; ``mesh`` and ``in_specs`` override that.

    Args:
        a: the matrix, shape (n, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). NumPy arrays are accepted.
        b: right-hand sides, shape (n,) or (n, k).
        T_A: equations that are eliminated together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix, or a tuple of it and that of b. If b is split by
            rows as the matrix is, it stays so.
        return_status: whether to return the status too.
        pad: False says that each shard of `a` has been padded by ``calculate_padding(rows, T_A)``
            rows already, as for ``cyclic_1d``.
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then. Under ``jit``, donate
            the argument of the jitted function instead.
        precision: arithmetic of products inside a 32-bit factorisation on GPUs, as in
            :func:`jaxmg.potrs`: rows and columns of A are scaled by powers of two to about 1
            before numbers are split. "mixed": a float64 or complex128 system is solved by a
            32-bit factor and refinement, see below.
        backend: as in :func:`jaxmg.potrs`. With "cusolvermg" equations are eliminated in their
            order, and `T_A` is the block size that the matrix is redistributed to, up to 512.
        check: eagerly, whether to wait and raise an exception on failure; under ``checkify``,
            whether to report one. Elsewhere under ``jit`` it does nothing.
        n: the true size of a matrix that was padded to (devices * ceil(n / devices), n).
        return_info: whether to return a :class:`jaxmg.SolveInfo` too.

    Returns:
        x with the shape and sharding of `b`; with the status, an int32 scalar, if
        `return_status`; with a :class:`jaxmg.SolveInfo` if `return_info`. Status 0 is success,
        k > 0 says that equation k (counted from 1) is the first one, in the order of elimination,
        that depends on those before it; negative numbers are explained by
        :func:`jaxmg.errors.explain`. After a failure x is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        BackendUnavailableError: the devices, or the libraries found, are not those of `backend`.
        SingularMatrixError, NonFiniteInputError: with `check`.

    Mixed precision: x is as accurate as without it: with eps that of `a`'s dtype,
    ``||b - A x|| <= sqrt(n) eps ||A|| ||x||`` in inf-norms, for A and for A with its rows and
    columns scaled to about 1. Classical refinement comes first, preconditioned GMRES if it stalls,
    and the 64-bit factor if both do, or if A is singular in 32 bits; the status is always that of
    the 64-bit factorisation. It takes 12 bytes an element of a float64 A that is donated, else 16.
    LAPACK: DSGESV, ZCGESV.

    Memory per device, for L = ceil(n / devices) rows: L n for the factor (in the place of A if it
    is donated or an intermediate), two panels of n rows and one tile of columns, n right-hand
    sides of up to 512 columns; on GPUs two more tiles for each tile of rows. See
    ``jaxmg.plan("lu_solve", n, dtype)``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> a = jnp.array([[0.0, 2.0], [1.0, 3.0]])
        >>> jaxmg.lu_solve(a, jnp.array([2.0, 5.0])).tolist()
        [2.0, 1.0]
    """
    given = a
    want_status = return_status or check or return_info
    options = (T_A, mesh, in_specs, matrix_specs, pad, n, precision, backend, donate)
    key = signature(a, b, (*options, want_status, check, _one_call.setting()))
    call = _prepared.get(key)
    if call is None:
        right = b
        call, a, b = prepare(
            "lu_solve",
            a,
            b,
            tile=check_tile(T_A),
            mesh=check_mesh(mesh),
            specs=check_specs(in_specs, matrix_specs),
            pad=pad,
            lower=None,
            n=n,
            precision=precision_of(precision),
            factorisation="getrf",
            backend=check_backend("lu_solve", backend),
        )
        call = dataclasses.replace(call, want_status=want_status, report=check)
        if b.size == 0 or call.r.layout.kind == "manual":  # nothing to refine, or not there
            call = dataclasses.replace(call, r=dataclasses.replace(call.r, mixed=False))
        nrhs = int(np.prod(b.shape[1:]))
        call = dataclasses.replace(call, together=_one_call.pays(call.r, nrhs))
        traced = not (is_concrete(a) and is_concrete(b))
        in_place = donate or (traced and not call.r.mixed)
        stages = "gesv" if call.together else ""
        small = check_memory("lu_solve", call.r, nrhs, in_place=in_place, stages=stages)
        if small and a is given and b is right:  # operands that are where they belong
            _prepared.put(key, call)
    eager = is_concrete(a) and is_concrete(b)
    with calling_on(call.r.layout):
        out = run_in_place(run, _run_donating, call, a, b) if donate and eager else run(call, a, b)
    if donate and eager:
        release(given)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "lu_solve")
        if failure is not None:
            raise failure
    results = [out.x]
    if return_status:
        results.append(jitted_status(out.info))
    if return_info:
        results.append(solve_info(out.info))
    return results[0] if len(results) == 1 else tuple(results)
