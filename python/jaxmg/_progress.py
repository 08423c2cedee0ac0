"""Progress of the engines' calls, shown while they run.

A thread asks the engines a few times a second; calls that nobody watches are not followed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Protocol

import jax
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from . import _native
from ._layout import DTYPES, ROUTINES
from ._native import CallInProgress

INTERVAL = 0.1
"""Seconds between two looks at the engines."""

LINES_APART = 5.0
"""Seconds between two lines on one call where there is no terminal."""

KEPT = 8
"""Calls that have ended and stay on the terminal."""

_NAMES = {
    "potrf": "Cholesky factorisation",
    "potrs": "solution",
    "potri": "inverse",
    "posv": "Cholesky factorisation and solution",
    "gesv": "LU factorisation and solution",
    "logdet": "log-determinant",
    "locate": "search for the failing minor",
    "cyclic": "redistribution",
    "getrf": "LU factorisation",
    "getrs": "solution",
    "getri": "inverse",
    "getdet": "determinant",
    "geqrf": "QR factorisation",
    "ormqr": "product with Q",
    "orgqr": "Q and R",
    "qr_r": "R",
    "geqrs": "least squares",
    "gels": "least squares",
    "syevd": "eigenvalues",
    "trsm": "triangular solution",
    "cholupdate": "update of a factor",
}
_ROUTINE = {number: name for name, number in ROUTINES.items()}
_DTYPE = {number: name for name, number in DTYPES.items()}

Key = tuple[str, int]


def describe(call: CallInProgress) -> str:
    """Such as "Cholesky factorisation, n = 65536, float64, 8 devices"."""
    routine = _ROUTINE.get(call.routine, f"routine {call.routine}")
    name = _NAMES.get(routine, routine)
    devices = "1 device" if call.ranks == 1 else f"{call.ranks} devices"
    return f"{name}, n = {call.n}, {_DTYPE.get(call.dtype, '')}, {devices}"


class _Display(Protocol):
    def begin(self, key: Key, text: str) -> None: ...
    def advance(self, key: Key, done: float) -> None: ...
    def end(self, key: Key) -> None: ...
    def close(self) -> None: ...


class _Bars:
    """A bar for each call, on a terminal or in a notebook."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[Key, TaskID] = {}
        self._ended: list[TaskID] = []
        self._progress.start()

    def begin(self, key: Key, text: str) -> None:
        self._tasks[key] = self._progress.add_task(text, total=1.0)

    def advance(self, key: Key, done: float) -> None:
        self._progress.update(self._tasks[key], completed=done)

    def end(self, key: Key) -> None:
        task = self._tasks.pop(key)
        self._progress.update(task, completed=1.0)
        self._ended.append(task)
        if len(self._ended) > KEPT:
            self._progress.remove_task(self._ended.pop(0))

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """Now and then a line on each call, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._calls: dict[Key, tuple[str, float]] = {}  # text, when it began
        self._last: dict[Key, float] = {}

    def begin(self, key: Key, text: str) -> None:
        now = time.monotonic()
        self._calls[key], self._last[key] = (text, now), now

    def advance(self, key: Key, done: float) -> None:
        now = time.monotonic()
        if now - self._last[key] >= LINES_APART:
            self._last[key] = now
            self._print(key, f"{done:.0%}")

    def end(self, key: Key) -> None:
        self._print(key, "done")
        del self._calls[key], self._last[key]

    def _print(self, key: Key, state: str) -> None:
        text, begin = self._calls[key]
        line = f"{text}: {state}, {time.monotonic() - begin:.1f} s"
        self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def close(self) -> None:
        pass


class _Watcher:
    """Looks at the engines until it is stopped."""

    def __init__(self, console: Console | None, delay: float) -> None:
        console = console or Console(stderr=True)
        watched = console.is_terminal or console.is_jupyter
        self._display: _Display = _Bars(console) if watched else _Lines(console)
        self._delay = delay
        self._seen: dict[Key, float] = {}  # when each call was first seen
        self._shown: set[Key] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jaxmg progress", daemon=True)
        _native.watch_progress(True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        _native.watch_progress(False)

    def _run(self) -> None:
        # A terminal that has gone away is no reason for a traceback beside the user's own work.
        with contextlib.suppress(OSError, ValueError):
            while not self._stopping.wait(INTERVAL):
                self._look(_native.calls_in_progress())
            self._look(_native.calls_in_progress())
            self._display.close()

    def _look(self, calls: Iterable[CallInProgress]) -> None:
        now = time.monotonic()
        present = {call.key for call in calls}
        for key in [key for key in self._seen if key not in present]:
            del self._seen[key]
            if key in self._shown:
                self._shown.remove(key)
                self._display.end(key)
        for call in calls:
            if now - self._seen.setdefault(call.key, now) < self._delay:
                continue
            if call.key not in self._shown:
                self._shown.add(call.key)
                self._display.begin(call.key, describe(call))
            self._display.advance(call.key, call.done)


_lock = threading.Lock()
_watcher: _Watcher | None = None
_blocks = 0


def _enter(console: Console | None, delay: float) -> None:
    global _watcher, _blocks
    with _lock:
        if _blocks == 0:
            _watcher = _Watcher(console, delay)
        _blocks += 1


def _leave() -> None:
    global _watcher, _blocks
    with _lock:
        _blocks -= 1
        if _blocks == 0 and _watcher is not None:
            _watcher.stop()
            _watcher = None


def _wait_for_calls() -> None:
    """Waits for all that has been dispatched; what failed is told where it is used."""
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):  # deleted meanwhile, or the result of a failed program
            array.block_until_ready()
    # Nobody may have kept their results.
    keys = {call.key for call in _native.calls_in_progress()}
    while keys & {call.key for call in _native.calls_in_progress()}:
        time.sleep(INTERVAL)


@contextlib.contextmanager
def progress(*, console: Console | None = None, delay: float = 0.5) -> Iterator[None]:
    """Shows how far the factorisations and solutions that run meanwhile are, and what they take.

    On a terminal and in notebooks each call has a bar with the time that is left, elsewhere a line
    every few seconds and one at its end. What is measured are operations: the engines count steps
    where they are done, on GPUs on the device itself. Calls outside of such a block are not
    followed and cost nothing; inside, a step takes a few microseconds more.

    Calls are asynchronous: at its end the block waits for them, and for all other arrays that are
    on their way, unless an exception leaves it. Blocks may lie in each other and in several
    threads: they share one display, that of the block which was entered first.

    Args:
        console: where to print, a ``rich.console.Console``. None: standard error.
        delay: seconds that a call must take to be shown.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmg
        >>> with jaxmg.progress():
        ...     x = jaxmg.potrs(4.0 * jnp.eye(3), jnp.ones(3))
        >>> x.tolist()
        [0.25, 0.25, 0.25]
    """
    if not float(delay) >= 0:
        raise ValueError(f"delay: got {delay!r}; accepted are numbers >= 0.")
    _enter(console, float(delay))
    try:
        yield
        _wait_for_calls()
    finally:
        _leave()
