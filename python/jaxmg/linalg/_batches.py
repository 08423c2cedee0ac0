"""Systems with leading batch axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._arguments import broadcast_batches


def solve_batches(solve_one: Callable[[Any, Any], Any], a: Array, b: Array) -> Array:
    """x of A x = b for (..., n, n) and (n,) or (..., n, k), whose batch axes broadcast.

    A single matrix and a single vector are not repeated.
    """
    if b.ndim == 0 or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ValueError(
            f"solve: b has shape {tuple(b.shape)} beside matrices of shape {tuple(a.shape)}; "
            "accepted are (n,) for one vector and (..., n, k)."
        )
    batch = broadcast_batches("solve", a.shape[:-2], b.shape[:-2] if b.ndim > 1 else ())
    mapped, whole = b.ndim > 1, a.ndim == 2
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:])) if mapped else b
    a = a if whole else jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    function: Any = solve_one
    for _ in batch:
        function = jax.vmap(function, (None if whole else 0, 0 if mapped else None))
    x: Array = function(a, b)
    return x
