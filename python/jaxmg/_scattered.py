"""Numbers as if drawn at random, from a hash of their place.

Enough for starts and probes that must not be special, and a far smaller program than that of
jax.random.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import Array


def _fmix32(h: Array) -> Array:
    """32 bits each of which depends on all of those given (the finalizer of MurmurHash3)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def scattered(row: Array, column: Array, seed: Array | int, dtype: Any) -> Array:
    """Real numbers in [-sqrt(3), sqrt(3)), of mean 0 and variance 1, one for each place."""
    start = _fmix32(row.astype(jnp.uint32)) + jnp.asarray(seed).astype(jnp.uint32)
    bits = _fmix32(_fmix32(start) + column.astype(jnp.uint32)) >> 8
    unit = bits.astype(jnp.finfo(dtype).dtype) * 2.0**-24
    return ((2 * unit - 1) * math.sqrt(3)).astype(dtype)
