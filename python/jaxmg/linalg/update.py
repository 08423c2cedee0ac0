"""Cholesky factors of matrices that change by little: updates, downdates, more rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import _cho_update, _cholesky
from .._arguments import (
    cast,
    check_rhs,
    check_tile,
    common_dtype,
    dtype_of_factor,
    giving_away,
    host_or_device,
    place_matrix,
    place_rhs,
    square_matrices,
)
from .._cho_append import BorderedFactor, append, right_hand_side
from .._dot import dot
from .._factor_object import CholeskyFactor
from .._layout import NATURAL, AnyMesh, resolve_plan
from .._preparation import Specs
from .._resolve import check_mesh, check_specs, is_concrete, resolve


def cho_update(
    factor: Any,
    v: Any,
    downdate: bool = False,
    *,
    lower: bool = True,
    donate: bool = False,
    return_status: bool = False,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> Any:
    """The Cholesky factor of A + v v^H, or A - v v^H, from that of A.

    4 n^2 operations a column of v and a fixed number for each element of the factor, instead of
    n^3 / 3; by unitary rotations of blocks of columns, so that an update is backward stable and a
    downdate as stable as its problem (Bojanczyk, Brent, van Dooren, de Hoog 1987). The factor stays
    where it lies: n k elements travel from the owner of each tile to that of the next.

    Args:
        factor: what :func:`cho_factor` or :func:`cho_append` returned, or the pair that it unpacks
            to; or a triangular factor in natural order, shape (..., n, n), as of :func:`cholesky`.
        v: shape (n,), or (n, k) for k vectors at once.
        downdate: whether v v^H is taken away.
        lower: of an array: whether it is L, else it is L^H. The other triangle is not read.
        donate: eagerly, whether the arrays of a factor object may be overwritten; they are deleted
            then.
        return_status: whether to return the status too.
        mesh, in_specs, T_A: of an array, as in :func:`cholesky`.

    Returns:
        A new factor in the form of `factor`. If A - v v^H is not positive definite the new factor
        says so: a factor object has a status and gives NaN, an array is NaN. The status is the
        1-based place where definiteness was lost: for natural order the order of the first leading
        minor that is not positive definite, else a place in the order of ``factor.factor()[1]``.
        With `return_status` the status is returned too.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Derivatives: through a factor object with its matrix they are those of A + v v^H. Those of an
    array are those of the Cholesky factor of L L^H + v v^H, for which n^3 operations are needed.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import cho_factor, cho_update
        >>> factor = cho_update(cho_factor(jnp.eye(2)), jnp.array([1.0, 1.0]))
        >>> factor.solve(jnp.array([3.0, 3.0])).round(4).tolist()
        [1.0, 1.0]
    """
    pair = isinstance(factor, (tuple, list)) and len(factor) == 2
    if pair:
        lower = lower if factor[1] is None else bool(factor[1])
        factor = factor[0]
    v = host_or_device(v, "v")
    downdate = bool(downdate)
    if isinstance(factor, BorderedFactor):
        new: Any = _update_bordered(factor, v, downdate)
    elif isinstance(factor, CholeskyFactor):
        new = _update_object(factor, v, downdate, donate)
    else:
        options = {"mesh": mesh, "in_specs": in_specs, "T_A": T_A}
        x, status = _update_array(factor, v, downdate, bool(lower), options)
        x = (x, lower) if pair else x
        return (x, status) if return_status else x
    return (new, new.status) if return_status else new


def _update_object(factor: CholeskyFactor, v: Any, downdate: bool, donate: bool) -> CholeskyFactor:
    factor = factor.in_full
    r = factor.r
    if r.layout.kind == "manual":
        raise ValueError("cho_update: not available inside shard_map; call it outside.")
    batch = factor.shape[:-2]
    if batch:
        lead = v.ndim - 1 if v.ndim - 1 == len(batch) else v.ndim - 2
        shared = lead <= 0
        v = jnp.asarray(v)
        function: Any = lambda f, w: _update_object(f, w, downdate, False)  # noqa: E731
        for _ in batch:
            function = jax.vmap(function, (0, None if shared else 0))
        out: CholeskyFactor = function(factor, v)
        return out
    v = _vectors(v, r.n, r.dtype)
    if r.n == 0:
        return factor
    v = place_rhs(v, r.layout)
    arrays = [x for x in (factor.a, *factor.parts) if x is not None]
    if donate and all(map(is_concrete, arrays)):
        with giving_away(*arrays):
            a, parts = _cho_update.update_in_place(r, downdate, factor.a, factor.parts, v)
    else:
        a, parts = _cho_update.update(r, downdate, factor.a, factor.parts, v)
    return CholeskyFactor(a, parts, r, factor.lower)


def _update_bordered(factor: BorderedFactor, v: Any, downdate: bool) -> BorderedFactor:
    v = right_hand_side(factor, v, "cho_update")
    v = v[:, None] if v.ndim == 1 else v
    n, sign = factor.base.n, -1 if downdate else 1
    first, last = v[:n], v[n:]
    return append(
        cho_update(factor.base, first, downdate),
        factor.b + sign * dot(first, jnp.conj(last).T),
        factor.c + sign * dot(last, jnp.conj(last).T),
    )


def _vectors(v: Any, n: int, wanted: str) -> Any:
    """v as (n, k) in the element type of the factor, k > 0."""
    check_rhs("cho_update", v, n)
    v = cast(v, dtype_of_factor("cho_update", jax.ShapeDtypeStruct((), wanted), v=v))
    if v.ndim == 2 and v.shape[1] == 0:
        # XLA (of JAX 0.11) does not compile calls with an operand without elements.
        return jnp.zeros((n, 1), wanted)
    return v[:, None] if v.ndim == 1 else v


def _update_array(a: Any, v: Any, downdate: bool, lower: bool, options: Any) -> tuple[Any, Any]:
    a = square_matrices("cho_update", a)
    dtype = common_dtype("cho_update", a=a, v=v)
    a, v = cast(a, dtype), cast(v, dtype)
    if a.ndim > 2:
        mapped = 0 if v.ndim >= a.ndim - 1 else None
        call = lambda x, w: _update_array(x, w, downdate, lower, options)  # noqa: E731
        out: tuple[Any, Any] = jax.vmap(call, (0, mapped))(jnp.asarray(a), jnp.asarray(v))
        return out
    n = a.shape[1]
    layout = resolve(
        a, n=n, mesh=check_mesh(options["mesh"]), spec=check_specs(options["in_specs"])[0]
    )
    if layout.kind == "manual":
        raise ValueError("cho_update: not available inside shard_map; call it outside.")
    tile = check_tile(options["T_A"])
    r = resolve_plan(layout, n, dtype, tile=tile, order=NATURAL, routine="cholupdate")
    v = place_rhs(_vectors(v, n, dtype), layout)
    x, info = _cho_update.update_triangle(r, not lower, downdate, place_matrix(a, layout, n), v)
    if x.shape[0] != n:
        x = _cholesky.gathered(layout, x)[:n]
    return x, _cholesky.jitted_status(info)


def cho_append(factor: Any, b: Any, c: Any) -> Any:
    """The Cholesky factor of [[A, B], [B^H, C]] from that of A.

    For systems that grow: 2 n^2 m operations for the new columns and m^3 / 3 for their own factor.
    The factor of A is neither changed nor copied, and appending can be repeated. Each append adds
    one sweep over its own rows to every solution; factor the whole matrix again when the appended
    parts are no longer small.

    Args:
        factor: what :func:`cho_factor` or :func:`cho_append` returned, or the pair that it unpacks
            to, for one matrix A of shape (n, n).
        b: B, the new columns beside A, shape (n, m), or (n,) for one.
        c: C, Hermitian and valid in full, shape (m, m), or a scalar beside a vector `b`.

    Returns:
        A :class:`BorderedFactor`, used as a :class:`CholeskyFactor`: ``solve``, ``logdet``,
        ``inv``, ``factor``, ``status``, :func:`cho_solve`, :func:`cho_update`, :func:`cho_append`
        (`factor` itself if m = 0). If the new matrix is not positive definite its status is the
        order of the first leading minor that is not, and results are NaN.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Memory: B, C, and L^-1 B with its rows split as those of A.

    Derivatives: with respect to A, B and C, as those of the whole matrix.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import cho_append, cho_factor
        >>> factor = cho_append(cho_factor(jnp.array([[4.0]])), jnp.array([2.0]), 5.0)
        >>> factor.solve(jnp.array([2.0, 5.0])).round(4).tolist()
        [0.0, 1.0]
    """
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        factor = factor[0]
    if not isinstance(factor, (CholeskyFactor, BorderedFactor)):
        raise TypeError(
            f"factor: got {type(factor).__name__}; accepted are what cho_factor and cho_append "
            "return."
        )
    if factor.layout.kind == "manual":
        raise ValueError("cho_append: not available inside shard_map; call it outside.")
    b, c = host_or_device(b, "b"), host_or_device(c, "c")
    if b.ndim == 1:
        b, c = b[:, None], c.reshape(1, 1) if c.size == 1 else c
    m = b.shape[-1]
    if len(factor.shape) != 2 or b.shape != (factor.n, m) or c.shape != (m, m):
        raise ValueError(
            f"cho_append: b and c have shapes {tuple(b.shape)} and {tuple(c.shape)} beside a "
            f"factor of shape {factor.shape}; accepted are (n, m) and (m, m) beside (n, n)."
        )
    dtype = common_dtype("cho_append", factor=jnp.zeros((), factor.dtype), b=b, c=c)
    if dtype != factor.dtype:
        raise TypeError(
            f"cho_append: b and c promote to {dtype} beside a factor of {factor.dtype}; factor "
            f"the matrix as {dtype} first."
        )
    if m == 0:
        return factor
    b, c = (place_rhs(cast(x, dtype), factor.layout) for x in (b, c))
    base = factor.in_full if isinstance(factor, CholeskyFactor) else factor
    return append(base, b, c)
