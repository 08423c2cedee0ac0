"""Row padding of the published interface: each shard is padded to whole tiles."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def calculate_padding(shard_size: int, T_A: int) -> int:
    """Number of rows that make a shard of `shard_size` rows a multiple of `T_A`.

    Example:
        >>> from jaxmg import calculate_padding
        >>> calculate_padding(10, 4)
        2
    """
    if T_A < 1:
        raise ValueError(f"T_A: got {T_A}; accepted are integers >= 1.")
    return -shard_size % T_A


def pad_rows(a: Array, padding: int) -> Array:
    """Appends `padding` zero rows to a block."""
    return jnp.pad(a, ((0, padding), (0, 0)))


def unpad_rows(a: Array, padding: int) -> Array:
    """Drops the last `padding` rows of a block."""
    return a[: a.shape[0] - padding, :]
