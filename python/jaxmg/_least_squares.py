"""Least squares at top level."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _cholesky, _lstsq, _qr, errors
from ._arguments import (
    cast,
    check_backend,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    place_matrix,
    place_rhs,
    release,
)
from ._context import calling_on
from ._dot import dot
from ._layout import AnyMesh
from ._memory import check_qr_memory, gram_fits
from ._operands import gathered, on_mesh, pad_rows, reshard
from ._preparation import Specs
from ._qr_api import check_rectangular, layout_of
from ._qr_layout import QrLayout, resolve_qr
from ._resolve import check_specs, is_concrete

VARIABLE = "JAXMG_LEAST_SQUARES"
# Rows of a device, as a multiple of the columns, from which a Gram matrix pays.
TALL = 4


@dataclasses.dataclass(frozen=True)
class Call:
    """Everything static about one call.

    Attributes:
        r: the factorisation, of A if it is tall, else of A^H.
        wide: whether it is of A^H.
        decide: whether singular values decide about the rank.
        gram: whether the Gram matrix is tried before there is a factorisation.
    """

    r: QrLayout
    wide: bool
    decide: bool = False
    gram: bool = False


@dataclasses.dataclass
class Solution:
    """x (rows that fill all shards, if A is wide), info, and what was found out. A pytree."""

    x: Any = None
    info: Any = None
    residuals: Any = None
    rank: Any = None
    s: Any = None


jax.tree_util.register_dataclass(
    Solution, data_fields=["x", "info", "residuals", "rank", "s"], meta_fields=[]
)


def solve(call: Call, a: Array, b: Array, rcond: Any = None) -> Solution:
    """The program of one call; b has two axes."""
    r = call.r
    b = gathered(r.layout, on_mesh(r.layout, b)) if call.wide else on_mesh(r.layout, b)
    t = _lstsq.enter_adjoint(r, a) if call.wide else _qr.enter(r, a)
    if call.gram:
        b = reshard(r.layout, pad_rows(b, r.padded_rows), r.layout.rows_spec)
        return Solution(*_lstsq.by_gram(r, t, b))
    tall = _lstsq.Tall(_qr.factor(r, t))
    out = Solution()
    if call.decide:
        core, out.s, out.rank = _lstsq.singular_values(r, t, tall.factor, rcond)
        tall = tall._replace(core=core)
    if call.wide:
        out.x, out.info = _lstsq.minimum_norm(r, t, b, tall)
        if call.decide:
            out.residuals = _squares(b - _qr.adjoint_product(r, t, out.x))
        return out
    b = reshard(r.layout, pad_rows(b, r.padded_rows), r.layout.rows_spec)
    out.x, out.info = _lstsq.least_squares(r, t, b, tall)
    if call.decide:
        out.residuals = _squares(b - dot(t, out.x))
    return out


def _squares(residual: Array) -> Array:
    """Squared norms of the columns."""
    return jnp.sum(jnp.real(residual * jnp.conj(residual)), axis=0)


def setting() -> bool | None:
    """What the environment says: Gram matrices never, wherever they can be, or nothing."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "qr", "gram"):
        raise ValueError(f"{VARIABLE}: got {text!r}; accepted are 'qr' and 'gram'.")
    return None if not text else text == "gram"


def gram_pays(r: QrLayout) -> bool:
    """Whether a tall matrix is so tall that its Gram matrix is worth a try.

    Every device factors the Gram matrix for itself, and should need less time for that than for its
    rows of A.
    """
    chosen = setting()
    return r.m >= TALL * r.n * r.layout.ranks if chosen is None else chosen


run = jax.jit(solve, static_argnums=0)
_run_donating = jax.jit(solve, static_argnums=0, donate_argnums=1)


def prepare(
    routine: str,
    a: Any,
    b: Any,
    *,
    tile: int,
    mesh: AnyMesh | None,
    specs: tuple[Any, Any],
) -> tuple[Call | None, Any, Any]:
    """Checks the operands and brings them where they belong. No call: nothing is to be done."""
    check_rectangular(routine, a)
    m, n = a.shape
    if b.ndim not in (1, 2) or b.shape[0] != m:
        raise ValueError(
            f"{routine}: b has shape {tuple(b.shape)} beside a matrix of shape {tuple(a.shape)}; "
            f"accepted are ({m},) for one vector and ({m}, k) for k of them."
        )
    dtype = common_dtype(routine, a=a, b=b)
    a, b = cast(a, dtype), cast(b, dtype)
    layout = layout_of(routine, a, b, m, mesh, specs[0])
    if 0 in (m, n, *b.shape[1:]):
        return None, a, b
    wide = m < n
    r = resolve_qr(layout, max(m, n), min(m, n), dtype, tile=tile)
    return (
        Call(r, wide, gram=not wide and gram_pays(r)),
        place_matrix(a, layout, m),
        place_rhs(b, layout),
    )


