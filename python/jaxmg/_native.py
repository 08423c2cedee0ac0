"""Finds the shared libraries, loads them and hands their entry points to JAX.

Nothing here needs a GPU, and nothing raises at import: a library that is missing or refused is
remembered with its reason, shown by :func:`jaxmg.info`, and reported when a call needs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from .errors import BackendUnavailableError

TARGETS = (
    "jaxmg_potrf",
    "jaxmg_potrs",
    "jaxmg_posv",
    "jaxmg_logdet",
    "jaxmg_locate",
    "jaxmg_cyclic",
    "jaxmg_potri",
    "jaxmg_getrf",
    "jaxmg_getrs",
    "jaxmg_gesv",
    "jaxmg_getri",
    "jaxmg_getdet",
    "jaxmg_geqrf",
    "jaxmg_ormqr",
    "jaxmg_orgqr",
    "jaxmg_qr_r",
    "jaxmg_geqrs",
    "jaxmg_gels",
    "jaxmg_syevd",
    "jaxmg_mirror",
    "jaxmg_trsm",
    "jaxmg_cholupdate",
)
STATE_TYPE = "JaxMgSite"

# The libraries of the GPU engine do not name those of the vendor; these must be in the process
# before they are used, and must be the very files that JAX uses. Folder and file name, per
# major version of CUDA.
_NVIDIA: dict[int, tuple[tuple[str, str], ...]] = {
    12: (
        ("cuda_runtime", "libcudart.so.12"),
        ("cublas", "libcublasLt.so.12"),
        ("cublas", "libcublas.so.12"),
        ("cusparse", "libcusparse.so.12"),
        ("cusolver", "libcusolver.so.11"),
        ("nccl", "libnccl.so.2"),
    ),
    13: (
        ("cu13", "libcudart.so.13"),
        ("cu13", "libcublasLt.so.13"),
        ("cu13", "libcublas.so.13"),
        ("cu13", "libcusparse.so.12"),
        ("cu13", "libcusolver.so.12"),
        ("nccl", "libnccl.so.2"),
    ),
}


# Libraries that a call needs only if it asks for them by `backend`.
_OPTIONAL: dict[str, dict[int, tuple[str, str]]] = {
    "cusolvermg": {12: ("cusolver", "libcusolverMg.so.11"), 13: ("cu13", "libcusolverMg.so.12")},
}
# And the devices that it takes.
MOST_DEVICES = {"cusolvermg": 32}


@dataclass
class Library:
    """One engine: what was looked for, what was found, and why it is not there."""

    platform: str
    path: str | None = None
    ffi_path: str | None = None
    failure: str | None = None
    handle: Any = field(default=None, repr=False)

    @property
    def loaded(self) -> bool:
        return self.handle is not None and self.failure is None


def library_folders() -> list[Path]:
    """Where shared libraries are looked for: ``$JAXMG_LIBRARY_PATH``, then the package."""
    folders = [Path(p) for p in os.environ.get("JAXMG_LIBRARY_PATH", "").split(os.pathsep) if p]
    return [*folders, Path(__file__).resolve().parent / "_lib"]


def _find(name: str) -> Path | None:
    for folder in library_folders():
        if (folder / name).is_file():
            return folder / name
    return None


@functools.cache
def ffi_minor() -> int | None:
    """Minor version of XLA's C interface in the installed jaxlib, read from its header."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"#define\s+XLA_FFI_API_MINOR\s+(\d+)", text)
    return int(match.group(1)) if match else None


def ffi_generation() -> str:
    """Suffix of the FFI library that fits the installed jaxlib (the oldest if it is unknown).

    XLA takes handlers built for its own version of the interface or an older one, but the
    structures of call-site states changed twice: each generation has its own library.
    """
    minor = ffi_minor()
    if minor is None or minor <= 2:
        return "0_1"
    return "0_3" if minor == 3 else "0_4"


def _capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, None, None)


def _register(ffi: ctypes.CDLL, platform: str) -> None:
    for name in ("jaxmg_type_id", "jaxmg_type_info"):
        getattr(ffi, name).restype = ctypes.c_void_p
    type_id, type_info = _capsule(ffi.jaxmg_type_id()), _capsule(ffi.jaxmg_type_info())
    if hasattr(jax.ffi, "register_ffi_type"):
        described: Any = {"type_id": type_id, "type_info": type_info}
        jax.ffi.register_ffi_type(STATE_TYPE, described, platform=platform)
    else:  # jax < 0.8
        jax.ffi.register_ffi_type_id(STATE_TYPE, type_id, platform=platform)
    for target in TARGETS:
        stages = {
            "instantiate": jax.ffi.pycapsule(ffi.jaxmg_instantiate),
            "execute": jax.ffi.pycapsule(getattr(ffi, target)),
        }
        jax.ffi.register_ffi_target(target, stages, platform=platform, api_version=1)


