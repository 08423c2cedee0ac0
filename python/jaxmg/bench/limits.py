"""What the machine can do at best: rates of matrix products, measured in the same run.

Every rate is taken on all devices at once and for long enough that clocks settle at what the power
limit lets them sustain.

    gemm           products of the element type itself, at highest precision
    f16x3          for float32 and complex64 on GPUs: products of fp16 numbers summed in float32,
                   divided by three, which is what a float32 product of split factors takes
    blas           on CPUs: products of NumPy's BLAS, as XLA's own are slower there
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmg.bench.matrices import AXIS

_BLAS_ORDER = 1536


def measure_limits(mesh: Mesh, dtype: str, seconds: float = 1.5) -> dict[str, float]:
    """Rates in FLOP/s of all devices together, by name.

    Args:
        mesh: The devices.
        dtype: Element type.
        seconds: How long to keep each product going.
    """
    gpu = mesh.devices.flat[0].platform != "cpu"
    order = 8192 if gpu else 1536 // math.isqrt(mesh.size)
    complex_factor = 4.0 if np.dtype(dtype).kind == "c" else 1.0
    flops = 2.0 * order**3
    own = _sustained(_product(mesh, order, dtype, dtype), seconds)
    rates = {f"gemm {dtype}": complex_factor * mesh.size * flops / own}
    if gpu and dtype in ("float32", "complex64"):
        half = _sustained(_product(mesh, order, "float16", "float32"), seconds)
        rates["f16x3"] = mesh.size * flops / half / 3
    if not gpu:
        blas = _sustained(_blas_product(_BLAS_ORDER, dtype), seconds)
        rates[f"blas {dtype}"] = complex_factor * 2.0 * _BLAS_ORDER**3 / blas
    return rates


def limit_for(dtype: str, rates: dict[str, float]) -> tuple[str, float] | None:
    """Name and rate of the highest of the limits that hold for a type."""
    mine = {k: v for k, v in rates.items() if k.endswith(f" {dtype}")}
    if dtype in ("float32", "complex64") and "f16x3" in rates:
        mine["f16x3"] = rates["f16x3"]
    return max(mine.items(), key=lambda item: item[1], default=None)


def _product(mesh: Mesh, order: int, dtype: str, result: str) -> Callable[[], object]:
    """Function that multiplies two matrices on every device, at the same time."""
    spec = PartitionSpec(AXIS, None)
    split = NamedSharding(mesh, spec)

    def numbers(seed: int) -> jax.Array:
        i = jnp.arange(mesh.size * order, dtype=jnp.uint32)[:, None] + jnp.uint32(seed)
        word = (i * jnp.uint32(0x9E3779B1)) ^ (jnp.arange(order, dtype=jnp.uint32) * 0x85EBCA77)
        word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
        return ((word >> 8).astype(jnp.float32) * 2.0**-24 - 0.5).astype(dtype)

    def shard(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(
            a, b, precision=lax.Precision.HIGHEST, preferred_element_type=np.dtype(result)
        )

    a, b = (jax.jit(lambda s=s: numbers(s), out_shardings=split)() for s in (1, 7))
    multiply = jax.jit(
        jax.shard_map(shard, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False)
    )
    return lambda: multiply(a, b)


def _blas_product(order: int, dtype: str) -> Callable[[], object]:
    generator = np.random.default_rng(1)
    a, b = (generator.uniform(-0.5, 0.5, (order, order)).astype(dtype) for _ in range(2))
    return lambda: a @ b


def _sustained(call: Callable[[], object], seconds: float) -> float:
    """Seconds per call, over about `seconds`; queued in batches that keep the devices busy."""
    jax.block_until_ready(call())
    begin = time.perf_counter()
    jax.block_until_ready(call())
    one = time.perf_counter() - begin
    batch = max(1, int(0.25 * seconds / one))
    calls, begin = 0, time.perf_counter()
    while True:
        for _ in range(batch):
            product = call()
        jax.block_until_ready(product)
        calls += batch
        passed = time.perf_counter() - begin
        if passed >= seconds:
            return passed / calls
