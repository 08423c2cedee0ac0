"""QR factorisation and least squares under the names and conventions of ``jax.numpy.linalg``."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._arguments import cast, common_dtype, host_or_device
from .._layout import AnyMesh
from .._preparation import Specs
from .._qr_api import MODES
from .._qr_api import qr as _qr


class QRResult(NamedTuple):
    """Q and R."""

    Q: Array
    R: Array


def qr(
    a: Any, mode: str = "reduced", *, mesh: AnyMesh | None = None, in_specs: Specs = None
) -> Any:
    """QR factorisation A = Q R.

    Args:
        a: the matrix, shape (..., m, n).
        mode: "reduced" or "full": Q (..., m, k) and R (..., k, n), k = min(m, n). "complete": Q
            (..., m, m) and R (..., m, n). "r": R (..., k, n) alone.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.

    Returns:
        A pair with the fields `Q` and `R`, or the array R. For cost, shardings, and what happens to
        NaN see :func:`jaxmg.qr`. Signs are those of Householder's method, as in LAPACK.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import qr
        >>> q, r = qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
        >>> abs(q.T @ q).round(4).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    mode = "reduced" if mode == "full" else mode
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}; accepted are {(*MODES, 'full')}.")
    a = host_or_device(a, "a")
    if a.ndim < 2:
        raise ValueError(f"qr: a has shape {tuple(a.shape)}; accepted are matrices (..., m, n).")
    a = cast(a, common_dtype("qr", a=a))
    options: dict[str, Any] = {"mode": mode, "mesh": mesh, "in_specs": in_specs}
    if a.ndim > 2:
        return jax.vmap(lambda x: qr(x, **options))(jnp.asarray(a))
    out = _qr(a, **options)
    return out if mode == "r" else QRResult(*out)
