"""Small solves with known answers on the devices that are there, and a look at the links."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._gesvd import gesvd
from ._potrs import potrs
from ._qr_api import qr
from ._syevd import syevd
from .cyclic import cyclic_1d, uncyclic_1d
from .linalg import cho_factor, lu_factor

N = 100
# With a tile that is named so small a matrix is worked on by the engine, on all devices.
TILE = 16
LIMIT = 25.0  # of norm1(b - A x) / (n eps norm1(A) norm1(x))


@dataclasses.dataclass
class Check:
    """One check: its name, whether it passed, and what was found."""

    name: str
    passed: bool
    detail: str


@dataclasses.dataclass
class SelfTest:
    """The outcome of :func:`selftest`; true if all checks passed; prints as a table."""

    checks: list[Check]

    def __bool__(self) -> bool:
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [
            f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<{width}}  {check.detail}"
            for check in self.checks
        ]
        failed = sum(not check.passed for check in self.checks)
        lines.append(f"{len(self.checks) - failed} passed, {failed} failed")
        return "\n".join(lines)


def _matrix(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    a = random.uniform(-0.5, 0.5, (N, N))
    b = random.uniform(-0.5, 0.5, (N, 3))
    if dtype.startswith("complex"):
        a = a + 1j * random.uniform(-0.5, 0.5, (N, N))
        b = b + 1j * random.uniform(-0.5, 0.5, (N, 3))
    a = np.tril(a, -1) + np.tril(a, -1).conj().T + np.diag(a.diagonal().real)
    return (a + 1.5 * np.sqrt(N) * np.eye(N)).astype(dtype), b.astype(dtype)


def _residual(a: np.ndarray, x: Any, b: np.ndarray) -> float:
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b, x = a.astype(wide), b.astype(wide), np.asarray(x).astype(wide)
    eps = float(np.finfo(np.asarray(x).dtype).eps)
    norm = np.linalg.norm
    return float(norm(b - a @ x, 1) / (N * eps * norm(a, 1) * norm(x, 1)))


def _solve_check(mesh: Mesh, dtype: str) -> str:
    a, b = _matrix(dtype)
    x, logdet, status = potrs(a, b, TILE, mesh=mesh, return_logdet=True, return_status=True)
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    eps = float(np.finfo(dtype).eps)
    residual = _residual(a, x, b) * float(np.finfo(wide).eps) / eps
    expected = np.linalg.slogdet(a.astype(wide))[1]
    if int(status) != 0 or not residual <= LIMIT:
        raise ValueError(f"status {int(status)}, residual {residual:.2g}")
    if not abs(float(logdet) - expected) <= 100 * N * eps * max(1.0, abs(expected)):
        raise ValueError(f"log-determinant {float(logdet)}, expected {expected}")
    return f"residual {residual:.2g} of {LIMIT:g}"


def _factor_check(mesh: Mesh, dtype: str) -> str:
    a, _ = _matrix(dtype)
    factor = cho_factor(a, T_A=TILE, mesh=mesh)
    lower, order = (np.asarray(v) for v in factor.factor())
    permuted = a[order][:, order]
    eps = float(np.finfo(dtype).eps)
    norm = np.linalg.norm
    found = norm(permuted - lower @ lower.conj().T, 1) / (N * eps * norm(permuted, 1))
    if not found <= LIMIT:
        raise ValueError(f"factor residual {found:.2g}")
    return f"factor residual {found:.2g} of {LIMIT:g}"


def _general_check(mesh: Mesh, dtype: str) -> str:
    a, b = _matrix(dtype)
    a = np.roll(a, 7, axis=0)
    factor = lu_factor(a, T_A=TILE, mesh=mesh)
    scale = float(np.finfo(np.float64).eps / np.finfo(dtype).eps)
    forms = ((0, a), (1, a.T), (2, a.conj().T))
    worst = max(_residual(form, factor.solve(b, trans), b) for trans, form in forms) * scale
    if int(factor.status) != 0 or not worst <= LIMIT:
        raise ValueError(f"status {int(factor.status)}, residual {worst:.2g}")
    sign = complex(factor.slogdet()[0])
    expected = np.linalg.slogdet(a.astype(np.result_type(dtype, np.float64)))[0]
    if not abs(sign - expected) <= 1000 * N * float(np.finfo(dtype).eps):
        raise ValueError(f"sign of the determinant {sign}, expected {expected}")
    return f"residual {worst:.2g} of {LIMIT:g}"


def _qr_check(mesh: Mesh, dtype: str) -> str:
    a = _matrix(dtype)[0][:, : N // 2]
    q, r, status = qr(a, TILE, mesh=mesh, return_status=True)
    q, r = np.asarray(q), np.asarray(r)
    norm, unit = np.linalg.norm, N * float(np.finfo(dtype).eps)
    product = norm(a - q @ r, 1) / (unit * norm(a, 1))
    unitary = norm(np.eye(N // 2) - q.conj().T @ q, 1) / unit
    if int(status) != 0 or not max(product, unitary) <= LIMIT:
        raise ValueError(f"status {int(status)}, residuals {product:.2g} and {unitary:.2g}")
    return f"residuals {product:.2g} and {unitary:.2g} of {LIMIT:g}"


def _spectral_check(mesh: Mesh, dtype: str) -> str:
    a, _ = _matrix(dtype)
    eps, norm = float(np.finfo(dtype).eps), np.linalg.norm
    w, v = (np.asarray(x) for x in syevd(a, TILE, mesh=mesh))
    eigen = float(norm(a @ v - v * w, 1) / (N * eps * norm(a, 1)))
    tall = a[:, : N // 2]
    u, s, vh = (np.asarray(x) for x in gesvd(tall, TILE, mesh=mesh))
    singular = float(norm(tall - (u * s) @ vh, 1) / (N * eps * norm(tall, 1)))
    if not max(eigen, singular) <= LIMIT:
        raise ValueError(f"residuals {eigen:.2g} of syevd, {singular:.2g} of gesvd")
    return f"residuals {eigen:.2g}, {singular:.2g} of {LIMIT:g}"


def _status_check(mesh: Mesh, dtype: str) -> str:
    a = np.eye(N, dtype=dtype)
    a[41, 41] = -1
    x, status = potrs(a, np.ones(N, dtype), TILE, mesh=mesh, return_status=True)
    if int(status) != 42 or not np.isnan(np.asarray(x)).all():
        raise ValueError(f"status {int(status)} in place of 42")
    return "failing minor 42 found"


def _cyclic_check(mesh: Mesh, dtype: str) -> str:
    a = np.arange(N * N).reshape(N, N).astype(dtype)
    there = cyclic_1d(a, 3, mesh)
    back = uncyclic_1d(there, 3, mesh)
    if not (np.asarray(back) == a).all():
        raise ValueError("rows are not where they belong")
    return "there and back"


def _link_check(first: Any, second: Any) -> str:
    """Bandwidth and latency of a copy, and whether the data arrive."""
    size = 1 << 22
    data = jax.device_put(jnp.arange(size, dtype=jnp.int32), first)
    small = jax.device_put(jnp.zeros((), jnp.int32), first)

    def seconds(x: Any) -> float:
        best = float("inf")
        for _ in range(4):
            jax.block_until_ready(x)
            start = time.perf_counter()
            jax.block_until_ready(jax.device_put(x, second))
            best = min(best, time.perf_counter() - start)
        return best

    if int(jnp.sum(jax.device_put(data, second) != np.arange(size, dtype=np.int32))) != 0:
        raise ValueError("data arrive changed")
    return f"{4 * size / seconds(data) / 1e9:.1f} GB/s, {seconds(small) * 1e6:.0f} us"


def _sum_check(mesh: Mesh) -> str:
    """All devices take part in one sum."""
    count = mesh.size
    spec = PartitionSpec("all")
    ones = jax.device_put(np.ones(count, np.float32), NamedSharding(mesh, spec))
    call = jax.shard_map(
        lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
    )
    total = float(jax.jit(call)(ones)[0])
    if total != count:
        raise ValueError(f"sum over devices is {total}, expected {count}")
    return f"{count} devices"


def _run(name: str, function: Callable[..., str], *args: Any) -> Check:
    try:
        return Check(name, True, function(*args))
    except Exception as error:  # every check is reported
        return Check(name, False, f"{type(error).__name__}: {error}")


def selftest(mesh: Mesh | None = None) -> SelfTest:
    """Runs small solves of every routine and dtype, and checks the links between devices.

    Args:
        mesh: whose devices to use; None means all devices.

    Returns:
        A :class:`SelfTest`: true if everything passed, and a table when printed. 64-bit dtypes are
        left out unless JAX's x64 mode is on.
    """
    devices = jax.devices() if mesh is None else list(mesh.devices.flat)
    line = Mesh(np.array(devices), ("all",))
    dtypes = ["float32", "complex64"]
    if jnp.zeros((), float).dtype == np.float64:
        dtypes += ["float64", "complex128"]
    checks = [_run("sum over devices", _sum_check, line)]
    for device in devices[1:]:
        if device.process_index == devices[0].process_index:
            name = f"link {devices[0].id} -> {device.id}"
            checks.append(_run(name, _link_check, devices[0], device))
    for dtype in dtypes:
        checks.append(_run(f"potrs {dtype}", _solve_check, line, dtype))
        checks.append(_run(f"cho_factor {dtype}", _factor_check, line, dtype))
        checks.append(_run(f"lu_factor {dtype}", _general_check, line, dtype))
        checks.append(_run(f"qr {dtype}", _qr_check, line, dtype))
        checks.append(_run(f"syevd, gesvd {dtype}", _spectral_check, line, dtype))
        checks.append(_run(f"status {dtype}", _status_check, line, dtype))
        checks.append(_run(f"cyclic_1d {dtype}", _cyclic_check, line, dtype))
    return SelfTest(checks)
