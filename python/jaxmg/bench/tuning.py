"""`jaxmg tune`: measures the numbers of the cost model on the devices that are there.

    rate, half_size, half_inner   products (m, t) (t, m), fitted to 1/R (1 + h/m + k/t)
    tile_seconds                  the engine's factorisation of 512 rows
    link, memory                  copies between devices, a sum over an array
    step, exchange, call          the engine on many narrow tiles, on one and on all devices

At the end the rates are set right by one factorisation of middle size for each element type, since
in it clocks, caches and the lanes of the engine meet.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

import jaxmg
from jaxmg import _model
from jaxmg._profile import Arithmetic, Profile, default
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh

DTYPES = ("float32", "float64", "complex64", "complex128")
_SPLIT = "float32 split"
_COMPLEX_SPLIT = "complex64 split"


@dataclasses.dataclass(frozen=True)
class _Sizes:
    rows: tuple[int, ...]  # of products
    inner: tuple[int, ...]
    narrow: tuple[int, int]  # n and tile of a factorisation that is nothing but steps
    middle: int  # n of a factorisation that sets rates right
    copied: int  # bytes of a copy


_SIZES = {
    "cpu": _Sizes((96, 256, 768), (64, 256), (512, 16), 1024, 1 << 24),
    "cuda": _Sizes((1024, 4096, 16384), (256, 1024), (4096, 128), 16384, 1 << 28),
}


def tune(
    devices: Sequence[Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,
    seconds: float = 0.3,
) -> Profile:
    """Measures a profile; needs x64.

    Args:
        devices: which devices. None: all of this process.
        tell: called with a line of text before each measurement.
        seconds: how long to repeat each product.
    """
    devices = list(jax.local_devices() if devices is None else devices)
    platform = "cpu" if devices[0].platform == "cpu" else "cuda"
    sizes, assumed = _SIZES[platform], default(platform)
    one, mesh = row_mesh(devices[:1]), row_mesh(devices)
    profile = dataclasses.replace(assumed, device=devices[0].device_kind, measured=True)
    tell("call")
    profile = dataclasses.replace(profile, call_seconds=_solve_seconds(one, 16, "float64", 16))
    tell("memory")
    profile = dataclasses.replace(profile, memory=_memory_rate(devices[0], sizes.copied))
    if len(devices) > 1:
        tell("link")
        profile = dataclasses.replace(profile, link=_link_rate(devices, sizes.copied))
    for name in (*DTYPES, *([_SPLIT] if platform == "cuda" else [])):
        tell(f"products, {name}")
        found = _products(platform, name, sizes, seconds)
        profile = _with(profile, name, found)
    if platform == "cuda":
        profile = _with(profile, _COMPLEX_SPLIT, _complex_split(profile))
    tell("steps")
    profile = _steps(profile, one, mesh, sizes)
    for name in profile.arithmetic:
        tell(f"factorisation, {name}")
        profile = _set_right(profile, name, one, sizes.middle)
    return profile


def _complex_split(profile: Profile) -> Arithmetic:
    """Of real products by parts with twice the rows and twice the inner dimension."""
    real = profile.arithmetic[_SPLIT]
    return dataclasses.replace(
        real,
        half_size=real.half_size / 2,
        half_inner=real.half_inner / 2,
        tile_seconds=profile.arithmetic["complex64"].tile_seconds,
    )


def _with(profile: Profile, name: str, found: Arithmetic) -> Profile:
    return dataclasses.replace(profile, arithmetic={**profile.arithmetic, name: found})


def _best(call: Callable[[], Any], seconds: float = 0.2, most: int = 50) -> float:
    """Shortest time of a call, after one that compiles."""
    jax.block_until_ready(call())
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin < seconds and len(times) < most):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times)


def _product(platform: str, name: str, m: int, inner: int) -> Callable[[], Any]:
    """(m, inner) (inner, m) by what the engine uses: BLAS on CPUs, the vendor's library on GPUs."""
    dtype = "float16" if name == _SPLIT else name
    random = np.random.default_rng(0)
    a, b = (random.uniform(-0.5, 0.5, shape).astype(dtype) for shape in ((m, inner), (inner, m)))
    if platform == "cpu":
        return lambda: a @ b
    accumulate = jnp.float32 if name == _SPLIT else jnp.dtype(dtype)
    multiply = jax.jit(
        lambda a, b: lax.dot(
            a, b, precision=lax.Precision.HIGHEST, preferred_element_type=accumulate
        )
    )
    left, right = jax.device_put((a, b), jax.local_devices()[0])
    return lambda: multiply(left, right)


