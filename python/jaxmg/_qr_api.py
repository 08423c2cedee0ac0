"""QR factorisation at top level."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _cholesky, _qr, errors
from ._arguments import (
    cast,
    check_backend,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    place_matrix,
    release,
)
from ._context import calling_on
from ._gather import small_qr
from ._layout import AnyMesh, Layout
from ._memory import check_qr_memory
from ._operands import constrain, gathered
from ._preparation import Specs
from ._qr_layout import QrLayout, resolve_qr
from ._resolve import check_mesh, check_specs, is_concrete, manual_axes, resolve

MODES = ("reduced", "r", "complete")


@dataclasses.dataclass(frozen=True)
class QrCall:
    """Everything static about one call."""

    r: QrLayout
    mode: str


@dataclasses.dataclass
class QrResults:
    """Q and R with rows that fill all shards (None: not asked for), and info. A pytree."""

    q: Any = None
    r: Any = None
    info: Any = None


jax.tree_util.register_dataclass(QrResults, data_fields=["q", "r", "info"], meta_fields=[])


def _call(call: QrCall, a: Array) -> QrResults:
    r = call.r
    a = _qr.enter(r, a)
    f = _qr.factor(r, a)
    if call.mode == "r":
        return QrResults(r=_qr.r_alone(r, a, *f), info=f.info)
    make = _qr.complete if call.mode == "complete" and r.m > r.n else _qr.q_and_r
    q, triangle = make(r, a, *f)
    return QrResults(q=q, r=triangle, info=f.info)


run = jax.jit(_call, static_argnums=0)
_run_donating = jax.jit(_call, static_argnums=0, donate_argnums=1)


def check_rectangular(routine: str, a: Any) -> None:
    if a.ndim != 2:
        hint = ""
        if a.ndim > 2:
            hint = " For a batch of matrices use jax.vmap, or the functions of jaxmg.linalg."
        raise ValueError(
            f"{routine}: a has shape {tuple(a.shape)}; accepted is one matrix (m, n).{hint}"
        )


def layout_of(routine: str, a: Any, b: Any, rows: int, mesh: Any, spec: Any) -> Layout:
    """Where the rows of a matrix lie; global arrays only."""
    if manual_axes(jax.sharding.get_abstract_mesh()):
        raise ValueError(
            f"{routine}: not available inside shard_map. Call it outside, on the global array."
        )
    return resolve(a, b, n=rows, mesh=check_mesh(mesh), spec=spec)


def triangle_of_result(call: QrCall, triangle: Array) -> Array:
    """R in the shape that was asked for. Whole on every device where it is no larger than a
    device's part of A, else with its rows on the ranks."""
    r = call.r
    rows = r.rank
    if r.layout.kind == "dist" and (r.rank <= r.rows or triangle.shape[0] != rows):
        triangle = constrain(r.layout, triangle, _qr.WHOLE)
    triangle = triangle[:rows]
    if call.mode == "complete" and r.m > r.n:
        triangle = jnp.concatenate([triangle, jnp.zeros_like(triangle, shape=(r.m - r.n, r.n))])
    return triangle


def qr(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    return_status: bool = False,
    pad: bool = True,
    *,
    matrix_specs: Specs = None,
    mode: str = "reduced",
    donate: bool = False,
    backend: str | None = None,
    check: bool = False,
) -> Any:
    """QR factorisation A = Q R of a matrix whose rows are spread over devices.

    Householder's method by blocks: stable for every A, whatever its rank or scale. Rows stay where
    they are. Each panel of columns costs messages of the size of its square, whatever the height of
    A, and each update one sum of n numbers a column: for n small against m nothing larger than
    devices x n x n numbers is ever sent, and no device ever holds more than its rows of A. It takes
    2 m n^2 - 2/3 n^3 operations, and as many again for Q. LAPACK: xGEQRF, xORGQR.

    Args:
        a: the matrix, shape (m, n), of any sharding; float32, float64, complex64 or complex128
            (integers are promoted). NumPy arrays are accepted.
        T_A: columns that are eliminated together. None lets the plan choose.
        mesh: the mesh to work on.
        in_specs: a PartitionSpec of the matrix.
        return_status: whether to return the status too.
        pad: accepted as in :func:`jaxmg.potrs`; any m can be used.
        matrix_specs: another name of `in_specs`.
        mode: "reduced": Q (m, k) and R (k, n), k = min(m, n). "complete": Q (m, m) and R (m, n).
            "r": R (k, n) alone.
        donate: eagerly, whether `a` may be overwritten (by Q, for m >= n); it is deleted then.
        backend: None or "native".
        check: eagerly, whether to wait and raise an exception on failure.

    Returns:
        Q, R; R alone with mode "r"; and the status, an int32 scalar, if `return_status`: 0, or -1
        if `a` holds NaN or an infinity (Q and R are NaN then). Q has the rows of `a` on the
        devices. R is whole on every device where it is no larger than a device's part of A, else
        its rows are split as those of A. (Where JAX cannot split the rows evenly a result is whole
        on every device.) The diagonal of R is real; signs are those of Householder's method.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.
        NonFiniteInputError: with `check`.

    Derivatives: as ``jnp.linalg.qr``, of any order, for A whose first k columns are independent.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> q, r = jaxmg.qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
        >>> (q @ r).round(4).tolist()
        [[3.0, 1.0], [4.0, 2.0]]
        >>> abs(r).round(4).tolist()
        [[5.0, 2.2], [0.0, 0.4]]
    """
    del pad
    check_backend("qr", backend)
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}; accepted are {MODES}.")
    given, a = a, host_or_device(a, "a")
    check_rectangular("qr", a)
    a = cast(a, common_dtype("qr", a=a))
    m, n = a.shape
    spec = check_specs(in_specs, matrix_specs)[0]
    layout = layout_of("qr", a, None, m, mesh, spec)
    if m == 0 or n == 0:
        return _empty(a, mode, return_status)
    tile = check_tile(T_A)
    r = resolve_qr(layout, m, n, str(a.dtype), tile=tile)
    if mode == "reduced" or (mode == "complete" and m <= n):
        r = small_qr(r, tile)
    call = QrCall(r, mode)
    eager = is_concrete(a) or isinstance(a, np.ndarray)
    check_qr_memory("qr", call.r, 1, in_place=donate or not eager)
    a = place_matrix(a, layout, m)
    with calling_on(layout):
        if donate and eager:
            with giving_away(a, given):
                out = _run_donating(call, a)
        else:
            out = run(call, a)
        results = _finished(call, out)
    if donate and eager:
        release(given)
    if check and is_concrete(out.info):
        failure = errors.from_info(np.asarray(out.info).tolist(), "qr")
        if failure is not None:
            raise failure
    if return_status:
        results.append(_cholesky.jitted_status(out.info))
    return results[0] if len(results) == 1 else tuple(results)


def _finished(call: QrCall, out: QrResults) -> list[Array]:
    """The results without the rows that only fill shards up."""
    results = []
    if call.mode != "r":
        q = out.q
        if q.shape[0] != call.r.m:
            q = gathered(call.r.layout, q)[: call.r.m]
        results.append(q)
    results.append(_finish_triangle(call, out.r))
    return results


_finish_triangle = jax.jit(triangle_of_result, static_argnums=0)


def _empty(a: Any, mode: str, return_status: bool) -> Any:
    m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    results = [jnp.zeros((k, n), a.dtype)]
    if mode != "r":
        results.insert(0, jnp.eye(m, k, dtype=a.dtype))
    if return_status:
        results.append(jnp.zeros((), jnp.int32))
    return results[0] if len(results) == 1 else tuple(results)
