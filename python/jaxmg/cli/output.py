"""Writing solutions, and what is printed meanwhile."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import jaxmg
from jaxmg.cli.failure import Exit, Failure
from jaxmg.cli.matrix_market import write_matrix_market

_terminal = Console(stderr=True, highlight=False)


class Output:
    """A file that is written in full or not at all.

    A temporary file beside the final one is opened at once, so that a folder that cannot be written
    to is found before the work is done and not after.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.suffix not in (".npy", ".npz", ".mtx"):
            raise Failure(
                f"{path}: unknown kind of file; .npy, .npz and .mtx can be written.", Exit.OUTPUT
            )
        if path.is_dir():
            raise Failure(f"{path} cannot be written: it is a directory.", Exit.OUTPUT)
        try:
            handle, name = tempfile.mkstemp(suffix=path.suffix, prefix=".jaxmg-", dir=path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error
        os.close(handle)
        self._temporary = Path(name)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.unlink(missing_ok=True)

    def write(self, x: np.ndarray) -> None:
        """Puts ``x`` in the file; an older file of that name is replaced."""
        try:
            if self.path.suffix == ".npy":
                np.save(self._temporary, x)
            elif self.path.suffix == ".npz":
                np.savez(self._temporary, x=x)
            else:
                write_matrix_market(self._temporary, x)
            mask = os.umask(0)
            os.umask(mask)
            self._temporary.chmod(0o666 & ~mask)  # mkstemp's files are private
            self._temporary.replace(self.path)
        except OSError as error:
            raise _cannot_write(self.path, error) from error


def _cannot_write(path: Path, error: OSError) -> Failure:
    return Failure(f"{path} cannot be written: {error.strerror or error}.", Exit.OUTPUT)


def progress(quiet: bool) -> contextlib.AbstractContextManager[None]:
    """Shows how far the calls inside are; silent where nobody watches."""
    if quiet or not _terminal.is_terminal:
        return contextlib.nullcontext()
    return jaxmg.progress(console=_terminal, delay=0)


@contextlib.contextmanager
def stage(text: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """Shows that ``text`` is going on, and how far it is; silent where nobody watches."""
    columns = (SpinnerColumn(), TextColumn(text), BarColumn(), TimeElapsedColumn())
    off = quiet or not _terminal.is_terminal
    with Progress(*columns, console=_terminal, transient=True, disable=off) as progress:
        task = progress.add_task(text, total=None)

        def advance(fraction: float) -> None:
            progress.update(task, total=1.0, completed=fraction)

        yield advance


def report(pairs: list[tuple[str, str]], quiet: bool) -> None:
    """Prints names and values in two columns."""
    if quiet:
        return
    width = max(len(name) for name, _ in pairs) + 2
    for name, value in pairs:
        click.echo(f"{name:{width}}{value}")
