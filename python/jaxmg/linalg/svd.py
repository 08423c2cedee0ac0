"""Singular values and what follows from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import _matmul, _polar_rules, _svd
from .._arguments import cast, common_dtype, host_or_device
from .._context import calling_on
from .._decomposition import Call
from .._gesvd import gesvd
from .._layout import AnyMesh
from .._matrix_operand import prepare_matrix
from .._polar import resolve_polar
from .._preparation import Specs
from .._svd import ResolvedSvd


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Array
    S: Array
    Vh: Array


def _batched(routine: str, function: Callable[[Any], Any], a: Any) -> Any:
    """`function` of one matrix, applied to matrices with leading batch axes."""
    a = host_or_device(a, "a")
    a = cast(a, common_dtype(routine, a=a))
    if a.ndim < 2:
        raise ValueError(
            f"{routine}: a has shape {tuple(a.shape)}; accepted are matrices (..., m, n)."
        )
    if a.ndim > 2:
        a = jnp.asarray(a)
        for _ in range(a.ndim - 2):
            function = jax.vmap(function)
    return function(a)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> SVDResult | Array:
    """Singular value decomposition of matrices; see :func:`jaxmg.gesvd`.

    Args:
        a: the matrix, shape (..., m, n).
        full_matrices: whether U is (m, m) and V^H (n, n), instead of (m, k) and (k, n) with
            k = min(m, n).
        compute_uv: whether to return singular vectors.
        hermitian: accepted as in ``jax.numpy.linalg``, without effect.
        subset_by_index: (start, stop) of the singular values to return; not with `full_matrices`.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        ``(U, S, Vh)``, or S alone; NaN after a failure.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import svd
        >>> u, s, vh = svd(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
        >>> s.round(4).tolist()
        [2.0, 1.0]
    """
    del hermitian
    if subset_by_index is not None and full_matrices and compute_uv:
        raise ValueError("svd: subset_by_index needs full_matrices=False.")
    chosen = slice(None) if subset_by_index is None else slice(*subset_by_index)
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs}
    if not compute_uv:
        values: Array = svdvals(a, **options)[..., chosen]
        return values
    function = functools.partial(gesvd, full_matrices=full_matrices, **options)
    u, s, vh = _batched("svd", function, a)
    if subset_by_index is None:
        return SVDResult(u, s, vh)
    return SVDResult(u[..., :, chosen], s[..., chosen], vh[..., chosen, :])


def svdvals(a: Any, *, mesh: AnyMesh | None = None, in_specs: Specs = None) -> Array:
    """Singular values of matrices, descending. No singular vectors are returned.

    Args:
        a: the matrix, shape (..., m, n).
        mesh, in_specs: as for :func:`svd`.

    Returns:
        A real array of shape (..., min(m, n)); NaN after a failure.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    function = functools.partial(
        gesvd, compute_u=False, compute_vh=False, mesh=mesh, in_specs=in_specs
    )
    out: Array = _batched("svdvals", function, a)
    return out


# --- pseudo-inverse --------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def _run_pinv(call: Call[ResolvedSvd, float], a: Array) -> Array:
    """Singular values of at most `call.wanted` times the largest one count as zeros."""
    r, o = call.r, call.operand
    if r.n == 0:
        return jnp.zeros((o.columns, o.rows), o.dtype)
    a = _polar_rules.enter(r.polar, o.enter(a), o.rows)
    if o.rows >= o.columns:
        return _svd.pseudo_inverse(r, call.wanted, a)
    x = _svd.pseudo_inverse(r, call.wanted, _matmul.adjoint(r.ring, a, o.rows))
    return _matmul.adjoint(r.ring, x, r.n)


def _pinv(a: Any, rtol: Any, mesh: AnyMesh | None, in_specs: Specs) -> Array:
    operand, a = prepare_matrix("pinv", a, mesh=mesh, in_specs=in_specs)
    call = Call(ResolvedSvd(resolve_polar(operand)), operand, rtol)
    with calling_on(operand.layout):
        out = _run_pinv(call, a)
    return operand.leave(out, operand.columns)


def pinv(
    a: Any,
    rtol: float | None = None,
    hermitian: bool = False,
    *,
    rcond: float | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """Pseudo-inverse A^+ of matrices, from their singular values.

    Args:
        a: the matrix, shape (..., m, n).
        rtol: singular values of at most rtol s[0] count as zero; None: 10 max(m, n) eps.
        hermitian: accepted as in ``jax.numpy.linalg``, without effect.
        rcond: another name of `rtol`.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        An array of shape (..., n, m), split by rows; NaN after a failure. Derivatives are those at
        constant rank (Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973).

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import pinv
        >>> pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]])).round(4).tolist()
        [[0.5, 0.0], [0.0, 0.0]]
    """
    del hermitian
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: rtol and rcond are the same argument: give one of them.")
    cut = rcond if rtol is None else rtol

    def function(x: Any) -> Array:
        default = 10 * max(x.shape) * float(jnp.finfo(x.dtype).eps)
        return _pinv(x, default if cut is None else float(cut), mesh, in_specs)

    out: Array = _batched("pinv", function, a)
    return out


# --- numbers ---------------------------------------------------------------------------------


def matrix_rank(
    M: Any,
    rtol: float | None = None,
    *,
    tol: float | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """Number of singular values that are not zero up to rounding.

    Args:
        M: the matrix, shape (..., m, n); arrays of less than two axes have rank 1 unless zero.
        rtol: singular values above rtol s[0] count; None: max(m, n) eps.
        tol: another name of `rtol`.
        mesh, in_specs: as for :func:`svd`.

    Returns:
        Integers with the shape of the batch.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: rtol and tol are the same argument: give one of them.")
    rtol = tol if rtol is None else rtol
    M = host_or_device(M, "M")
    if M.ndim < 2:
        return jnp.any(jnp.asarray(M) != 0).astype(int)
    s = svdvals(M, mesh=mesh, in_specs=in_specs)
    if rtol is None:
        rtol = max(M.shape[-2:]) * float(jnp.finfo(s.dtype).eps)
    return jnp.sum(s > rtol * jnp.max(s, axis=-1, keepdims=True, initial=0), axis=-1)


def norm(
    x: Any,
    ord: int | float | str | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """Norms of matrices and vectors as in ``jax.numpy.linalg``.

    The norms of matrices with `ord` 2, -2 and "nuc" come from singular values that are worked out
    on all devices; the others are sums, left to ``jax.numpy.linalg``.

    Args:
        x: an array.
        ord, axis, keepdims: as in ``jax.numpy.linalg.norm``.
        mesh, in_specs: as for :func:`svd`.

    Returns:
        The norms, real.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    x = host_or_device(x, "x")
    axes = tuple(range(x.ndim)) if axis is None else axis
    pair = axes if isinstance(axes, tuple) and len(axes) == 2 else None
    if pair is None or ord not in (2, -2, "nuc"):
        return jnp.linalg.norm(jnp.asarray(x), ord=ord, axis=axis, keepdims=keepdims)
    first, second = (i % x.ndim for i in pair)
    if x.ndim > 2:
        x = jnp.moveaxis(jnp.asarray(x), (first, second), (-2, -1))
    s = svdvals(x, mesh=mesh, in_specs=in_specs)
    if ord == "nuc":
        out = jnp.sum(s, axis=-1)
    else:
        out = jnp.max(s, axis=-1, initial=0) if ord == 2 else jnp.min(s, axis=-1)
    return jnp.expand_dims(out, sorted((first, second))) if keepdims else out


def cond(
    x: Any,
    p: int | float | str | None = None,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """Condition numbers of matrices.

    Args:
        x: the matrix, shape (..., m, n).
        p: None and 2: s[0] / s[-1]; -2: its inverse; else norm(x, p) norm(x^-1, p) of a square
            matrix, which is infinite if the rank is less than n.
        mesh, in_specs: as for :func:`svd`.

    Returns:
        Real numbers with the shape of the batch.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs}
    x = host_or_device(x, "x")
    if p in (None, 2, -2):
        s = svdvals(x, **options)
        high, low = (s[..., 0], s[..., -1]) if p != -2 else (s[..., -1], s[..., 0])
        return jnp.where((low == 0) & (p != -2), jnp.inf, high / jnp.where(low == 0, 1, low))
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"cond: x has shape {tuple(x.shape)}; p={p!r} needs square matrices.")
    inverse = pinv(x, rtol=np.finfo(np.float64).tiny, **options)
    product = norm(x, p, (-2, -1), **options) * norm(inverse, p, (-2, -1), **options)
    singular = matrix_rank(x, **options) < x.shape[-1]
    return jnp.where(singular, jnp.inf, product)
