"""Memory of eigenvalue, singular value and polar decompositions, before they are launched."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np

from ._device_memory import available
from ._layout import Layout, entries
from ._memory import NEGLIGIBLE, WARN_ABOVE, human, largest_n
from .errors import InsufficientMemoryError, JaxMgWarning

Needed = Callable[[int, int], int]

# Matrices (n, n), spread over the devices, that a polar decomposition holds at once: A scaled, X,
# its successor, the inverse on the way to it or powers of R, and operands of products.
POLAR_MATRICES = 10


@functools.lru_cache(maxsize=4096)
def eigen_bytes(
    layout: Layout,
    n: int,
    dtype: str,
    count: int,
    kept: bool,
    backend: str = "native",
    precision: int = 0,
) -> int:
    """Bytes on one device of an eigenproblem with `count` eigenvectors; `kept`: A stays."""
    plan = entries(
        "syevd",
        n,
        dtype,
        layout.ranks,
        layout.platform,
        columns=count,
        vectors=count > 0,
        backend=backend,
        precision=precision,
    )
    total = sum(int(e["bytes"]) for e in plan["entries"])
    return total + (_block(layout, n, n, dtype) if kept else 0)


def _block(layout: Layout, rows: int, columns: int, dtype: str) -> int:
    return -(-rows // layout.ranks) * columns * np.dtype(dtype).itemsize


def polar_bytes(layout: Layout, m: int, n: int, dtype: str) -> int:
    """Bytes on one device of a polar decomposition of an m x n matrix, m >= n."""
    plan = entries("potrf", n, dtype, layout.ranks, layout.platform)
    scratch = sum(int(e["bytes"]) for e in plan["entries"] if e["place"] == "scratch")
    tall = 3 * _block(layout, m, n, dtype) if m > n else _block(layout, m, n, dtype)
    return tall + POLAR_MATRICES * _block(layout, n, n, dtype) + scratch


@functools.lru_cache(maxsize=4096)
def svd_bytes(layout: Layout, m: int, n: int, dtype: str, vectors: bool) -> int:
    """Bytes on one device of a singular value decomposition: of the larger of its stages."""
    eigen = eigen_bytes(layout, n, dtype, n if vectors else 0, False)
    unitary = _block(layout, m, n, dtype)
    return max(polar_bytes(layout, m, n, dtype), eigen + (2 * unitary if vectors else 0))


def check_bytes(routine: str, layout: Layout, m: int, n: int, dtype: str, needed: Needed) -> None:
    """Refuses what cannot fit and warns of what hardly does.

    `needed`: m, n -> bytes on one device.

    Raises:
        InsufficientMemoryError: with the bytes needed and present, and the largest n that fits.
    """
    bytes_needed = int(needed(m, n))
    if bytes_needed < NEGLIGIBLE[layout.platform]:
        return
    free, source = available(layout.platform, layout.ranks)
    if free == 0 or bytes_needed <= WARN_ABOVE * free:
        return
    what = f"a {m} x {n} {dtype} matrix"
    if bytes_needed <= free:
        warnings.warn(
            f"{routine}: {what} takes {human(bytes_needed)} of {human(free)} per device.",
            JaxMgWarning,
            stacklevel=4,
        )
        return
    best = largest_n(lambda size: needed(size * m // max(n, 1), size) <= free)
    raise InsufficientMemoryError(
        f"{routine}: {what} needs {human(bytes_needed)} on each of {layout.ranks} devices, which "
        f"have {human(free)} ({source}). The largest n that fits, at this ratio of sides, is "
        f"{best}. Use more devices or a smaller dtype.",
        needed=bytes_needed,
        free=free,
        largest_n=best,
    )
