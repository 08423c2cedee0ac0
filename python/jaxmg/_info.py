"""What is installed, what was found, and what the devices are."""

from __future__ import annotations

import platform
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from . import _native
from ._device_memory import device_bytes
from ._memory import human


def package_version() -> str:
    """Version of this package, in a form that programs can compare."""
    try:
        return metadata.version("jaxmg")
    except metadata.PackageNotFoundError:
        source = Path(__file__).resolve().parents[2] / "pyproject.toml"
    try:  # used from its sources, without being installed
        version: str = tomllib.loads(source.read_text())["project"]["version"]
        return version
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return "0+unknown"


class Info(dict[str, Any]):
    """A dictionary that prints as text."""

    def __str__(self) -> str:
        return "\n".join(_lines(self, 0))


def _lines(value: dict[str, Any], depth: int) -> list[str]:
    out = []
    width = max((len(key) for key in value), default=0)
    for key, item in value.items():
        lead = "  " * depth
        if isinstance(item, dict):
            out.append(f"{lead}{key}")
            out.extend(_lines(item, depth + 1))
        elif isinstance(item, list):
            out.append(f"{lead}{key}")
            out.extend(f"{lead}  {element}" for element in item)
        else:
            out.append(f"{lead}{key:<{width}}  {item}")
    return out


def _library(library: _native.Library) -> dict[str, Any]:
    out: dict[str, Any] = {"available": library.loaded}
    if library.path:
        out["engine"] = library.path
        out["handlers"] = library.ffi_path
    if library.loaded:
        out["version"] = library.handle.jaxmg_version().decode()
    if library.failure:
        out["reason"] = library.failure
    return out


def _optional(backend: str) -> dict[str, Any]:
    if not _native.CUDA.loaded:
        return {"available": False, "reason": "needs the CUDA library"}
    soname, place = _native.optional_library(backend)
    if place is None:
        return {"available": False, "reason": f"{soname} was not found"}
    return {"available": True, "library": place}


def _links(devices: list[Any]) -> str:
    if devices[0].platform not in ("gpu", "cuda"):
        return "memory of one host"
    kinds = sorted({str(getattr(device, "device_kind", "?")) for device in devices})
    return f"between {', '.join(kinds)}; measured by jaxmg.selftest()"


def info() -> Info:
    """Tells versions, devices, backends, and which libraries were found where.

    Returns:
        A dictionary that prints as text. Nothing is allocated on the devices.
    """
    devices = jax.devices()
    kind = "cuda" if devices[0].platform in ("gpu", "cuda") else "cpu"
    memory, source = device_bytes(kind)
    minor = _native.ffi_minor()
    return Info(
        versions={
            "jaxmg": package_version(),
            "jax": jax.__version__,
            "jaxlib": metadata.version("jaxlib"),
            "python": sys.version.split()[0],
            "system": platform.platform(),
            "XLA FFI": "unknown" if minor is None else f"0.{minor}",
            "handlers built for": "0." + _native.ffi_generation().split("_")[1],
        },
        devices={
            "backend": jax.default_backend(),
            "count": len(devices),
            "local": jax.local_device_count(),
            "processes": jax.process_count(),
            "kinds": sorted({str(device.device_kind) for device in devices}),
            "memory": f"{human(memory)} per device ({source})" if memory else "unknown",
            "links": _links(devices),
            "default float": str(jax.numpy.result_type(float)),
        },
        backends={
            "native cpu": _library(_native.CPU),
            "native cuda": _library(_native.CUDA),
            "cusolvermg": _optional("cusolvermg"),
        },
        searched=[str(folder) for folder in _native.library_folders()],
    )
