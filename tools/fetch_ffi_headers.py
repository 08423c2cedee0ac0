#!/usr/bin/env python3
"""Fetch the headers of XLA's FFI that the thin FFI libraries are compiled against.

    fetch_ffi_headers.py DEST [--generation 0_1 ...] [--find-links DIR ...]

A runtime takes handlers built with its own or with older FFI headers, and the layout of some
structures changed in between, so each generation of headers gets a library of its own. For each
generation wanted, ``DEST/<generation>/xla/ffi/api/*.h`` is made from, in this order:

1. what is there already,
2. the jaxlib of the running interpreter, if it is of that generation,
3. a jaxlib wheel in one of the ``--find-links`` directories,
4. a jaxlib wheel from the package index that pip is set up for, which is deleted afterwards.

Only the headers are taken out of a wheel; nothing of it is run. Several processes may work on one
DEST at the same time. Needs nothing but the standard library, and pip for the fourth way.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

API = "xla/ffi/api"


class Generation(NamedTuple):
    """Headers with one layout of the structures, and the oldest jaxlib that has them."""

    minor: int  # XLA_FFI_API_MINOR
    jaxlib: str
    python: str  # any version that this jaxlib has a wheel for


GENERATIONS = {
    "0_1": Generation(1, "0.6.2", "3.11"),
    "0_3": Generation(3, "0.9.2", "3.12"),
    "0_4": Generation(4, "0.11.2", "3.12"),
}


class FetchError(Exception):
    """The headers could not be had; the message says why and what to do."""


def api_minor(c_api: str) -> int | None:
    """The FFI version that the text of a ``c_api.h`` declares."""
    found = re.search(r"^#define\s+XLA_FFI_API_MINOR\s+(\d+)", c_api, re.MULTILINE)
    return int(found.group(1)) if found else None


def has_generation(include: Path, generation: Generation) -> bool:
    """Whether ``include`` holds headers of the generation."""
    header = include / API / "c_api.h"
    try:
        return api_minor(header.read_text(encoding="utf-8")) == generation.minor
    except OSError:
        return False


def installed_include() -> Path | None:
    """The include directory of the running interpreter's jaxlib, without importing it."""
    spec = importlib.util.find_spec("jaxlib")
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) / "include" if places else None


def copy_headers(include: Path, target: Path) -> None:
    """Copy the FFI headers of one include directory to another."""
    shutil.copytree(include / API, target / API)


def extract_headers(wheel: Path, target: Path) -> None:
    """Take the FFI headers out of a jaxlib wheel."""
    prefix = f"jaxlib/include/{API}/"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(prefix) and not name.endswith("/"):
                path = target / API / name.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))


def local_wheel(version: str, directories: list[Path]) -> Path | None:
    """A wheel of jaxlib ``version``, for whatever platform: the headers are the same."""
    for directory in directories:
        for wheel in sorted(directory.glob(f"jaxlib-{version}-*.whl")):
            return wheel
    return None


def pip_commands() -> Iterator[list[str]]:
    """Ways to call pip: build environments often have none of their own."""
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
    bundles = [Path(sysconfig.get_path("stdlib")) / "ensurepip/_bundled"]
    if sysconfig.get_config_var("WHEEL_PKG_DIR"):
        bundles.append(Path(sysconfig.get_config_var("WHEEL_PKG_DIR")))
    for bundle in bundles:
        for wheel in sorted(bundle.glob("pip-*.whl")):
            yield [sys.executable, str(wheel / "pip")]
    found = shutil.which("pip3") or shutil.which("pip")
    if found:
        yield [found]


def download(generation: Generation, directory: Path) -> Path:
    """Download the generation's jaxlib wheel into ``directory``."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    pip = next(pip_commands(), None)
    wanted = f"jaxlib=={generation.jaxlib}"
    if pip is None:
        raise FetchError(f"no pip was found to download {wanted} with")
    command = [*pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", generation.python, "--dest", str(directory)]
    for tag in ("manylinux2014", "manylinux_2_27"):
        command += ["--platform", f"{tag}_{machine}"]
    done = subprocess.run([*command, wanted], capture_output=True, text=True, check=False)
    wheels = list(directory.glob("jaxlib-*.whl"))
    if done.returncode != 0 or not wheels:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = "\n  ".join(lines[-6:]) or f"pip exited with {done.returncode}"
        raise FetchError(f"{wanted} could not be downloaded:\n  {reason}")
    return wheels[0]


def fill(target: Path, generation: Generation, find_links: list[Path]) -> str:
    """Put the generation's headers into the empty directory ``target``; returns their source."""
    include = installed_include()
    if include and has_generation(include, generation):
        copy_headers(include, target)
        return str(include)
    wheel = local_wheel(generation.jaxlib, find_links)
    if wheel:
        extract_headers(wheel, target)
        return str(wheel)
    with tempfile.TemporaryDirectory() as directory:
        wheel = download(generation, Path(directory))
        extract_headers(wheel, target)
        return wheel.name


def fetch(destination: Path, name: str, find_links: list[Path]) -> str:
    """Make sure that ``destination/name`` holds the headers; returns where they come from."""
    generation = GENERATIONS[name]
    final = destination / name
    if has_generation(final, generation):
        return "there already"
    destination.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=destination))
    try:
        source = fill(work, generation, find_links)
        if not has_generation(work, generation):
            raise FetchError(f"{source} does not hold FFI headers of version 0.{generation.minor}")
        work.chmod(0o755)
        put(work, final, generation)
        return source
    finally:
        shutil.rmtree(work, ignore_errors=True)


def put(work: Path, final: Path, generation: Generation) -> None:
    """Rename ``work`` to ``final`` at once, unless another process was faster."""
    try:
        work.rename(final)
    except OSError:
        if not has_generation(final, generation):  # what is there is broken, or old
            broken = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
            final.replace(broken / "old")
            shutil.rmtree(broken, ignore_errors=True)
            work.rename(final)


def main() -> int:
    """Fetch what the command line asks for."""
    parser = argparse.ArgumentParser(description="Fetch the headers of XLA's FFI.")
    parser.add_argument("destination", type=Path, help="one directory a generation is made here")
    parser.add_argument(
        "--generation",
        action="append",
        choices=sorted(GENERATIONS),
        help="may be repeated; all by default",
    )
    parser.add_argument(
        "--find-links",
        action="append",
        type=Path,
        default=[],
        help="a directory with jaxlib wheels that need not be downloaded; may be repeated",
    )
    arguments = parser.parse_args()
    for name in arguments.generation or GENERATIONS:
        try:
            source = fetch(arguments.destination, name, arguments.find_links)
        except (FetchError, OSError, zipfile.BadZipFile) as error:
            print(
                f"FFI headers of generation {name}: {error}\n"
                "The package index that pip is set up for must be reachable, or a directory with "
                f"the wheel of jaxlib {GENERATIONS[name].jaxlib} be given (--find-links; "
                "-DJAXMG_FFI_WHEELS=DIR with CMake).",
                file=sys.stderr,
            )
            return 1
        print(f"FFI headers of generation {name}: {source}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
