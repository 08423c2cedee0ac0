"""Cholesky factors as arrays, in natural order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _cholesky, _natural, errors
from .._arguments import (
    cast,
    check_tile,
    common_dtype,
    giving_away,
    place_matrix,
    precision_of,
    square_matrices,
    triangle_of,
)
from .._gather import small
from .._layout import MIXED, NATURAL, AnyMesh, resolve_plan
from .._memory import check_memory
from .._operands import gathered
from .._preparation import Specs
from .._resolve import check_mesh, check_specs, is_concrete, resolve


def cholesky(
    a: Any,
    *,
    upper: bool = False,
    symmetrize_input: bool = True,
    lower: bool | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
    precision: Any = None,
    donate: bool = False,
    return_status: bool = False,
    check: bool = False,
) -> Any:
    """The Cholesky factor L of a Hermitian positive definite A = L L^H, in natural order.

    As ``jax.numpy.linalg.cholesky``, for a matrix whose rows lie on several devices. They are dealt
    out to the devices in tiles, in place, factored, and collected again: n^3 / 3 operations, all
    devices busy. :func:`cho_factor` saves the dealing where L itself is not needed. LAPACK: xPOTRF.

    Args:
        a: the matrix, shape (..., n, n), of any sharding; float32, float64, complex64 or
            complex128 (integers are promoted). Imaginary parts of its diagonal are ignored.
        upper: whether to return the upper triangular L^H.
        symmetrize_input: True: all of `a` is valid, and Hermitian. False: only its lower triangle
            is read.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: rows that are eliminated together. None lets the plan choose one that divides the
            rows of a device if there is any: then there is one copy of the matrix at most.
        precision: as in :func:`jaxmg.potrs`.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.
        return_status: whether to return the status too.
        check: eagerly, whether to wait and raise an exception on failure.

    Returns:
        L (L^H if `upper`) with zeros in the other triangle, and the shape and the rows of `a`
        (whole on every device if JAX cannot split n rows evenly); NaN if A is not positive
        definite. With `return_status` the status too, an int32 scalar as of :func:`jaxmg.potrs`:
        k > 0 is the order of the first leading minor that is not positive definite.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        NotPositiveDefiniteError, NonFiniteInputError, NotHermitianError: with `check`.

    Derivatives: as in JAX, at any order, from one factorisation. The gradient is Hermitian if all
    of `a` is valid, else it lies in the triangle that is read.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import cholesky
        >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    tile = check_tile(T_A)
    given, a = a, square_matrices("cholesky", a)
    a = cast(a, common_dtype("cholesky", a=a))
    lower = True if lower is None and not symmetrize_input else lower
    arithmetic = precision_of(precision)
    if arithmetic == MIXED:
        raise ValueError(f"precision: got {precision!r}; cholesky has no mixed precision.")
    if a.ndim > 2:
        options: dict[str, Any] = {
            "upper": upper,
            "lower": lower,
            "mesh": mesh,
            "in_specs": in_specs,
            "T_A": T_A,
            "precision": precision,
            "return_status": return_status,
        }
        return jax.vmap(lambda x: cholesky(x, **options))(jnp.asarray(a))
    n = a.shape[1]
    layout = resolve(a, n=n, mesh=check_mesh(mesh), spec=check_specs(in_specs)[0])
    if layout.kind == "manual":
        raise ValueError("cholesky: not available inside shard_map; call it outside.")
    r = resolve_plan(
        layout,
        n,
        str(a.dtype),
        tile=tile,
        triangle=triangle_of(lower),
        precision=arithmetic,
        order=NATURAL,
    )
    r = small(r, tile)
    eager = is_concrete(a)
    check_memory("cholesky", r, 0, in_place=donate or not eager)
    a = place_matrix(a, layout, n)
    if donate and eager:
        with giving_away(a, given):
            x, info = _natural.run_in_place(r, bool(upper), a)
    else:
        x, info = _natural.run(r, bool(upper), a)
    if check and is_concrete(info):
        failure = errors.from_info(np.asarray(info).tolist(), "cholesky")
        if failure is not None:
            raise failure
    if x.shape[0] != n:  # the rows that were added so that every device has as many
        x = gathered(layout, x)[:n]
    return (x, _cholesky.jitted_status(info)) if return_status else x
