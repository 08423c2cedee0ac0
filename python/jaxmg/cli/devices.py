"""The devices of a command: all GPUs, or virtual CPU devices where there are none."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax.sharding import Mesh

from jaxmg.cli.failure import Exit, Failure

AXIS = "rows"
MOST = 1024  # JAX cannot number many more CPU devices in a process
_MOST_CPU_DEVICES = 8  # by default; more ranks than cores only add communication


def configure(count: int | None) -> None:
    """Sets 64-bit types, and the number of CPU devices (None: a good number).

    Has to be called before anything else makes JAX start its backends, since the number of virtual
    CPU devices cannot be changed afterwards.
    """
    jax.config.update("jax_enable_x64", True)
    if not _cpu_devices_are_set():
        default = max(1, min(os.cpu_count() or 1, _MOST_CPU_DEVICES))
        jax.config.update("jax_num_cpu_devices", count or default)


def start(count: int | None) -> Mesh:
    """Starts JAX and returns a mesh of ``count`` devices (None: of all)."""
    configure(count)
    devices = jax.devices()
    if count is None:
        count = len(devices)
    if count > len(devices):
        raise Failure(
            f"--devices {count}: there are {len(devices)} devices of kind {devices[0].platform}. "
            "Ask for fewer, or set JAX_PLATFORMS=cpu to work on virtual CPU devices.",
            Exit.USAGE,
        )
    return Mesh(np.asarray(devices[:count]), (AXIS,))


def describe(mesh: Mesh) -> str:
    """The devices in a few words, as in ``8 x cpu``."""
    first = mesh.devices.flat[0]
    return f"{mesh.devices.size} x {first.device_kind if first.platform != 'cpu' else 'cpu'}"


def _cpu_devices_are_set() -> bool:
    """Whether the user has chosen a number of CPU devices by JAX's own means."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return True
    return bool(os.environ.get("JAX_NUM_CPU_DEVICES"))
