"""Solution of A x = b with a Hermitian positive definite A."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import _cholesky, _manual, _mixed, _one_call, _posv, errors
from ._arguments import check_backend, check_tile, precision_of, release
from ._context import calling_on
from ._layout import AnyMesh
from ._memory import check_memory
from ._operands import constrain, on_mesh
from ._preparation import Specs, prepare, without_local_padding
from ._prepared import Prepared, signature
from ._resolve import check_mesh, check_specs, is_concrete
from ._solve_call import Call, Results, run_in_place, solve_info
from ._vma import varying


def _on_blocks(call: Call, a: Array, b: Array | None) -> Results:
    """Inside the caller's shard_map."""
    r, source = call.r, varying(a)
    a = _cholesky.enter(r, a)
    f = _cholesky.factor(r, a)
    if call.want_status:
        f = _cholesky.locate(r, f)
    out = Results(x=b)
    if b is not None and b.shape[1]:
        out.x = _manual.solve(r, a, f, b, source)
    if call.want_inverse:
        out.inverse = _manual.inverse_rows(r, [lax.stop_gradient(x) for x in f])
    if call.want_logdet:
        out.logdet = _manual.logdet(r, source, a, *(lax.stop_gradient(x) for x in f))
    if call.want_status:
        out.info = _manual.info_as_equal(r, f.info, source)
    if call.keep_work:
        out.work = f.work
    return out


def _on_arrays(call: Call, a: Array, b: Array | None) -> Results:
    """On global arrays."""
    r = call.r
    a = _cholesky.enter(r, on_mesh(r.layout, a))
    b = None if b is None else on_mesh(r.layout, b)
    if r.mixed and b is not None:
        return _in_mixed_precision(call, a, b)
    out = Results()
    if b is not None and call.together:
        out.x, f = _posv.solve(r, a, b, split=call.split)
    else:
        f = _cholesky.factor(r, a)
    if call.want_status:
        # Before the solution, so that each call follows the one whose buffer it takes over.
        f = _cholesky.locate(r, f)
    if b is not None and not call.together:
        out.x = _cholesky.solve(r, a, f, b, split=call.split)
    if b is not None and call.spec is not None and not r.layout.explicit:
        out.x = constrain(r.layout, out.x, call.spec)
    if call.want_inverse:
        out.inverse = _cholesky.inverse(r, a, *(lax.stop_gradient(part) for part in f))
    if call.want_logdet:
        out.logdet = _cholesky.logdet(r, a, f)
    if call.want_status:
        out.info = f.info
    if call.keep_work:
        out.work = f.work
    return out


def _in_mixed_precision(call: Call, a: Array, b: Array) -> Results:
    r = call.r
    x, info, work = _mixed.solve(
        r,
        a,
        _mixed.factor(r, lax.stop_gradient(a)),
        b,
        split=call.split,
        locate=call.want_status,
        consume=call.keep_work,
    )
    if call.spec is not None and not r.layout.explicit:
        x = constrain(r.layout, x, call.spec)
    return Results(x=x, info=info if call.want_status else None, work=work)


def solve_call(call: Call, a: Array, b: Array | None = None) -> Results:
    """The program of one call; without right-hand sides, of one for something else."""
    vector = b is not None and b.ndim == 1
    b = b[:, None] if b is not None and vector else b
    if call.local_rows:
        a = without_local_padding(call.r.layout, a, call.local_rows)
    if call.r.n == 0:
        out = Results(x=b)
        out.logdet = jnp.zeros((), call.r.real_dtype) if call.want_logdet else None
        out.info = jnp.zeros((8,), jnp.int32) if call.want_status else None
        out.work = a if call.keep_work else None
        out.inverse = a if call.want_inverse else None
    elif call.r.layout.kind == "manual":
        out = _on_blocks(call, a, b)
    else:
        out = _on_arrays(call, a, b)
    if call.report:
        _cholesky.report("potrs", out.info)
    if vector:
        out.x = out.x[:, 0]
    return out


run = jax.jit(solve_call, static_argnums=0)
_run_donating = jax.jit(solve_call, static_argnums=0, donate_argnums=1)


_prepared: Prepared[Call] = Prepared()


