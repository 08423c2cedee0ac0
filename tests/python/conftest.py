"""Eight CPU devices and 64-bit numbers for all tests; meshes as fixtures and helpers.

With JAXMG_TEST_PLATFORM=gpu the tests run on whatever GPUs there are; those that need more devices
say so and are skipped.
"""

import gc
import importlib.util
import itertools
import mmap
import os
import time
from pathlib import Path


def known_to_xla(name):
    """Whether this XLA has a flag; one that it does not know would end the process."""
    spec = importlib.util.find_spec("jaxlib")
    library = Path(spec.origin).parent / "libjax_common.so"
    if not library.exists():
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(name.encode()) >= 0


DEVICES = 8
flags = os.environ.get("XLA_FLAGS", "")
wanted = [f"--xla_force_host_platform_device_count={DEVICES}"]
if os.environ.get("JAXMG_TEST_PLATFORM") != "gpu":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Most of the time goes into compiling programs that run once: LLVM need not make them fast.
    # Examples, the command line and other processes of tests are compiled as users' programs are.
    wanted.append("--xla_backend_optimization_level=0")
    # XLA's older generator of loops needs a third less time for all of a program.
    if known_to_xla("xla_cpu_use_fusion_emitters"):
        wanted.append("--xla_cpu_use_fusion_emitters=false")
missing = [flag for flag in wanted if flag.split("=")[0] not in flags]
os.environ["XLA_FLAGS"] = " ".join([flags, *missing]).strip()

# Tracing makes many objects that live long: looking through them less often saves a tenth.
gc.set_threshold(50_000, 50, 100)

# Small matrices are what is tested, on many devices, with the same plans everywhere.
os.environ.setdefault("JAXMG_GATHER_BELOW", "0")
os.environ.setdefault("JAXMG_LIBRARY_BELOW", "0")
os.environ.setdefault("JAXMG_PROFILE", "")
os.environ.setdefault("JAXMG_ELIMINATE_RHS", "0")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import pytest  # noqa: E402

from meshes import line  # noqa: E402


@pytest.fixture
def mesh():
    """All devices in one axis "x"."""
    return line(len(jax.devices()))


# Linux gives a process 65530 mappings, and each compiled program keeps some for as long as JAX
# keeps the program; where there are no more the compiler ends the process.
MAPPINGS = Path("/proc/self/maps")
MOST_MAPPINGS = 30_000
tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def programs_are_forgotten():
    """Drops compiled programs when this process holds many."""
    yield
    # Counting takes milliseconds; no ten tests make half of the mappings.
    if next(tests_run) % 10 == 0 and MAPPINGS.exists():
        with MAPPINGS.open("rb") as mappings:
            many = sum(1 for _ in mappings) > MOST_MAPPINGS
        if many:
            jax.clear_caches()
            gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """cuSOLVERMg fails where GPUs are shared, which tests in several processes do."""
    try:
        return (yield)
    except Exception as error:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        if workers > 1 and "does not wait for a GPU that lags behind" in str(error):
            pytest.skip(f"{workers} processes share the GPUs: {error}")
        raise


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """After each test no call may wait for other devices for ever."""
    yield
    from jaxmg import _native

    if _native.CPU.loaded:
        # Calls whose results nobody has waited for may still be on their way.
        limit = time.monotonic() + 20
        while _native.counter("pending") and time.monotonic() < limit:
            time.sleep(0.01)
        assert _native.counter("pending") == 0
