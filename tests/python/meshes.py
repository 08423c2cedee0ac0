"""Meshes over the test devices."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def need(count):
    """Skips the test if there are fewer devices."""
    if count > len(jax.devices()):
        pytest.skip(f"needs {count} devices, there are {len(jax.devices())}")


def need_cpu(why):
    """Skips the test where it runs on GPUs."""
    if jax.default_backend() != "cpu":
        pytest.skip(f"on CPUs alone: {why}")


def line(count, name="x", order=None, kind=AUTO):
    """`count` devices in one axis; `order`: which ones."""
    need(count if order is None else max(order) + 1)
    devices = np.array(jax.devices())[list(range(count)) if order is None else list(order)]
    return Mesh(devices, (name,), axis_types=(kind,))


def grid(rows, columns, names=("x", "y"), kind=AUTO):
    """rows x columns devices in two axes."""
    need(rows * columns)
    devices = np.array(jax.devices()[: rows * columns]).reshape(rows, columns)
    return Mesh(devices, names, axis_types=(kind, kind))


def put(a, mesh, *spec):
    """`a` on a mesh with the spec given by its entries."""
    return jax.device_put(a, NamedSharding(mesh, P(*spec)))
