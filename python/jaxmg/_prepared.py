"""Remembers what was worked out for a call, so that an equal one is dispatched at once.

Checking arguments, finding the mesh and asking the engine for a plan takes longer than a small
solve. All of it follows from the types and shardings of the arrays, the options, and a few
settings of JAX: together the signature of a call.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import jax

from . import _gather, _library
from ._resolve import is_concrete

T = TypeVar("T")
Signature = tuple[Hashable, ...]


def _exact(option: Any) -> tuple[type, Any]:
    """An option and its type, since 1 == True == 1.0."""
    return type(option), option


def _of_array(x: Any) -> Signature:
    return x.shape, x.dtype, x.weak_type, x.sharding, x.committed


def _of_settings() -> Signature:
    """What decides how types are promoted, which arithmetic is chosen and where arrays belong."""
    config: Any = jax.config
    context = jax.sharding.get_abstract_mesh()
    get_mesh = getattr(jax.sharding, "get_mesh", None)
    return (
        config.jax_enable_x64,
        config.jax_numpy_dtype_promotion,
        config.jax_default_matmul_precision,
        _gather.setting(),
        _library.setting(),
        None if context.empty else (context, get_mesh() if get_mesh else None),
    )


def signature(a: Any, b: Any, options: tuple[Any, ...]) -> Signature | None:
    """All that the preparation of a call depends on; None if that cannot be said beforehand.

    `b` is None if there is no right-hand side.
    """
    if not (is_concrete(a) and (b is None or is_concrete(b))):
        return None
    try:
        right = None if b is None else _of_array(b)
        key = (_of_array(a), right, *map(_exact, options), _of_settings())
        hash(key)
    except (TypeError, ValueError):  # a list of specs; a mesh that is known under jit only
        return None
    return key


class Prepared(Generic[T]):
    """The latest calls by signature."""

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._known: dict[Signature, T] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Signature | None) -> T | None:
        return None if key is None else self._known.get(key)

    def put(self, key: Signature | None, value: T) -> None:
        if key is None:
            return
        with self._lock:
            while len(self._known) >= self._capacity:
                self._known.pop(next(iter(self._known)))
            self._known[key] = value
