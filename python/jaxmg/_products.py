"""Products and transposes of n x n arrays that stay split by rows."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ._layout import Resolved
from ._operands import gathered, like
from ._rows import keep_rows


def rows_transpose(r: Resolved, x: Array) -> Array:
    """x^H, split by rows as x is."""
    return like(r.layout, keep_rows(r, jnp.conj(x.T)), x)


def rows_product(r: Resolved, a: Array, b: Array) -> Array:
    """a b with the rows of `a`."""
    return keep_rows(r, a @ gathered(r.layout, b))
