"""What a machine can do, as numbers of the cost model: defaults, and what `jaxmg tune` measured.

A profile is a JSON file in the user's configuration folder, one for each kind of device, or the
file that the environment variable JAXMG_PROFILE names ("" for none). It changes times that are
predicted, tiles and the size below which matrices are gathered; never a result.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import jax

from .errors import JaxMgWarning

VARIABLE = "JAXMG_PROFILE"


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """One element type on one device.

    Attributes:
        rate: FLOP/s of large products, as sustained. A complex multiplication and addition counts
            as eight.
        half_size: rows and columns of a product that reaches half of that.
        half_inner: the same for its inner dimension, which is the tile.
        tile_seconds: time to factor a diagonal tile of 512 rows.
    """

    rate: float
    half_size: float
    half_inner: float
    tile_seconds: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """The numbers of one machine.

    Attributes:
        device: kind of its devices.
        platform: "cpu" or "cuda".
        arithmetic: by element type; "float32 split" and "complex64 split" are those on tensor
            cores.
        link: bytes per second from one device to another.
        memory: bytes per second that a device reads from its own memory.
        step_seconds: time that a step of a factorisation takes without its arithmetic.
        exchange_seconds: the same for the exchange between devices in each step.
        call_seconds: time of a call on an empty problem.
        shared: whether all devices are one: CPU devices share the cores.
        measured: whether this is from `jaxmg tune`.
    """

    device: str
    platform: str
    arithmetic: dict[str, Arithmetic]
    link: float
    memory: float
    step_seconds: float
    exchange_seconds: float
    call_seconds: float
    shared: bool = False
    measured: bool = False

    def of(self, dtype: str, split: bool = False) -> Arithmetic:
        """The arithmetic of an element type; `split`: on tensor cores, where there are."""
        found = self.arithmetic.get(f"{dtype} split") if split else None
        return found or self.arithmetic[dtype]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Profile:
        """Raises ValueError if `raw` is not a profile."""
        try:
            arithmetic = {k: Arithmetic(**v) for k, v in raw["arithmetic"].items()}
            profile = Profile(**{**raw, "arithmetic": arithmetic})
            numbers = [profile.link, profile.memory, profile.step_seconds, profile.call_seconds]
            numbers += [profile.exchange_seconds, *(a.rate for a in arithmetic.values())]
            good = all(isinstance(x, (int, float)) and x > 0 for x in numbers)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a profile: {error}") from error
        missing = {"float32", "float64", "complex64", "complex128"} - set(arithmetic)
        if missing or not good:
            raise ValueError(f"not a profile: lacks {sorted(missing)} or has numbers <= 0")
        return profile


# Fitted to potrs on one and two H200 with NVLink, n = 8192 ... 131072: within 10 % of all.
H200 = Profile(
    device="NVIDIA H200",
    platform="cuda",
    arithmetic={
        "float32": Arithmetic(52e12, 600, 100, 250e-6),
        "float32 split": Arithmetic(185e12, 1500, 200, 350e-6),
        "float64": Arithmetic(56e12, 600, 100, 250e-6),
        "complex64": Arithmetic(52e12, 400, 100, 400e-6),
        "complex64 split": Arithmetic(185e12, 1000, 100, 600e-6),
        "complex128": Arithmetic(56e12, 400, 100, 400e-6),
    },
    link=390e9,
    memory=3.8e12,
    step_seconds=100e-6,
    exchange_seconds=150e-6,
    call_seconds=300e-6,
)

# One core of the usual kind; `default` takes as many as there are.
CPU = Profile(
    device="cpu",
    platform="cpu",
    arithmetic={
        "float32": Arithmetic(60e9, 60, 16, 0.6e-3),
        "float64": Arithmetic(30e9, 40, 16, 1.2e-3),
        "complex64": Arithmetic(60e9, 40, 16, 2.4e-3),
        "complex128": Arithmetic(30e9, 30, 16, 4.8e-3),
    },
    link=4e9,
    memory=8e9,
    step_seconds=10e-6,
    exchange_seconds=25e-6,
    call_seconds=100e-6,
    shared=True,
)


def default(platform: str) -> Profile:
    """What is assumed of a machine that was not measured."""
    if platform == "cuda":
        return H200
    cores = os.cpu_count() or 1
    faster = {k: dataclasses.replace(a, rate=a.rate * cores) for k, a in CPU.arithmetic.items()}
    return dataclasses.replace(CPU, arithmetic=faster)


def device_kind(platform: str) -> str:
    """What JAX calls the devices, "cpu" if it cannot be asked."""
    try:
        devices: list[Any] = jax.local_devices(backend="gpu" if platform == "cuda" else "cpu")
    except RuntimeError:
        return platform
    return str(devices[0].device_kind)


def config_folder() -> Path:
    """Where the user's settings of this package lie."""
    if os.environ.get("XDG_CONFIG_HOME"):
        return Path(os.environ["XDG_CONFIG_HOME"]) / "jaxmg"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "jaxmg"
    return Path.home() / ".config" / "jaxmg"


def path_for(platform: str) -> Path | None:
    """The file of this machine's profile (None: there shall be none)."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    kind = re.sub(r"[^a-z0-9]+", "-", device_kind(platform).lower()).strip("-")
    return config_folder() / f"profile-{kind}.json"


def describe(profile: Profile) -> str:
    """The numbers as a table."""
    lines = [
        f"{profile.device} ({'measured' if profile.measured else 'assumed'})",
        f"  {'element type':<16}{'TFLOP/s':>10}{'half size':>11}{'inner':>8}{'tile of 512':>14}",
    ]
    for name, a in profile.arithmetic.items():
        lines.append(
            f"  {name:<16}{a.rate / 1e12:>10.3g}{a.half_size:>11.0f}{a.half_inner:>8.0f}"
            f"{1e6 * a.tile_seconds:>11.0f} us"
        )
    lines += [
        f"  {'link':<16}{profile.link / 1e9:>10.3g} GB/s",
        f"  {'memory':<16}{profile.memory / 1e9:>10.3g} GB/s",
    ]
    for name in ("step", "exchange", "call"):
        seconds = getattr(profile, f"{name}_seconds")
        lines.append(f"  {name:<16}{1e6 * seconds:>10.3g} us")
    return "\n".join(lines)


def save(profile: Profile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.write_text(json.dumps(profile.to_json(), indent=1) + "\n")
    draft.replace(path)
    present.cache_clear()


@functools.lru_cache(maxsize=8)
def _load(path: Path, platform: str, changed: int) -> Profile | None:
    del changed
    try:
        profile = Profile.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{path} cannot be used: {error}. `jaxmg tune` makes it anew.",
            JaxMgWarning,
            stacklevel=3,
        )
        return None
    return profile if profile.platform == platform else None


@functools.lru_cache(maxsize=8)
def present(platform: str) -> Profile:
    """The profile that holds in this process: the stored one, else the default."""
    path = path_for(platform)
    if path is None or not path.exists():
        return default(platform)
    return _load(path, platform, path.stat().st_mtime_ns) or default(platform)
