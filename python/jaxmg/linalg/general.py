"""Functions for general square matrices, by LU with partial pivoting."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._arguments import (
    cast,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    place_matrix,
    precision_of,
    release,
)
from .._layout import MIXED, AnyMesh, Resolved, resolve_plan
from .._lu import Factor
from .._lu_factor import (
    LUFactor,
    SlogdetResult,
    factorise,
    factorise_in_place,
    invert,
    invert_in_place,
)
from .._lu_solve import lu_solve as solve_one
from .._memory import check_memory
from .._preparation import Specs
from .._resolve import check_mesh, check_specs, is_concrete, resolve
from ._batches import solve_batches
from .cholesky import solve_positive_definite

_KINDS = {
    "gen": "gen",
    "general": "gen",
    "pos": "pos",
    "positive definite": "pos",
    "her": "her",
    "hermitian": "her",
    "sym": "sym",
    "symmetric": "sym",
}


def _square(routine: str, a: Any) -> Any:
    a = host_or_device(a, "a")
    block = a.ndim == 2 and isinstance(a, jax.core.Tracer)  # perhaps of a shard_map
    if a.ndim < 2 or (a.shape[-1] != a.shape[-2] and not block):
        raise ValueError(
            f"{routine}: a has shape {tuple(a.shape)}; accepted are matrices (..., n, n)."
        )
    return cast(a, common_dtype(routine, a=a))


def _prepared(
    routine: str,
    a: Any,
    overwrite_a: bool,
    mesh: Any,
    in_specs: Specs,
    *,
    tile: int = 0,
    exposed: bool = True,
) -> tuple[Resolved, Any, bool]:
    """How one matrix is to be factored, the matrix where it belongs, and whether it may be lost."""
    a = _square(routine, a)
    n = a.shape[1]
    layout = resolve(a, n=n, mesh=check_mesh(mesh), spec=check_specs(in_specs)[0])
    if layout.kind != "manual" and a.shape[0] != n:
        raise ValueError(f"{routine}: a has shape {tuple(a.shape)}; accepted are matrices (n, n).")
    r = resolve_plan(layout, n, str(a.dtype), tile=tile, exposed=exposed, routine="getrf")
    in_place = overwrite_a and is_concrete(a)
    check_memory(routine, r, 1, in_place=in_place or not is_concrete(a))
    return r, place_matrix(a, layout, n), in_place


def _factor(
    routine: str, a: Any, overwrite_a: bool, mesh: Any, in_specs: Specs, tile: int
) -> LUFactor:
    """The factor of one matrix."""
    given = a
    r, a, in_place = _prepared(routine, a, overwrite_a, mesh, in_specs, tile=tile)
    n = r.n
    if n == 0:
        if in_place:
            release(given)
        zeros = jnp.zeros((8,), jnp.int32)
        parts = Factor(a, jnp.zeros((0,), r.dtype), zeros[:0], zeros)
        return LUFactor(None if in_place else a, parts, jnp.zeros((), r.real_dtype), r)
    if not in_place:
        return LUFactor(a, factorise(r, jax.lax.stop_gradient(a)), None, r)
    with giving_away(a, given):
        parts, norm = factorise_in_place(r, a)
    return LUFactor(None, parts, norm, r)


def lu_factor(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> LUFactor:
    """Factors a square matrix for later use, by LU with partial pivoting.

    Args:
        a: the matrix, shape (..., n, n).
        overwrite_a: eagerly, whether a single matrix may be overwritten; it is deleted then, and
            derivatives are those with respect to right-hand sides alone.
        check_finite: accepted as in SciPy. NaN and infinities always give a status and NaN.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: equations that are eliminated together. None lets the plan choose.

    Returns:
        A :class:`LUFactor`, which unpacks as a pair: ``lu, piv = lu_factor(a)``.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import lu_factor, lu_solve
        >>> factor = lu_factor(jnp.array([[0.0, 2.0], [1.0, 3.0]]))
        >>> lu_solve(factor, jnp.array([2.0, 5.0])).tolist()
        [2.0, 1.0]
        >>> factor.solve(jnp.array([2.0, 5.0]), trans=1).tolist()
        [-0.5, 2.0]
    """
    del check_finite
    tile = check_tile(T_A)
    if getattr(a, "ndim", 2) > 2:
        options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "T_A": T_A}
        return jax.vmap(lambda x: lu_factor(x, **options))(jnp.asarray(_square("lu_factor", a)))
    return _factor("lu_factor", a, overwrite_a, mesh, in_specs, tile)


def lu_solve(
    lu_and_piv: LUFactor | tuple[LUFactor, Any],
    b: Any,
    trans: int | str = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solves A x = b, A^T x = b or A^H x = b with a factor from :func:`lu_factor`.

    Args:
        lu_and_piv: the factor, or the pair that it unpacks to.
        b: shape (n,), or (..., n, k) whose batch axes broadcast with those of the factor.
        trans: 0 or "N": A x = b; 1 or "T": A^T x = b; 2 or "H": A^H x = b.
        overwrite_b: accepted as in SciPy, without effect.
        check_finite: accepted as in SciPy, without effect.

    Returns:
        x with the shape and sharding of `b`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    del overwrite_b, check_finite
    factor = lu_and_piv
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        factor = factor[0]
    if not isinstance(factor, LUFactor):
        raise TypeError(
            f"lu_and_piv: got {type(lu_and_piv).__name__}; accepted are what lu_factor returns and "
            "the pair that it unpacks to."
        )
    return factor.solve(b, trans)


def _whole(a: Any, kind: str, lower: bool) -> Array:
    """The symmetric or Hermitian matrix of which one triangle is valid."""
    conj = jnp.conj if kind == "her" else lambda x: x
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    n = a.shape[-1]
    on_diagonal = jnp.arange(n)[:, None] == jnp.arange(n)[None, :]
    diagonal = jnp.where(on_diagonal, a, jnp.zeros_like(a))
    if kind == "her":
        diagonal = jnp.real(diagonal).astype(a.dtype)
    return strict + conj(jnp.swapaxes(strict, -1, -2)) + diagonal


def solve(
    a: Any,
    b: Any,
    lower: bool | None = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    precision: Any = None,
    warn_ill_conditioned: bool = False,
) -> Array:
    """Solves A x = b.

    Args:
        a: the matrix, shape (..., n, n).
        b: shape (n,), or (..., n, k) whose batch axes broadcast with those of `a`. Only a b of
            one axis is a vector.
        lower: unless `assume_a` is "gen", True or False says that only the lower or upper triangle
            is valid. None: all is.
        overwrite_a: eagerly, whether a single matrix may be overwritten; it is deleted then.
        overwrite_b: accepted as in SciPy, without effect.
        check_finite: accepted as in SciPy. NaN and infinities always give NaN.
        assume_a: "gen": any square matrix (LU with partial pivoting); "pos": Hermitian positive
            definite (Cholesky, half the work); "her" and "sym": Hermitian or symmetric, possibly
            indefinite (LU; a triangle is all that has to be valid if `lower` says which).
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the specs of `a` and `b`.
        precision: as in :func:`jaxmg.potrs`. "mixed" factors in 32 bits and refines; it is for
            "pos" alone.
        warn_ill_conditioned: eagerly, whether to estimate the condition and warn if a solution may
            have no correct digit, at the price of some five more solutions (not with "pos").

    Returns:
        x with the shape of `b` (batch axes broadcast); NaN if A is singular, or with "pos" not
        positive definite.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> jaxmg.linalg.solve(jnp.array([[0.0, 2.0], [1.0, 3.0]]), jnp.array([2.0, 5.0])).tolist()
        [2.0, 1.0]
    """
    kind = _KINDS.get(assume_a)
    if kind is None:
        raise ValueError(f"assume_a: got {assume_a!r}; accepted are {tuple(_KINDS)}.")
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs}
    if kind == "pos":
        return solve_positive_definite(a, b, lower, overwrite_a, precision=precision, **options)
    if precision_of(precision) == MIXED:
        raise ValueError("precision: got 'mixed' for a general matrix; it needs assume_a='pos'.")
    given, b = a, host_or_device(b, "b")
    a = host_or_device(a, "a")
    dtype = common_dtype("solve", a=a, b=b)
    a, b = cast(_square("solve", a), dtype), cast(b, dtype)
    if kind != "gen" and lower is not None:
        a = _whole(jnp.asarray(a), kind, lower)
    if warn_ill_conditioned:
        factor = lu_factor(a, overwrite_a, **options)
        factor.rcond(warn=True)
        return factor.solve(b)
    if a.ndim == 2 and b.ndim <= 2:
        out: Array = solve_one(a, b, donate=overwrite_a, **options)
        if overwrite_a and is_concrete(given):
            release(given)
        return out
    return solve_batches(lambda x, y: solve_one(x, y, **options), jnp.asarray(a), jnp.asarray(b))


def inv(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """The inverse of square matrices, with A's rows on A's devices.

    From the LU factor, in its place: 2 n^3 operations in all, and beside A one more matrix of its
    size, or none with `overwrite_a`. LAPACK: xGETRF, xGETRI.

    Args:
        a: the matrix, shape (..., n, n).
        overwrite_a: eagerly, whether a single matrix may be overwritten; it is deleted then.
        check_finite: accepted as in SciPy. NaN and infinities always give NaN.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        A^-1 with the shape and the rows of `a`; NaN if A is singular.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> jaxmg.linalg.inv(jnp.array([[0.0, 2.0], [1.0, 4.0]])).tolist()
        [[-2.0, 1.0], [0.5, 0.0]]
    """
    del check_finite
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs}
    if getattr(a, "ndim", 2) > 2:
        return jax.vmap(lambda x: inv(x, **options))(jnp.asarray(_square("inv", a)))
    given = a
    r, a, in_place = _prepared("inv", a, overwrite_a, mesh, in_specs, exposed=False)
    if r.layout.kind == "manual":
        raise ValueError("inv: not available inside shard_map.")
    if not in_place:
        return a if r.n == 0 else invert(r, a)
    if r.n == 0:
        return jnp.zeros_like(a)
    with giving_away(a, given):
        return invert_in_place(r, a)


def slogdet(a: Any, *, mesh: AnyMesh | None = None, in_specs: Specs = None) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant of square matrices.

    Args:
        a: the matrix, shape (..., n, n).
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        (sign, logabsdet) with the shape of the batch: sign is 1 or -1 (a phase for complex
        matrices), and 0 beside -inf if A is singular.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> sign, logabsdet = jaxmg.linalg.slogdet(jnp.array([[0.0, 1.0], [1.0, 3.0]]))
        >>> float(sign), float(logabsdet)
        (-1.0, 0.0)
    """
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs}
    if getattr(a, "ndim", 2) > 2:
        return jax.vmap(lambda x: slogdet(x, **options))(jnp.asarray(_square("slogdet", a)))
    return _factor("slogdet", a, False, mesh, in_specs, 0).slogdet()


def det(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """The determinant of square matrices, which may overflow where :func:`slogdet` does not.

    Args:
        a: the matrix, shape (..., n, n).
        overwrite_a: accepted as in SciPy, without effect.
        check_finite: accepted as in SciPy. NaN and infinities always give NaN.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        det(A) with the shape of the batch.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> round(float(jaxmg.linalg.det(jnp.array([[0.0, 2.0], [1.0, 3.0]]))), 6)
        -2.0
    """
    del overwrite_a, check_finite
    sign, log = slogdet(a, mesh=mesh, in_specs=in_specs)
    return sign * jnp.exp(log).astype(sign.dtype)
