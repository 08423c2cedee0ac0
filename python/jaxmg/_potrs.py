"""Solution of A x = b with a Hermitian positive definite A."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from . import _cholesky, _manual, _mixed, _native, errors
from ._arguments import (
    cast,
    check_backend,
    check_matrix,
    check_rhs,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    place_matrix,
    place_rhs,
    precision_of,
    release,
    triangle_of,
)
from ._context import calling_on
from ._gather import small
from ._layout import AnyMesh, Layout, Resolved, resolve_plan
from ._memory import check_memory
from ._operands import constrain, on_mesh
from ._prepared import Prepared, signature
from ._resolve import check_mesh, check_specs, is_concrete, resolve, rhs_spec, splits_rows
from ._vma import varying
from .padding import calculate_padding

Specs = PartitionSpec | tuple[PartitionSpec, ...] | list[PartitionSpec] | None


@dataclasses.dataclass(frozen=True)
class Call:
    """Everything static about one call.

    Attributes:
        r: the factorisation.
        split: whether the rows of b lie on the ranks as those of A do.
        spec: how x is to be split (None: as it comes).
        local_rows: rows of each shard that belong to the matrix, if shards are padded one by one.
        want_status, want_logdet, want_inverse, keep_work: which results are returned besides x.
        report: whether a failure is an error under checkify; needs the status.
    """

    r: Resolved
    split: bool = False
    spec: PartitionSpec | None = None
    local_rows: int = 0
    want_status: bool = False
    want_logdet: bool = False
    want_inverse: bool = False
    keep_work: bool = False
    report: bool = False


@dataclasses.dataclass
class Results:
    """What a call computed; fields that were not asked for are None. A pytree."""

    x: Any = None
    logdet: Any = None
    inverse: Any = None
    info: Any = None
    work: Any = None


jax.tree_util.register_dataclass(
    Results, data_fields=["x", "logdet", "inverse", "info", "work"], meta_fields=[]
)


class SolveInfo(NamedTuple):
    """How a solve went; int32 scalars, equal on all devices.

    Attributes:
        status: 0, or what :func:`jaxmg.errors.explain` explains.
        iterations: with ``precision="mixed"`` the steps of refinement, or, if the 64-bit factor
            was needed, -3 when the 32-bit one failed and -31 when refinement did not converge
            (LAPACK's ITER). Otherwise 0.
        path: 0: the factor has the precision of the matrix; 1: refined from a 32-bit factor; 2: by
            conjugate gradients.
    """

    status: Any
    iterations: Any
    path: Any


@jax.jit
def _solve_info(info: Array) -> SolveInfo:
    return SolveInfo(_cholesky.status(info), info[_mixed.ITERATIONS], info[_mixed.PATH])


def without_local_padding(layout: Layout, a: Array, local_rows: int) -> Array:
    """Drops the rows that pad each shard."""
    take = lambda block: lax.slice_in_dim(block, 0, local_rows)  # noqa: E731
    if layout.kind != "dist":
        return take(a)
    call = jax.shard_map(
        take,
        mesh=layout.mesh,
        in_specs=layout.rows_spec,
        out_specs=layout.rows_spec,
        check_vma=False,
    )
    out: Array = call(a)
    return out


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
    f = _cholesky.factor(r, a)
    if call.want_status:
        # Before the solution, so that each call follows the one whose buffer it takes over.
        f = _cholesky.locate(r, f)
    out = Results()
    if b is not None:
        out.x = _cholesky.solve(r, a, f, b, split=call.split)
        if call.spec is not None and not r.layout.explicit:
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


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays are views of the same buffers, as copies to the same place may be."""
    if a is b:
        return True
    first, second = (
        {shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards} for x in (a, b)
    )
    return bool(first & second)


Run = Callable[[Call, Array, Array], Results]


def run_in_place(run: Run, run_donating: Run, call: Call, a: Array, b: Array) -> Results:
    """Takes over the buffer of `a`, which is gone afterwards in any case."""
    if share_memory(a, b):  # a buffer that is given away must not be read under another name
        out = run(call, a, b)
        jax.block_until_ready(out.x)
        a.delete()
        return out
    call = dataclasses.replace(call, r=dataclasses.replace(call.r, exposed=True), keep_work=True)
    with giving_away(a):
        out = run_donating(call, a, b)
    out.work = None
    return out


def local_row_count(routine: str, a: Any, n: int, layout: Layout, tile: int) -> int:
    """Rows of a shard without the padding of ``pad=False``, checked."""
    blocks = 1 if layout.kind == "manual" else layout.ranks
    shard = a.shape[0] // blocks
    rows = n // layout.ranks
    even = n % layout.ranks == 0 and shard * blocks == a.shape[0]
    if even and tile and shard == rows + calculate_padding(rows, tile):
        return rows
    raise ValueError(
        f"{routine}: a has shape {tuple(a.shape)} on {layout.ranks} devices; accepted are "
        f"({n}, {n}), with n={n} the padded ({-(-n // layout.ranks) * layout.ranks}, {n}), and "
        "with pad=False shards padded by calculate_padding(rows, T_A) rows each."
    )


def prepare(
    routine: str,
    a: Any,
    b: Any,
    *,
    tile: int,
    mesh: AnyMesh | None,
    specs: tuple[PartitionSpec | None, PartitionSpec | None],
    pad: bool,
    lower: bool | None,
    n: int | None,
    exposed: bool = False,
    precision: int = 0,
    factorisation: str = "potrf",
    backend: str = "native",
) -> tuple[Call, Any, Any]:
    """Checks the operands of a solve and works out the call and where the operands belong."""
    a, b = host_or_device(a, "a"), host_or_device(b, "b")
    check_matrix(routine, a)
    dtype = common_dtype(routine, a=a, b=b)
    a, b = cast(a, dtype), cast(b, dtype)
    r, a, local_rows = prepare_matrix(
        routine,
        a,
        beside=b,
        tile=tile,
        mesh=mesh,
        spec=specs[0],
        pad=pad,
        lower=lower,
        n=n,
        exposed=exposed,
        precision=precision,
        factorisation=factorisation,
        backend=backend,
    )
    check_rhs(routine, b, r.n)
    layout = r.layout
    spec = rhs_spec(b, specs[1], layout)
    split = splits_rows(spec, layout) and (not layout.explicit or r.n % layout.ranks == 0)
    call = Call(r, split=split, spec=None if split else spec, local_rows=local_rows)
    return call, a, place_rhs(b, layout)


def prepare_matrix(
    routine: str,
    a: Any,
    *,
    beside: Any = None,
    tile: int,
    mesh: AnyMesh | None,
    spec: PartitionSpec | None,
    pad: bool,
    lower: bool | None,
    n: int | None,
    exposed: bool = False,
    precision: int = 0,
    factorisation: str = "potrf",
    backend: str = "native",
) -> tuple[Resolved, Any, int]:
    """Checks a matrix and works out its factorisation, where it belongs, and Call.local_rows.

    `beside`: a right-hand side, which may know the mesh if the matrix does not.
    """
    size = a.shape[1]
    if n is not None and int(n) != size:
        raise ValueError(f"n: got {n} beside a matrix of shape {tuple(a.shape)}; accepted: {size}.")
    padded_to = 0 if pad else tile
    layout = resolve(a, beside, n=size, mesh=mesh, spec=spec, padded_to=padded_to)
    _native.require_backend(backend, layout.platform, layout.ranks)
    whole = size if layout.kind != "manual" else -(-size // layout.ranks)
    padded = -(-size // layout.ranks) * layout.ranks
    local_rows = 0
    if a.shape[0] != whole and not (n is not None and a.shape[0] == padded):
        if pad or layout.explicit:
            hint = ""
            if a.shape[0] == padded:
                hint = f" If rows {size} and up are padding, say so with n={size}."
            raise ValueError(
                f"{routine}: a has shape {tuple(a.shape)}; accepted is a square matrix.{hint}"
            )
        local_rows = local_row_count(routine, a, size, layout, tile)
    r = resolve_plan(
        layout,
        size,
        str(a.dtype),
        tile=tile,
        triangle=triangle_of(lower),
        exposed=exposed,
        precision=precision,
        routine=factorisation,
        backend=backend,
    )
    r = small(r, tile)
    if local_rows == 0:
        a = place_matrix(a, layout, size)
    return r, a, local_rows


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
        precision: arithmetic of products inside a float32 factorisation on GPUs. "default" and
            "high": tensor cores, each number as two half-precision ones (some 22 bits, several
            times faster); "highest" and "float32": native. None follows JAX's
            ``jax_default_matmul_precision``. Other dtypes and CPUs always compute natively.
        backend: None or "native": the built-in engine, on CPUs and GPUs. "cusolvermg": NVIDIA's
            cuSOLVERMg, for comparison, on the GPUs of one process. Results and statuses are the
            same; `T_A` is the block size that the matrix is redistributed to.
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
    want_status = return_status or check or return_info
    key = signature(a, b, (*options, want_status, check, return_logdet))
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
        traced = not (is_concrete(a) and is_concrete(b))
        in_place = donate or (traced and not call.r.mixed)
        small = check_memory("potrs", call.r, int(np.prod(b.shape[1:])), in_place=in_place)
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
        results.append(_solve_info(out.info))
    return results[0] if len(results) == 1 else tuple(results)
