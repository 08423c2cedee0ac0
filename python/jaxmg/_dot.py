"""Products in all digits of the element type.

JAX's default on GPUs rounds float32 operands to TensorFloat-32, with 10 bits.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax


def dot(a: Any, b: Any) -> Array:
    """a @ b."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def contract(a: Any, b: Any, dimensions: Any, **options: Any) -> Array:
    """``lax.dot_general``."""
    out: Array = lax.dot_general(a, b, dimensions, precision=lax.Precision.HIGHEST, **options)
    return out