def finish(call: Call, x: Array, vector: bool) -> Array:
    """x in the shape that b asks for."""
    if x.shape[0] != call.r.m and call.wide:
        x = gathered(call.r.layout, x)[: call.r.m]
    return x[:, 0] if vector else x


def least_squares(
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
    backend: str | None = None,
    check: bool = False,
) -> Any:
    """Solves min ||A x - b|| for A of full rank, its rows spread over devices.

    m >= n: x = R^-1 Q^H b with A = Q R. m < n: of all solutions of A x = b that of least norm, x =
    Q R^-H b with A^H = Q R; A^H is formed once, by exchange of blocks. Rows of A stay where they
    are, and the right-hand sides take part in the factorisation: 2 m n^2 operations, 4 m n for
    each of them. For n small against m no message is larger than devices x n x n numbers. LAPACK:
    xGELS. For matrices that may not be of full rank there is :func:`jaxmg.linalg.lstsq`.

    Where a device has at least four times as many rows as A has columns, the Gram matrix A^H A,
    made in double precision, is tried first: m n^2 operations, and x is corrected by
    A^H (b - A x) until it is as good as QR makes it (Bjorck's corrected seminormal equations). If
    the condition of A, its columns scaled to norm 1, is beyond about 1e6, or anything else is
    doubtful, QR follows in the same call; so it does at once where a copy of A has no room.

    Args:
        a: the matrix, shape (m, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). NumPy arrays are accepted.
        b: right-hand sides, shape (m,) or (m, k).
        T_A: columns that are eliminated together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix, or a tuple of it and that of `b`.
        return_status: whether to return the status too.
        pad: accepted as in :func:`jaxmg.potrs`; any m can be used.
        matrix_specs: another name of `in_specs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        backend: None or "native".
        check: eagerly, whether to wait and raise an exception on failure.

    Returns:
        x, shape (n,) or (n, k): whole on every device for m >= n, else with its rows split over the
        devices (if JAX can split them evenly); and the status, an int32 scalar, if `return_status`:
        0; j > 0 if the j-th diagonal element of R is exactly zero, so that A is not of full rank;
        -1 if `a` holds NaN or an infinity. After a failure x is NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        SingularMatrixError, NonFiniteInputError: with `check`.

    Derivatives: in `a` and `b`, of any order, from one factorisation.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> a = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> jaxmg.least_squares(a, jnp.array([1.0, 3.0, 5.0])).round(4).tolist()
        [1.0, 2.0]
    """
    del pad
    check_backend("least_squares", backend)
    given = a
    a, b = host_or_device(a, "a"), host_or_device(b, "b")
    specs = check_specs(in_specs, matrix_specs)
    call, a, b = prepare("least_squares", a, b, tile=check_tile(T_A), mesh=mesh, specs=specs)
    if call is None:
        x, info = jnp.zeros((a.shape[1], *b.shape[1:]), a.dtype), jnp.zeros((8,), jnp.int32)
        return (x, _cholesky.jitted_status(info)) if return_status else x
    eager = is_concrete(a) and is_concrete(b)
    vector = b.ndim == 1
    count = 1 if vector else b.shape[1]
    if call.gram and not gram_fits(call.r, count):
        call = dataclasses.replace(call, gram=False)
    in_place = (donate or not eager) and not call.gram
    stages = "gels" if call.gram else ""
    check_qr_memory("least_squares", call.r, count, in_place=in_place, stages=stages)
    b = b[:, None] if vector else b
    with calling_on(call.r.layout):
        if donate and eager:
            with giving_away(a, given):
                out = _run_donating(call, a, b)
        else:
            out = run(call, a, b)
        x = finish(call, out.x, vector)
    if donate and eager:
        release(given)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "least_squares")
        if failure is not None:
            raise failure
    return (x, _cholesky.jitted_status(out.info)) if return_status else x
