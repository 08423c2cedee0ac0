"""P, L and U of a matrix itself, with its rows interchanged as LAPACK does it.

The engine factors the transpose of what it is given, searching pivots along the rows of that. So
it is handed A^T, whose rows are A's columns, and told to eliminate them in their natural order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .. import _lu
from .._arguments import cast, common_dtype, host_or_device, place_matrix, place_rhs
from .._context import on_own_mesh
from .._dot import dot
from .._hermitian import places
from .._layout import AnyMesh, Resolved, resolve_plan
from .._memory import check_memory
from .._operands import constrain, gathered, like, on_mesh
from .._preparation import Specs
from .._resolve import check_mesh, check_specs, is_concrete, resolve


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _packed(r: Resolved, a: Array) -> tuple[Array, Array]:
    """L below and U on and above the diagonal of (m, n), and the order p with A[p] = L U.

    A matrix that is not square is filled up with zeros: zero rows are never chosen as pivots, and
    zero columns leave L and U as they are.
    """
    m, n = a.shape
    square = jnp.pad(a, ((0, r.n - m), (0, r.n - n)))
    f = _lu.factor(r, _lu.enter(r, square.T), natural=True)
    work = jnp.where(f.info[0] < 0, jnp.asarray(jnp.nan, f.work.dtype), f.work)
    if m % r.layout.ranks or n % r.layout.ranks or m != n:
        work = gathered(r.layout, work)
    return work[:n, :m].T, f.pivots[r.n : r.n + m]


@_packed.defjvp
def _packed_jvp(r: Resolved, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    # With F = L^-1 dA[p] U^-1:  dL = L (F below the diagonal),  dU = (the rest of F) U. L and U
    # are filled up by the identity to m x m and n x n.
    lu, p = _packed(r, *primals)
    m, n = lu.shape
    k = min(m, n)
    whole = gathered(r.layout, lu)
    lower = jnp.pad(jnp.tril(whole[:, :k], -1), ((0, 0), (0, m - k))) + jnp.eye(m, dtype=lu.dtype)
    upper = jnp.pad(jnp.triu(whole[:k]), ((0, n - k), (0, 0)))
    upper = upper + jnp.diag((jnp.arange(n) >= k).astype(lu.dtype))
    change = gathered(r.layout, tangents[0])[p]
    solve = functools.partial(lax.linalg.triangular_solve, left_side=True, lower=True)
    f = solve(lower, change, unit_diagonal=True)
    f = lax.linalg.triangular_solve(upper, f, left_side=False, lower=False)
    dlu = dot(lower, jnp.tril(f, -1)) + dot(jnp.triu(f), upper)
    return (lu, p), (like(r.layout, dlu, lu), np.zeros(p.shape, jax.dtypes.float0))


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _factors(r: Resolved, permute_l: bool, p_indices: bool, a: Array) -> tuple[Array, ...]:
    lu, order = _packed(r, on_mesh(r.layout, a))
    m, n = lu.shape
    k = min(m, n)
    rows, columns = places(lu, 0)
    upper = jnp.where(rows <= columns, lu, jnp.zeros_like(lu))[:k]
    lower = jnp.where(rows > columns, lu, (rows == columns).astype(lu.dtype))[:, :k]
    back = jnp.zeros_like(order).at[order].set(jnp.arange(m, dtype=order.dtype))
    even = m % r.layout.ranks == 0 and k % r.layout.ranks == 0

    def split(x: Array) -> Array:
        return constrain(r.layout, x, r.layout.rows_spec) if even else x

    if permute_l:
        # Along rows of the transpose, which are whole: no row travels as such.
        typed = {}
        if r.layout.explicit:
            typed = {"out_sharding": jax.typeof(lower.T).sharding}
        return split(lower.T.at[:, back].get(**typed).T), split(upper)
    if p_indices:
        return back, split(lower), split(upper)
    p = (order[None, :] == jnp.arange(m, dtype=order.dtype)[:, None]).astype(r.real_dtype)
    return p, split(lower), split(upper)


def lu(
    a: Any,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> tuple[Array, ...]:
    """A = P L U with partial pivoting, as ``scipy.linalg.lu`` gives it.

        A[p] = L U,   |l_ij| <= 1 for real A

    Columns are eliminated in their natural order, one device after the other, and A is transposed
    on the way in and out: for solutions and determinants :func:`lu_factor` is several times as
    fast. A matrix that is not square is worked on as a square one of its larger size. LAPACK:
    xGETRF.

    Args:
        a: the matrix, shape (..., m, n).
        permute_l: whether to return P L instead of P and L.
        overwrite_a: accepted as in SciPy, without effect.
        check_finite: accepted as in SciPy. NaN and infinities always give NaN.
        p_indices: whether to return P as indices q with A = (L U)[q] = L[q] U.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        P (m, m), L (m, k) and U (k, n) with k = min(m, n); or q, L and U; or P L and U. L and U
        have their rows on the devices of A if these divide them evenly, P is computed where it is
        used. Singular matrices have factors too.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Derivatives: those of JAX. They collect L, U and the tangent on every device.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> p, l, u = jaxmg.linalg.lu(jnp.array([[0.0, 2.0], [1.0, 3.0]]))
        >>> (p @ l @ u).tolist()
        [[0.0, 2.0], [1.0, 3.0]]
    """
    del overwrite_a, check_finite
    a = host_or_device(a, "a")
    if a.ndim < 2:
        raise ValueError(f"lu: a has shape {tuple(a.shape)}; accepted are matrices (..., m, n).")
    a = cast(a, common_dtype("lu", a=a))
    if a.ndim > 2:
        options: dict[str, Any] = {"p_indices": p_indices, "mesh": mesh, "in_specs": in_specs}
        return jax.vmap(lambda x: lu(x, permute_l, **options))(jnp.asarray(a))
    m, n = a.shape
    size = max(m, n)
    layout = resolve(a, n=size, mesh=check_mesh(mesh), spec=check_specs(in_specs)[0])
    if layout.kind == "manual":
        raise NotImplementedError("lu: call it from outside of shard_map.")
    if min(m, n) == 0:
        eye = jnp.eye(m, dtype=jnp.finfo(a.dtype).dtype)
        lower, upper = jnp.zeros((m, 0), a.dtype), jnp.zeros((0, n), a.dtype)
        if permute_l:
            return lower, upper
        return (jnp.arange(m, dtype=jnp.int32) if p_indices else eye), lower, upper
    r = resolve_plan(layout, size, str(a.dtype), routine="getrf")
    check_memory("lu_factor", r, 1, in_place=not is_concrete(a))
    even = m % layout.ranks == 0 and n % layout.ranks == 0
    a = place_matrix(a, layout, m) if even else place_rhs(a, layout)
    out: tuple[Array, ...] = _factors(r, bool(permute_l), bool(p_indices), a)
    return out
