"""How much memory a device has."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax


def _host_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


@functools.lru_cache(maxsize=8)
def device_bytes(platform: str) -> tuple[int, str]:
    """Memory of one device that JAX may use, 0 if unknown, and where the number comes from."""
    try:
        devices: list[Any] = jax.local_devices(backend="gpu" if platform == "cuda" else "cpu")
    except RuntimeError:
        return 0, "unknown"
    if platform == "cuda":
        stats = devices[0].memory_stats() or {}
        limit = int(stats.get("bytes_limit", 0))
        return limit, "limit of the device" if limit else "unknown"
    return _host_bytes() // max(1, len(devices)), "host memory, shared by the CPU devices"


def available(platform: str, ranks: int) -> tuple[int, str]:
    """As device_bytes, for a call on `ranks` devices: CPU devices left out lend their share."""
    limit, source = device_bytes(platform)
    if platform == "cpu" and limit:
        local = len(jax.local_devices(backend="cpu"))
        limit = limit * local // max(1, min(ranks, local))
    return limit, source