class _PlanRequest(ctypes.Structure):
    """``jaxmg_plan_request`` of src/ffi/call.h; 0 stands for "choose" or "none"."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("routine", "dtype", "ranks", "platform")),
        *((name, ctypes.c_int32) for name in ("mirror", "replicated_rhs", "precision", "backend")),
        *((name, ctypes.c_int32) for name in ("vectors", "spare")),
        *((name, ctypes.c_int64) for name in ("n", "nrhs", "tile", "library_bytes", "columns")),
        ("order", ctypes.c_int64),
    )


class _CallProgress(ctypes.Structure):
    """``jaxmg_call_progress`` of src/ffi/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("number", "n")),
        *((name, ctypes.c_int32) for name in ("routine", "dtype", "ranks", "spare")),
        ("done", ctypes.c_double),
    )


def _declare(engine: ctypes.CDLL) -> None:
    """Signatures of the engine's C functions."""
    engine.jaxmg_plan.restype = ctypes.c_int64
    engine.jaxmg_plan.argtypes = [ctypes.POINTER(_PlanRequest), ctypes.c_char_p, ctypes.c_int64]
    engine.jaxmg_counter.restype = ctypes.c_int64
    engine.jaxmg_counter.argtypes = [ctypes.c_char_p]
    engine.jaxmg_version.restype = ctypes.c_char_p
    engine.jaxmg_version.argtypes = []
    if hasattr(engine, "jaxmg_threads"):  # engines that compute on the CPU
        engine.jaxmg_set_threads.restype = None
        engine.jaxmg_set_threads.argtypes = [ctypes.c_int]
        engine.jaxmg_threads.restype = ctypes.c_int
        engine.jaxmg_threads.argtypes = []
    engine.jaxmg_set_timeout.restype = None
    engine.jaxmg_set_timeout.argtypes = [ctypes.c_double]
    engine.jaxmg_reset_counters.restype = None
    engine.jaxmg_reset_counters.argtypes = []
    engine.jaxmg_watch_progress.restype = None
    engine.jaxmg_watch_progress.argtypes = [ctypes.c_int]
    engine.jaxmg_progress.restype = ctypes.c_int64
    engine.jaxmg_progress.argtypes = [ctypes.POINTER(_CallProgress), ctypes.c_int64]
    engine.jaxmg_record_tasks.restype = None
    engine.jaxmg_record_tasks.argtypes = [ctypes.c_int]
    engine.jaxmg_take_tasks.restype = ctypes.c_int64
    engine.jaxmg_take_tasks.argtypes = [ctypes.c_void_p, ctypes.c_int64]


def _load(platform: str, stem: str, ffi_stem: str) -> Library:
    library = Library(platform)
    path, ffi_path = _find(f"{stem}.so"), _find(f"{ffi_stem}_{ffi_generation()}.so")
    if path is None or ffi_path is None:
        missing = f"{stem}.so" if path is None else f"{ffi_stem}_{ffi_generation()}.so"
        looked = ", ".join(str(folder) for folder in library_folders())
        library.failure = f"{missing} is not in {looked}"
        return library
    library.path, library.ffi_path = str(path), str(ffi_path)
    try:
        handle = ctypes.CDLL(str(path))
        _declare(handle)
        _register(ctypes.CDLL(str(ffi_path)), platform)
        library.handle = handle
    except Exception as error:  # whatever it is, import must go on
        library.failure = f"{type(error).__name__}: {error}"
    return library


def _nvidia_folders(package: str) -> list[Path]:
    try:
        import nvidia
    except ImportError:
        return []
    return [Path(root) / package / "lib" for root in nvidia.__path__]


def _preload(package: str, soname: str) -> str | None:
    """Loads a library of the vendor and says from where: its Python package, else by soname."""
    places = [folder / soname for folder in _nvidia_folders(package)]
    for place in [*(str(p) for p in places if p.is_file()), soname]:
        with contextlib.suppress(OSError):
            ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            return place
    return None


def _preload_nvidia(major: int) -> dict[str, str]:
    """Loads the vendor's libraries as JAX does."""
    places = {soname: _preload(package, soname) for package, soname in _NVIDIA[major]}
    return {soname: place for soname, place in places.items() if place is not None}


def _cuda_major() -> int | None:
    """Major version of CUDA that the installed JAX plugin is built for."""
    import importlib.util

    for major in (13, 12):
        if importlib.util.find_spec(f"jax_cuda{major}_plugin") is not None:
            return major
    return None


def _load_cuda() -> Library:
    major = _cuda_major()
    if major is None:
        return Library("CUDA", failure="no CUDA plugin of JAX is installed")
    stem = f"libjaxmg_cuda{major}"
    if _find(f"{stem}.so") is None:
        looked = ", ".join(str(folder) for folder in library_folders())
        return Library("CUDA", failure=f"{stem}.so is not in {looked}")
    preloaded = _preload_nvidia(major)
    library = _load("CUDA", stem, f"{stem}_ffi")
    if library.failure is not None:
        missing = [soname for _, soname in _NVIDIA[major] if soname not in preloaded]
        if missing:
            library.failure += f" (not found: {', '.join(missing)})"
    return library


CPU = _load("cpu", "libjaxmg_engine", "libjaxmg_ffi")
CUDA = _load_cuda()


