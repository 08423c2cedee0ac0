"""The polar decomposition: the call as users make it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from . import _cholesky, _matmul, _polar_rules
from ._arguments import check_backend, check_tile
from ._decomposition import Call, Program, Results
from ._gather import threshold
from ._layout import AnyMesh
from ._matmul import Ring
from ._matrix_operand import Operand, prepare_matrix
from ._polar_place import ResolvedPolar
from ._preparation import Specs
from ._spectral_memory import check_bytes, polar_bytes


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a call is to return.

    Attributes:
        h: whether the Hermitian factor is wanted,
        left: and whether on the left.
    """

    h: bool = True
    left: bool = False


# Of A, or of A^H if A has more columns than rows.
PolarCall = Call[ResolvedPolar, Wanted]


def _empty(call: PolarCall) -> Results:
    o = call.operand
    size = o.rows if call.wanted.left else o.columns
    return Results(
        left=jnp.zeros((o.rows, o.columns), o.dtype),
        right=jnp.zeros((size, size), o.dtype) if call.wanted.h else None,
        info=jnp.zeros((8,), jnp.int32),
    )


def decompose(call: PolarCall, a: Array) -> Results:
    """The program of one call."""
    r, o = call.r, call.operand
    if r.n == 0:
        return _empty(call)
    ring = Ring(r.layout)
    wide = o.rows < o.columns
    a = _polar_rules.enter(r, o.enter(a), o.rows)
    if wide:  # A^H = U H gives A = H U^H
        a = _matmul.adjoint(ring, a, o.rows)
    if call.wanted.h:
        u, h, info = _polar_rules.decompose(r, a)
        if call.wanted.left != wide:
            h = _matmul.times_adjoint(ring, _matmul.times(ring, u, h), u, r.m)
            h = 0.5 * (h + _matmul.adjoint(ring, h, r.m))
    else:
        (u, info), h = _polar_rules.unitary(r, a), None
    if wide:
        u = _matmul.adjoint(ring, u, r.m)
    return Results(left=u, right=h, info=info)


_program: Program[ResolvedPolar, Wanted] = Program("polar", decompose)


def polar(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    compute_h: bool = True,
    side: str = "right",
    matrix_specs: Specs = None,
    donate: bool = False,
    backend: str | None = None,
    check: bool = False,
    m: int | None = None,
) -> Any:
    """Polar decomposition A = U H of a matrix that is spread over devices.

    U has orthonormal columns (rows, if A has more columns than rows) and is the matrix of that
    kind next to A; H is Hermitian positive semidefinite. By the QDWH iteration, every step by a
    Cholesky factorisation (Nakatsukasa and Higham, SIAM J. Sci. Comput. 35, 2013), until singular
    values are near 1, and one or two steps by a series then: for a well-conditioned A one or two of
    4 n^3 operations, and one more for each factor of 20 to 60 in the condition number (60 for large
    n); the search for the least singular value (once, for condition numbers above some 1e6 up to
    three times) n^3, the end 3 to 9 n^3 and H 2 n^3; a QR factorisation first if A is not square.
    Backward stable, also for rank deficient A, where U is one of many that are possible. Memory for
    some twelve matrices (n, n), spread over the devices.

    Args:
        a: the matrix, any shape (m, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). NumPy arrays are accepted.
        T_A: rows that are eliminated together in Cholesky steps. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix.
        return_status: whether to return the status too.
        pad: accepted as elsewhere; shards need no padding.
        compute_h: whether to return H too.
        side: "right": A = U H with H of shape (n, n). "left": A = H U with H of shape (m, m).
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        backend: None or "native".
        check: eagerly, whether to wait and raise an exception on failure; under ``checkify``,
            whether to report one. Elsewhere under ``jit`` it does nothing.
        m: the true number of rows of a matrix whose rows were padded to
            devices * ceil(m / devices); results are padded likewise then.

    Returns:
        U with the shape of `a` and H if `compute_h`, both split by rows over the devices of `a`
        (whole on every device if JAX cannot split their rows evenly); the status, an int32 scalar,
        if `return_status`. After a failure all is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        ConvergenceError, NonFiniteInputError: with `check`.

    Derivatives of any order exist where A has full rank. They take the eigenvectors of H, which
    are worked out for derivatives alone.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> u, h = jaxmg.polar(jnp.array([[0.0, -2.0], [1.0, 0.0]]))
        >>> h.round(4).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    check_backend("polar", backend)
    if side not in ("right", "left"):
        raise ValueError(f"side: got {side!r}; accepted are 'right' and 'left'.")
    given, tile = a, check_tile(T_A)
    operand, a = prepare_matrix(
        "polar", a, mesh=mesh, in_specs=in_specs, matrix_specs=matrix_specs, rows=m, pad=pad
    )
    call = Call(resolve_polar(operand, tile), operand, Wanted(compute_h, side == "left"), check)
    r = call.r
    check_bytes(
        "polar", r.layout, r.m, r.n, r.dtype, lambda m, n: polar_bytes(r.layout, m, n, r.dtype)
    )
    out = _program(call, a, given=given if donate else None, check=check)
    results = [operand.leave(out.left, operand.rows, padded=m is not None)]
    if compute_h:
        size = operand.rows if side == "left" else operand.columns
        results.append(operand.leave(out.right, size, padded=m is not None))
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    return results[0] if len(results) == 1 else tuple(results)


def resolve_polar(operand: Operand, tile: int = 0) -> ResolvedPolar:
    """The decomposition of a matrix, or of its adjoint if that has more rows."""
    if operand.layout.kind == "manual":
        raise ValueError("the polar and singular value decompositions do not run in shard_map.")
    layout, dtype = operand.layout, operand.dtype
    small, large = sorted((operand.rows, operand.columns))
    gathered = layout.kind == "dist" and tile == 0 and jax.process_count() == 1
    gathered = gathered and large <= threshold(dtype, layout.ranks, layout.platform, 0)
    return ResolvedPolar(layout, large, small, dtype, tile, gathered)
