"""Singular value decomposition: the call as users make it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from . import _cholesky, _complement, _matmul, _polar_rules, _svd
from ._arguments import check_backend, check_tile
from ._decomposition import Call, Program, Results
from ._layout import AnyMesh
from ._matrix_operand import prepare_matrix
from ._polar import resolve_polar
from ._preparation import Specs
from ._spectral_memory import check_bytes, svd_bytes
from ._svd import ResolvedSvd


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a call is to return.

    Attributes:
        u, vh: which singular vectors.
        full: whether they are to be completed to square matrices.
    """

    u: bool = True
    vh: bool = True
    full: bool = False


# Of A, or of A^H if A has more columns than rows.
SvdCall = Call[ResolvedSvd, Wanted]


def _empty(call: SvdCall) -> Results:
    o, wanted = call.operand, call.wanted
    rows = o.rows if wanted.full else 0
    columns = o.columns if wanted.full else 0
    return Results(
        values=jnp.zeros((0,), jnp.finfo(o.dtype).dtype),
        left=jnp.eye(o.rows, rows, dtype=o.dtype) if wanted.u else None,
        right=jnp.eye(columns, o.columns, dtype=o.dtype) if wanted.vh else None,
        info=jnp.zeros((8,), jnp.int32),
    )


def decompose(call: SvdCall, a: Array) -> Results:
    """The program of one call."""
    r, o, wanted = call.r, call.operand, call.wanted
    if r.n == 0:
        return _empty(call)
    wide = o.rows < o.columns
    a = _polar_rules.enter(r.polar, o.enter(a), o.rows)
    if wide:  # A^H = U s V^H gives A = V s U^H
        a = _matmul.adjoint(r.ring, a, o.rows)
    out = Results()
    if not (wanted.u or wanted.vh):
        out.values, out.info = _svd.values(r, a)
        return out
    u, out.values, v, out.info = _svd.decompose(r, a)
    if wanted.full and r.m > r.n and (wanted.vh if wide else wanted.u):
        u = _complement.completed(r, u)
    left, right, length = (v, u, r.m) if wide else (u, v, r.n)
    if wanted.u:
        out.left = left
    if wanted.vh:
        out.right = _matmul.adjoint(r.ring, right, length)
    return out


_program: Program[ResolvedSvd, Wanted] = Program("gesvd", decompose)


def gesvd(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    compute_u: bool = True,
    compute_vh: bool = True,
    full_matrices: bool = False,
    matrix_specs: Specs = None,
    donate: bool = False,
    backend: str | None = None,
    check: bool = False,
    m: int | None = None,
) -> Any:
    """Singular value decomposition A = U diag(s) V^H of a matrix that is spread over devices.

    The polar decomposition A = U_p H, after a QR factorisation if A is not square, and the
    eigenvalues of H = V diag(s) V^H; then U = U_p V (QDWH-SVD: Nakatsukasa and Higham, SIAM J. Sci.
    Comput. 35, 2013; LAPACK's xGESDD does the same job). Backward stable: each singular value is
    right to some eps s[0], and the condition number is not squared anywhere. U and V are
    orthonormal to rounding also for repeated and zero singular values. The cost is that of
    :func:`jaxmg.polar` and :func:`jaxmg.syevd` together, and memory that of the larger one.

    Args:
        a: the matrix, any shape (m, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). NumPy arrays are accepted.
        T_A: rows that are eliminated together in Cholesky steps. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix.
        return_status: whether to return the status too.
        pad: accepted as elsewhere; shards need no padding.
        compute_u, compute_vh: whether to return U and V^H. Without both no vectors are formed.
        full_matrices: whether U is (m, m) and V^H (n, n), instead of (m, k) and (k, n) with
            k = min(m, n).
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        backend: None or "native".
        check: eagerly, whether to wait and raise an exception on failure; under ``checkify``,
            whether to report one. Elsewhere under ``jit`` it does nothing.
        m: the true number of rows of a matrix whose rows were padded to
            devices * ceil(m / devices); results are padded likewise then.

    Returns:
        U, s (real, descending, equal on all devices) and V^H, without those that are not wanted;
        U and V^H are split by rows over the devices of `a` (whole on every device if JAX cannot
        split their rows evenly). The status, an int32 scalar, if `return_status`. After a failure
        all is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        ConvergenceError, NonFiniteInputError: with `check`.

    Derivatives of any order, with the conventions of ``jnp.linalg.svd``; none with
    `full_matrices` if A is not square, since the additional vectors are arbitrary. Functions that
    do not depend on the choice of vectors have finite derivatives also where singular values are
    repeated, or both zero and differentiable there.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> u, s, vh = jaxmg.gesvd(jnp.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]))
        >>> s.round(4).tolist()
        [2.0, 1.0]
    """
    check_backend("gesvd", backend)
    given, tile = a, check_tile(T_A)
    operand, a = prepare_matrix(
        "gesvd", a, mesh=mesh, in_specs=in_specs, matrix_specs=matrix_specs, rows=m, pad=pad
    )
    wanted = Wanted(compute_u, compute_vh, full_matrices)
    call = Call(ResolvedSvd(resolve_polar(operand, tile)), operand, wanted, check)
    r, vectors = call.r, compute_u or compute_vh
    check_bytes(
        "gesvd",
        r.layout,
        r.m,
        r.n,
        operand.dtype,
        lambda m, n: svd_bytes(r.layout, m, n, operand.dtype, vectors),
    )
    out = _program(call, a, given=given if donate else None, check=check)
    padded = m is not None
    results = []
    if compute_u:
        results.append(operand.leave(out.left, operand.rows, padded=padded))
    results.append(out.values)
    if compute_vh:
        rows = operand.columns if full_matrices else min(operand.rows, operand.columns)
        results.append(operand.leave(out.right, rows, padded=padded))
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    return results[0] if len(results) == 1 else tuple(results)