def _products(platform: str, name: str, sizes: _Sizes, seconds: float) -> Arithmetic:
    """Rates of products and the time of a diagonal tile."""
    # As the engine counts: split numbers take three products, complex ones four.
    unit = 4.0 if name.startswith("complex") else 1.0
    extra = 3.0 if name == _SPLIT else 1.0
    rows, targets = [], []
    for m in sizes.rows:
        for inner in sizes.inner:
            flops = unit * 2.0 * m * m * inner
            taken = extra * _best(_product(platform, name, m, inner), seconds)
            rows.append([1.0, 1.0 / m, 1.0 / inner])
            targets.append(taken / flops)
    # Relative errors count: large and small products are as important.
    scale = 1.0 / np.asarray(targets)
    fitted, *_ = np.linalg.lstsq(
        np.asarray(rows) * scale[:, None], np.asarray(targets) * scale, rcond=None
    )
    per_flop = max(float(fitted[0]), 0.3 * min(targets))
    half_size, half_inner = (max(0.0, float(v)) / per_flop for v in fitted[1:])
    return Arithmetic(
        rate=1.0 / per_flop,
        half_size=half_size,
        half_inner=half_inner,
        tile_seconds=_solve_seconds(
            row_mesh(jax.local_devices()[:1]), 512, name.removesuffix(" split"), 512
        ),
    )


def _operands(mesh: Mesh, n: int, dtype: str) -> tuple[jax.Array, jax.Array]:
    matrix = TestMatrix(n, dtype, 1)
    return make(matrix, mesh), make_right_hand_sides(matrix, 1, mesh)


def _solve_seconds(mesh: Mesh, n: int, dtype: str, tile: int, precision: str = "highest") -> float:
    a, b = _operands(mesh, n, dtype)
    return _best(lambda: jaxmg.potrs(a, b, tile, precision=precision))


def _memory_rate(device: Any, size: int) -> float:
    x = jax.device_put(np.ones(size // 4, np.float32), device)
    total = jax.jit(jnp.sum)
    return size / _best(lambda: total(x))


def _link_rate(devices: Sequence[Any], size: int) -> float:
    x = jax.device_put(np.ones(size // 4, np.float32), devices[0])
    return size / _best(lambda: jax.device_put(x, devices[1]))


def _steps(profile: Profile, one: Mesh, mesh: Mesh, sizes: _Sizes) -> Profile:
    """What a step costs beside its arithmetic, on one device and on all."""
    n, tile = sizes.narrow
    ranks = mesh.size
    n -= n % ranks
    # A solve takes two halves of a step for each tile: see _model.estimate.
    count = 2.0 * n / tile
    free = dataclasses.replace(
        profile, step_seconds=1e-12, exchange_seconds=1e-12, link=profile.link
    )

    def rest(on: Mesh) -> float:
        taken = _solve_seconds(on, n, "float64", tile)
        without = _model.estimate("potrs", n, "float64", on.size, tile, free).total
        return max(1e-6, (taken - without) / count)

    alone = rest(one)
    together = rest(mesh) if ranks > 1 else alone + profile.exchange_seconds
    return dataclasses.replace(
        profile, step_seconds=alone, exchange_seconds=max(1e-6, together - alone)
    )


def _set_right(profile: Profile, name: str, mesh: Mesh, n: int) -> Profile:
    """Scales a rate so that a factorisation of middle size takes as long as it does."""
    dtype, split = name.removesuffix(" split"), name in (_SPLIT, _COMPLEX_SPLIT)
    tile = _model.best_tile(n, dtype, 1, profile, split=split)
    taken = _solve_seconds(mesh, n, dtype, tile, "default" if split else "highest")
    for _ in range(8):
        expected = _model.estimate("potrs", n, dtype, 1, tile, profile, split=split)
        found = profile.arithmetic[name]
        # Only the part that goes with the rate can be changed.
        steps = profile.step_seconds * 2 * n / tile + profile.call_seconds
        arithmetic = max(expected.total - steps, 0.1 * expected.total)
        factor = arithmetic / max(taken - steps, 0.1 * taken)
        factor = min(max(factor, 0.5), 2.0)
        profile = _with(profile, name, dataclasses.replace(found, rate=found.rate * factor))
    return profile
