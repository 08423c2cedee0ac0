"""The polar decomposition under SciPy's name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._arguments import cast, common_dtype, host_or_device
from .._layout import AnyMesh
from .._polar import polar as _polar
from .._preparation import Specs


def polar(
    a: Any,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
) -> tuple[Array, Array]:
    """Polar decomposition of matrices; see :func:`jaxmg.polar`.

    Args:
        a: the matrix, shape (..., m, n).
        side: "right": A = U P. "left": A = P U.
        method: accepted as in ``jax.scipy.linalg``: "qdwh" and "svd" give the same factors.
        eps, max_iterations: accepted as there, without effect.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        U, with the shape of `a`, and P, Hermitian positive semidefinite; NaN after a failure.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    del eps, max_iterations
    if method not in ("qdwh", "svd"):
        raise ValueError(f"polar: method is {method!r}; accepted are 'qdwh' and 'svd'.")
    a = host_or_device(a, "a")
    a = cast(a, common_dtype("polar", a=a))

    def function(a: Any) -> Any:
        return _polar(a, mesh=mesh, in_specs=in_specs, side=side)

    if a.ndim > 2:
        a = jnp.asarray(a)
        for _ in range(a.ndim - 2):
            function = jax.vmap(function)
    u, p = function(a)
    return u, p