def engine() -> Any:
    """The engine library that answers questions about plans; raises if there is none."""
    for library in (CPU, CUDA):
        if library.loaded:
            return library.handle
    raise BackendUnavailableError(
        f"no engine library is loaded. CPU: {CPU.failure}. CUDA: {CUDA.failure}. Install the "
        "package from a wheel, or name the folder of the libraries in JAXMG_LIBRARY_PATH."
    )


def require(platform: str) -> None:
    """Raises BackendUnavailableError if calls cannot run on `platform` ("cpu" or "cuda")."""
    library = CUDA if platform == "cuda" else CPU
    if not library.loaded:
        raise BackendUnavailableError(
            f"the {library.platform} library is not available: {library.failure}. "
            "jaxmg.info() shows what was looked for."
        )


@functools.lru_cache(maxsize=8)
def optional_library(backend: str) -> tuple[str, str | None]:
    """Name of the library behind `backend`, and where it was loaded from (None: not found)."""
    major = _cuda_major()
    if major is None:
        return f"{backend} (a library of CUDA)", None
    package, soname = _OPTIONAL[backend][major]
    return soname, _preload(package, soname)


def require_backend(backend: str, platform: str, ranks: int = 1) -> None:
    """Raises BackendUnavailableError if calls on `ranks` devices cannot use `backend`."""
    if backend == "native":
        return
    if platform != "cuda":
        raise BackendUnavailableError(
            f"backend={backend!r} drives CUDA GPUs; the devices of this call are CPUs. Leave "
            "backend out: the built-in engine runs on both."
        )
    require(platform)
    soname, place = optional_library(backend)
    if place is None:
        raise BackendUnavailableError(
            f"backend={backend!r} needs {soname}, which is neither in the Python package "
            "nvidia-cusolver nor where the loader looks (LD_LIBRARY_PATH). Install it with JAX's "
            "CUDA packages, or leave backend out: the built-in engine does not use it."
        )
    if ranks > MOST_DEVICES[backend]:
        raise BackendUnavailableError(
            f"backend={backend!r} takes at most {MOST_DEVICES[backend]} devices; the mesh has "
            f"{ranks}. Leave backend out: the built-in engine has no such limit."
        )


class PlanError(ValueError):
    """The engine refused a plan request."""


@functools.lru_cache(maxsize=4096)
def plan_entries(**request: int) -> dict[str, Any]:
    """The engine's plan of one call, by the fields of its request: see ``Plan::json``."""
    capacity = 1 << 14
    buffer = ctypes.create_string_buffer(capacity)
    asked = _PlanRequest(**request)
    size = engine().jaxmg_plan(ctypes.byref(asked), buffer, capacity)
    text = buffer.value.decode("utf-8", errors="replace")
    if size < 0:
        raise PlanError(text)
    result: dict[str, Any] = json.loads(text)
    return result


def counter(name: str) -> int:
    """A counter of the engines, such as the number of completed factorisations ("potrf")."""
    loaded = [library.handle for library in (CPU, CUDA) if library.loaded]
    return sum(int(handle.jaxmg_counter(name.encode())) for handle in loaded if handle)


def reset_counters() -> None:
    """Sets the counters of completed operations to zero."""
    for library in (CPU, CUDA):
        if library.handle is not None and library.loaded:
            library.handle.jaxmg_reset_counters()


@dataclass(frozen=True)
class CallInProgress:
    """A call that the engines are working on.

    Attributes:
        key: tells calls of this process apart.
        routine, dtype: as numbered by the engine.
        n: size of the matrix.
        ranks: devices that work on it together.
        done: part of the work, 0 to 1.
    """

    key: tuple[str, int]
    routine: int
    dtype: int
    n: int
    ranks: int
    done: float


def watch_progress(on: bool) -> None:
    """Asks the engines to follow calls that come from now on, or takes that back."""
    for library in (CPU, CUDA):
        if library.loaded:
            library.handle.jaxmg_watch_progress(1 if on else -1)


def calls_in_progress() -> list[CallInProgress]:
    """The watched calls that are being worked on, the oldest first (at most 64 an engine)."""
    found = []
    for library in (CPU, CUDA):
        if library.loaded:
            calls = (_CallProgress * 64)()
            count = library.handle.jaxmg_progress(calls, len(calls))
            found += [
                CallInProgress(
                    (library.platform, c.number), c.routine, c.dtype, c.n, c.ranks, c.done
                )
                for c in calls[:count]
            ]
    return found


def set_timeout(seconds: float) -> None:
    """Time after which a call that waits for other devices gives up (0: never)."""
    if not float(seconds) >= 0:
        raise ValueError(f"seconds: got {seconds!r}; accepted are numbers >= 0.")
    engine().jaxmg_set_timeout(float(seconds))


def set_threads(count: int) -> None:
    """Threads that the CPU engine's arithmetic may use in all."""
    if int(count) < 1:
        raise ValueError(f"count: got {count!r}; accepted are integers >= 1.")
    engine().jaxmg_set_threads(int(count))