def potrs(
    a: Any,
    b: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    matrix_specs: Specs = None,
    return_logdet: bool = False,
    donate: bool = False,
    lower: bool | None = None,
    precision: Any = None,
    backend: str | None = None,
    check: bool = False,
    n: int | None = None,
    return_info: bool = False,
) -> Any:
    """Solves A x = b by Cholesky, with A Hermitian positive definite and spread over devices.

    Works eagerly and under ``jit``, ``grad``, ``vmap``, ``scan`` and ``shard_map``. The mesh is
    found from the arrays, their types or the context; ``mesh`` and ``in_specs`` override that.

    Args:
        a: the matrix, shape (n, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). All of it must be valid unless `lower` is given; imaginary
            parts of its diagonal are ignored. NumPy arrays are accepted.
        b: right-hand sides, shape (n,) or (n, k).
        T_A: rows that are eliminated together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix, or a tuple of it and that of b. If b is split by
            rows as the matrix is, it stays so.
        return_status: whether to return the status too.
        pad: False says that each shard of `a` has been padded by ``calculate_padding(rows, T_A)``
            rows already, as for ``cyclic_1d``.
        matrix_specs: another name of `in_specs`.
        return_logdet: whether to return log(det(A)) too.
        donate: eagerly, whether `a` may be overwritten; it is deleted then. Under ``jit``, donate
            the argument of the jitted function instead.
        lower: True or False says that only the lower or upper triangle of `a` is valid: the other
            one is not read and gets a zero gradient.
        precision: arithmetic of products inside a float32 or complex64 factorisation on GPUs.
            "default" and "high": tensor cores, each real number as two half-precision ones (some
            22 bits, several times faster); "highest" and "float32": native. None follows JAX's
            ``jax_default_matmul_precision``. 64-bit dtypes and CPUs always compute natively.
        backend: None or "native": the built-in engine, on CPUs and GPUs. "cusolvermg": NVIDIA's
            cuSOLVERMg, for comparison, on the GPUs of one process. Results and statuses are the
            same; `T_A` is the block size that the matrix is redistributed to. It needs GPUs that
            other work does not slow down: a factor that came out wrong for that reason is an error.
        check: eagerly, whether to wait and raise an exception on failure; under ``checkify``,
            whether to report one. Elsewhere under ``jit`` it does nothing.
        n: the true size of a matrix that was padded to (devices * ceil(n / devices), n).
        return_info: whether to return a :class:`jaxmg.SolveInfo` too.

    Returns:
        x with the shape and sharding of `b`; with the log-determinant, a real scalar, if
        `return_logdet`; with the status, an int32 scalar, if `return_status`; with a
        :class:`jaxmg.SolveInfo` if `return_info`. Status 0 is
        success, k > 0 says that the leading minor of order k is not positive definite, and
        negative numbers are explained by :func:`jaxmg.errors.explain`. After a failure all
        results are NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        BackendUnavailableError: the devices, or the libraries found, are not those of `backend`.
        NotPositiveDefiniteError, NonFiniteInputError, NotHermitianError: with `check`.

    Mixed precision: x is as accurate as without it: with eps that of `a`'s dtype,
    ``||b - A x|| <= sqrt(n) eps ||A|| ||x||`` in inf-norms, for A and for A with its diagonal
    scaled to 1. Classical refinement comes first, preconditioned conjugate gradients if it
    stalls, and the 64-bit factor if both do, or if A is not positive definite in 32 bits; the
    status is always that of the 64-bit factorisation. It pays for condition numbers up to some
    1e7, and takes 12 bytes an element of a float64 A that is donated, else 16. With
    `return_logdet` everything is done in full precision. LAPACK: DSPOSV, ZCPOSV.

    Derivatives: the gradient with respect to `a` is Hermitian (symmetric) if all of `a` is valid.
    With `lower` it lies in that triangle: an element off the diagonal stands for two of A.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> a = jnp.array([[4.0, 2.0], [2.0, 3.0]])
        >>> jaxmg.potrs(a, jnp.array([2.0, 5.0])).tolist()
        [-0.5, 2.0]
    """
    given = a
    options = (T_A, mesh, in_specs, matrix_specs, pad, lower, n, precision, backend, donate)
    together = _one_call.setting()
    want_status = return_status or check or return_info
    key = signature(a, b, (*options, want_status, check, return_logdet, together))
    call = _prepared.get(key)
    if call is None:
        right = b
        call, a, b = prepare(
            "potrs",
            a,
            b,
            tile=check_tile(T_A),
            mesh=check_mesh(mesh),
            specs=check_specs(in_specs, matrix_specs),
            pad=pad,
            lower=lower,
            n=n,
            precision=precision_of(precision),
            backend=check_backend("potrs", backend),
        )
        call = dataclasses.replace(
            call, want_status=want_status, want_logdet=return_logdet, report=check
        )
        if return_logdet or b.size == 0 or call.r.layout.kind == "manual":
            # There is nothing to refine, or the factor is needed in full precision anyway.
            call = dataclasses.replace(call, r=dataclasses.replace(call.r, mixed=False))
        nrhs = int(np.prod(b.shape[1:]))
        call = dataclasses.replace(call, together=_one_call.pays(call.r, nrhs))
        traced = not (is_concrete(a) and is_concrete(b))
        in_place = donate or (traced and not call.r.mixed)
        stages = "posv" if call.together else ""
        small = check_memory("potrs", call.r, nrhs, in_place=in_place, stages=stages)
        if small and a is given and b is right:  # operands that are where they belong
            _prepared.put(key, call)
    eager = is_concrete(a) and is_concrete(b)
    with calling_on(call.r.layout):
        out = run_in_place(run, _run_donating, call, a, b) if donate and eager else run(call, a, b)
    if donate and eager:
        release(given)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "potrs")
        if failure is not None:
            raise failure
    results = [out.x]
    if return_logdet:
        results.append(out.logdet)
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    if return_info:
        results.append(solve_info(out.info))
    return results[0] if len(results) == 1 else tuple(results)
