"""Over which mesh axes of the caller's shard_map a value is typed as varying."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax


def varying(x: Any) -> frozenset[str]:
    """The mesh axes over which a value is typed as varying."""
    kind = jax.typeof(x)
    found = getattr(kind, "vma", None)
    if found is None:
        found = getattr(getattr(kind, "manual_axis_type", None), "varying", None)
    return frozenset(found or ())


def vary(x: Array, axes: Iterable[str]) -> Array:
    """Types `x` as varying over `axes` too."""
    missing = tuple(axis for axis in axes if axis not in varying(x))
    if not missing:
        return x
    if hasattr(lax, "pcast"):
        return lax.pcast(x, missing, to="varying")
    older: Any = lax
    out: Array = older.pvary(x, missing)
    return out


def unvary(x: Array, axes: Iterable[str]) -> Array:
    """Types `x`, which is equal along `axes`, as not varying over them."""
    drop = tuple(axis for axis in axes if axis in varying(x))
    if not drop:
        return x
    out: Array = lax.psum(jnp.where(lax.axis_index(drop) == 0, x, jnp.zeros_like(x)), drop)
    return out
