"""Functions for Hermitian positive definite matrices."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    square_matrices,
    triangle_of,
)
from .._cho_append import BorderedFactor
from .._cholesky import Factor
from .._factor_object import CholeskyFactor, factorise, factorise_in_place
from .._gather import small
from .._layout import NATURAL, RELABELLED, AnyMesh, Resolved, resolve_plan
from .._memory import check_memory
from .._potrs import potrs
from .._preparation import Specs
from .._prepared import Prepared, signature
from .._resolve import check_mesh, check_specs, is_concrete, resolve
from ._batches import solve_batches
from .triangular import solve_triangular

ORDERS = {"relabelled": RELABELLED, "natural": NATURAL}
_prepared: Prepared[Resolved] = Prepared()


def cho_factor(
    a: Any,
    lower: bool | None = None,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
    precision: Any = None,
    order: str = "relabelled",
) -> CholeskyFactor:
    """Factors a Hermitian positive definite matrix for later use.

    Args:
        a: the matrix, shape (..., n, n).
        lower: True or False says that only the lower or upper triangle is valid. None: all is.
        overwrite_a: whether a single matrix may be overwritten. Derivatives are those with respect
            to right-hand sides alone then. Eagerly `a` is deleted; under ``jit`` the factor takes
            its place if the jitted function donates it and returns the factor.
        check_finite: accepted as in SciPy. NaN and infinities always give a status and NaN.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: rows that are eliminated together. None lets the plan choose.
        precision: as in :func:`jaxmg.potrs`. A factor made with "mixed" keeps `a` beside it
            (`overwrite_a` has no effect), so that solutions can be refined; its log-determinant
            and its inverse factor once more, in full precision.
        order: "relabelled" eliminates rows in an order that balances the load where they lie.
            "natural" gives the L of ``numpy.linalg.cholesky``, for which rows are dealt out to
            the devices and collected again: some more time, and where the devices' rows are no
            multiple of a tile one more matrix.

    Returns:
        A :class:`CholeskyFactor`, which unpacks as a pair: ``c, lower = cho_factor(a)``.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import cho_factor, cho_solve
        >>> a = jnp.array([[4.0, 2.0], [2.0, 3.0]])
        >>> cho_solve(cho_factor(a), jnp.array([2.0, 5.0])).tolist()
        [-0.5, 2.0]
    """
    del check_finite
    options = (lower, overwrite_a, mesh, in_specs, T_A, precision, order)
    key = signature(a, None, options) if not overwrite_a else None
    r = _prepared.get(key)
    if r is not None:
        return CholeskyFactor(a, factorise(r, a), r, lower)
    tile = check_tile(T_A)
    if order not in ORDERS:
        raise ValueError(f"order: got {order!r}; accepted are {tuple(ORDERS)}.")
    given, a = a, square_matrices("cho_factor", a)
    a = cast(a, common_dtype("cho_factor", a=a))
    if a.ndim > 2:
        each: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "T_A": T_A}
        each |= {"precision": precision, "order": order}
        return jax.vmap(lambda x: cho_factor(x, lower, **each))(jnp.asarray(a))
    n = a.shape[1]
    spec = check_specs(in_specs)[0]
    layout = resolve(a, n=n, mesh=check_mesh(mesh), spec=spec)
    r = resolve_plan(
        layout,
        n,
        str(a.dtype),
        tile=tile,
        triangle=triangle_of(lower),
        exposed=True,
        precision=precision_of(precision),
        order=ORDERS[order],
    )
    r = small(r, tile)
    if layout.kind == "manual" or n == 0:
        r = dataclasses.replace(r, mixed=False)
    in_place = overwrite_a and is_concrete(a) and not r.mixed
    little = check_memory("cho_factor", r, 1, in_place=in_place or not is_concrete(a))
    a = place_matrix(a, layout, n)
    if n == 0:
        if in_place:
            release(given)
            a = None
        empty = jnp.zeros((0, 0), r.dtype)
        return CholeskyFactor(
            a, Factor(empty, jnp.zeros((0,), r.dtype), jnp.zeros((8,), jnp.int32)), r, lower
        )
    if not in_place:
        if little and a is given:
            _prepared.put(key, r)
        parts = factorise(r, jax.lax.stop_gradient(a))
        return CholeskyFactor(None if overwrite_a else a, parts, r, lower)
    with giving_away(a, given):
        parts = factorise_in_place(r, a)
    return CholeskyFactor(None, parts, r, lower)


def cho_solve(
    c_and_lower: Any,
    b: Any,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solves A x = b with a factor from :func:`cho_factor`.

    Args:
        c_and_lower: the factor, or the pair that it unpacks to; or SciPy's pair of a triangular
            array in natural order, as of :func:`cholesky`, and whether it is the lower triangle.
        b: shape (n,), or (..., n, k) whose batch axes broadcast with those of the factor.
        overwrite_b: accepted as in SciPy, without effect.
        check_finite: accepted as in SciPy, without effect.

    Returns:
        x with the shape and sharding of `b`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    del overwrite_b, check_finite
    factor = c_and_lower
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        factor = factor[0]
        if hasattr(factor, "ndim") and not isinstance(factor, (CholeskyFactor, BorderedFactor)):
            lower = bool(c_and_lower[1])
            y = solve_triangular(factor, b, 0 if lower else 2, lower)
            return solve_triangular(factor, y, 2 if lower else 0, lower)
    if not isinstance(factor, (CholeskyFactor, BorderedFactor)):
        raise TypeError(
            f"c_and_lower: got {type(c_and_lower).__name__}; accepted are what cho_factor returns "
            "and the pair that it unpacks to."
        )
    return factor.solve(b)


def solve_positive_definite(
    a: Any,
    b: Any,
    lower: bool | None,
    overwrite_a: bool,
    *,
    mesh: AnyMesh | None,
    in_specs: Specs,
    precision: Any,
) -> Array:
    """:func:`jaxmg.linalg.solve` with ``assume_a="pos"``."""
    a, b = square_matrices("solve", a), host_or_device(b, "b")
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "lower": lower}
    options["precision"] = precision
    if a.ndim == 2 and b.ndim <= 2:
        out: Array = potrs(a, b, donate=overwrite_a, **options)
        return out
    dtype = common_dtype("solve", a=a, b=b)
    a, b = jnp.asarray(cast(a, dtype)), jnp.asarray(cast(b, dtype))
    return solve_batches(lambda x, y: potrs(x, y, **options), a, b)


def logdet(
    a: Any,
    *,
    lower: bool | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> Array:
    """log(det(A)) of Hermitian positive definite matrices.

    Args:
        a: the matrix, shape (..., n, n).
        lower: True or False says that only the lower or upper triangle is valid. None: all is.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        A real array with the shape of the batch; NaN if A is not positive definite.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    a = square_matrices("logdet", a)
    a = cast(a, common_dtype("logdet", a=a))
    if a.ndim > 2:
        options: dict[str, Any] = {"lower": lower, "mesh": mesh, "in_specs": in_specs}
        return jax.vmap(lambda x: logdet(x, **options))(jnp.asarray(a))
    nothing = np.zeros((a.shape[1], 0), a.dtype)
    _, value = potrs(a, nothing, mesh=mesh, in_specs=in_specs, lower=lower, return_logdet=True)
    out: Array = value
    return out
