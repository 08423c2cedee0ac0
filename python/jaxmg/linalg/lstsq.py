"""Least squares with a decision about the rank."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._arguments import host_or_device
from .._context import calling_on
from .._layout import AnyMesh
from .._least_squares import finish, prepare, run
from .._memory import check_qr_memory
from .._preparation import Specs
from .._resolve import check_specs, is_concrete


def _threshold(rcond: Any, shape: tuple[int, int], dtype: Any) -> Any:
    eps = float(jnp.finfo(dtype).eps)
    if rcond is None:
        return eps * max(shape)
    return jnp.where(jnp.asarray(rcond) < 0, eps, rcond)


def lstsq(
    a: Any,
    b: Any,
    rcond: Any = None,
    *,
    numpy_resid: bool = False,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> tuple[Array, Array, Array, Array]:
    """The solution of least norm of min ||A x - b||, for A of any rank.

    A (or A^H, if it has more columns than rows) is factored as Q R over the devices, then the small
    matrix R = U diag(s) V^H on every device, as is worth while if the shorter side of A is small
    against the longer one. Singular values below `rcond` times the largest count as zero. LAPACK:
    xGELSD.

    Args:
        a: the matrix, shape (m, n), of any sharding.
        b: right-hand sides, shape (m,) or (m, k).
        rcond: None stands for eps * max(m, n), negative numbers for eps.
        numpy_resid: as in ``jnp.linalg.lstsq``: no residuals where NumPy has none (not under jit).
        mesh: the mesh to work on; None finds it from the arrays or the context.
        in_specs: the specs of `a` and `b`.

    Returns:
        x (n,) or (n, k); squared residual norms (1,) or (k,); the rank; and the singular values,
        descending, shape (min(m, n),). NaN, and rank 0, if `a` holds NaN or an infinity.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Derivatives: of x in `a` and `b`, for A of full rank; of the singular values, for m >= n.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import lstsq
        >>> a = jnp.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
        >>> x, _, rank, _ = lstsq(a, jnp.array([2.0, 2.0, 2.0]))
        >>> x.round(4).tolist(), int(rank)
        ([1.0, 1.0], 1)
    """
    a, b = host_or_device(a, "a"), host_or_device(b, "b")
    call, a, b = prepare("lstsq", a, b, tile=0, mesh=mesh, specs=check_specs(in_specs))
    vector = b.ndim == 1
    if call is None:
        return _nothing(a, b)
    m, n = a.shape if not call.wide else (call.r.n, call.r.m)
    columns = b[:, None] if vector else b
    call = dataclasses.replace(call, decide=True, gram=False)
    check_qr_memory("lstsq", call.r, columns.shape[1], in_place=not is_concrete(a))
    with calling_on(call.r.layout):
        out = run(call, a, columns, _threshold(rcond, (m, n), a.dtype))
        x = finish(call, out.x, vector)
    residuals = out.residuals
    if numpy_resid:
        if isinstance(out.rank, jax.core.Tracer):
            raise ValueError("numpy_resid: the shape of the residuals is not known under jit.")
        if int(out.rank) < n or m <= n:
            residuals = jnp.zeros((0,), residuals.dtype)
    return x, residuals, out.rank, out.s


def _nothing(a: Any, b: Any) -> tuple[Array, Array, Array, Array]:
    """For a matrix without rows or columns, or no right-hand side."""
    real = jnp.finfo(a.dtype).dtype
    squares = jnp.sum(jnp.abs(jnp.asarray(b)) ** 2, axis=0).reshape(-1).astype(real)
    if 0 not in a.shape:  # no right-hand side: rank and singular values are asked for all the same
        _, _, rank, s = lstsq(a, jnp.zeros((a.shape[0], 1), a.dtype))
        return jnp.zeros((a.shape[1], 0), a.dtype), squares, rank, s
    x = jnp.zeros((a.shape[1], *b.shape[1:]), a.dtype)
    return x, squares, jnp.zeros((), int), jnp.zeros((0,), real)
