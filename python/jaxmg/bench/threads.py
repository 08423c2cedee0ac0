"""The number of threads that every CPU solver is held to.

It is set by the environment of the process that measures, before any library is loaded, so that
each library reads it the way it does for its users.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLES = (
    "JAXMG_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""Environment variables that hold the libraries of a new process to a number of threads."""


def available() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def restrict(count: int) -> None:
    """Holds this process to `count` processors: XLA takes its number of threads from that."""
    if hasattr(os, "sched_setaffinity") and count < available():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def pools() -> list[dict[str, Any]]:
    """Thread pools of the libraries loaded, as threadpoolctl sees them; [] without it."""
    try:
        import threadpoolctl
    except ImportError:
        return []
    keys = ("internal_api", "version", "num_threads", "filepath")
    found = [{k: pool.get(k) for k in keys} for pool in threadpoolctl.threadpool_info()]
    for pool in found:
        pool["filepath"] = str(pool["filepath"]).rsplit("/", 1)[-1]
    return found
