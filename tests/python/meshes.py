"""Meshes over the test devices."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def line(count, name="x", order=None, kind=AUTO):
    """`count` devices in one axis; `order`: which ones."""
    devices = np.array(jax.devices())[list(range(count)) if order is None else list(order)]
    return Mesh(devices, (name,), axis_types=(kind,))


def grid(rows, columns, names=("x", "y"), kind=AUTO):
    """rows x columns devices in two axes."""
    devices = np.array(jax.devices()[: rows * columns]).reshape(rows, columns)
    return Mesh(devices, names, axis_types=(kind, kind))


def put(a, mesh, *spec):
    """`a` on a mesh with the spec given by its entries."""
    return jax.device_put(a, NamedSharding(mesh, P(*spec)))
