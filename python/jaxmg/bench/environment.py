"""Record of the machine and the software that a benchmark ran on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from jaxmg.bench import threads

_GPU_FIELDS = (
    "index",
    "name",
    "driver_version",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)


def record(thread_count: int | None = None) -> dict[str, Any]:
    """Everything that bears on a timing, as plain values.

    Args:
        thread_count: Number of threads that CPU solvers were held to.
    """
    devices = jax.devices()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "jaxmg": _version("jaxmg"),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("jax", "jaxlib", "numpy", "scipy")},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": threads.available(),
        "threads": thread_count or threads.available(),
        "thread_pools": threads.pools(),
        "load": _load(),
        "devices": [f"{d.device_kind} ({d.platform}:{d.id})" for d in devices],
        "platform_version": getattr(devices[0].client, "platform_version", ""),
        "cuda": cuda_version() if devices[0].platform != "cpu" else None,
        "gpus": gpus(),
    }


def gpus() -> list[dict[str, str]]:
    """Name, driver, clocks, power and so on of each GPU as nvidia-smi has them; [] without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    rows = _output(command).splitlines()
    return [dict(zip(_GPU_FIELDS, map(str.strip, row.split(",")), strict=False)) for row in rows]


def cuda_version() -> str | None:
    """Version of the CUDA libraries that JAX was built for, or that the driver names."""
    for line in _output(["nvidia-smi"]).splitlines():
        if "CUDA Version" in line:
            return line.split("CUDA Version:")[1].split("|")[0].strip()
    return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == "jaxmg":
            import jaxmg

            return getattr(jaxmg, "__version__", None)
        return None


def _commit() -> str | None:
    """Commit of the source tree that this package is run from, "+" if it has been changed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]).strip()
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "-uno"]).strip()
    return f"{commit}+" if commit and changed else commit or None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _load() -> list[float]:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return []


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
