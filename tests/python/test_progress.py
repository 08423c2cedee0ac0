"""Progress of calls: what the engines tell, and what is shown of it."""

import io
import threading
import time

import jax
import numpy as np
import pytest
from rich.console import Console

import jaxmg
from jaxmg import _native, _progress
from jaxmg._native import CallInProgress
from matrices import spd
from meshes import line, put

N, T_A = 960, 8


def system(n=N, count=4, seed=0):
    mesh = line(count)
    a = put(spd(n, seed=seed), mesh, "x", None)
    return jax.block_until_ready(a), np.ones(n)


def screen(terminal=True):
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


def text(console):
    return console.file.getvalue()


def until_shown(needle, console, function):
    """Makes calls until one of them has been seen; they may be over between two looks."""
    limit = time.monotonic() + 60
    while needle not in text(console):
        assert time.monotonic() < limit, text(console)
        jax.block_until_ready(function())


def call(number, done, n=100, ranks=8):
    return CallInProgress(("cpu", number), 0, 1, n, ranks, done)


@pytest.fixture(autouse=True)
def nobody_watches_afterwards(monkeypatch):
    monkeypatch.setattr(_progress, "INTERVAL", 0.003)  # these calls are short
    yield
    assert _native.counter("watchers") == 0
    assert not any(t.name == "jaxmg progress" for t in threading.enumerate())


def test_what_is_done_grows():
    a, b = system()
    _native.watch_progress(True)
    seen = {}
    limit = time.monotonic() + 60
    try:
        while len(set(seen.values())) < 4:
            assert time.monotonic() < limit
            x = jaxmg.potrs(a, b, T_A)
            while not x.is_ready():
                for c in _native.calls_in_progress():
                    assert (c.n, c.ranks) == (N, 4)
                    assert seen.get(c.key, 0.0) <= c.done <= 1
                    seen[c.key] = c.done
                time.sleep(0.001)
    finally:
        _native.watch_progress(False)
    assert _native.calls_in_progress() == []


def test_nothing_is_followed_outside():
    a, b = system(n=192)
    x = jaxmg.potrs(a, b, T_A)
    while not x.is_ready():
        assert _native.calls_in_progress() == []


@pytest.mark.parametrize("terminal", [True, False])
def test_shown_and_waited_for(terminal):
    a, b = system()
    console = screen(terminal)
    wanted = f"Cholesky factorisation, n = {N}, float64, 4 devices"
    limit = time.monotonic() + 60
    while wanted not in text(console):
        assert time.monotonic() < limit
        with jaxmg.progress(console=console, delay=0):
            x = jaxmg.potrs(a, b, T_A)
        assert x.is_ready()
        assert np.abs(np.asarray(a) @ np.asarray(x) - b).max() < 1e-9
    shown = text(console)
    assert "100%" in shown if terminal else ": done, " in shown
    assert terminal or "\x1b" not in shown


def test_potri_under_jit():
    a, _ = system(n=480)
    invert = jax.jit(lambda a: jaxmg.potri(a, T_A))
    console = screen(terminal=False)
    with jaxmg.progress(console=console, delay=0):
        until_shown("inverse, n = 480", console, lambda: invert(a))


def test_calls_whose_results_are_dropped_are_waited_for():
    a, b = system()
    running = []
    limit = time.monotonic() + 60
    while not running:
        assert time.monotonic() < limit
        with jaxmg.progress(console=screen()):
            x = jaxmg.potrs(a, b, T_A)
            while not x.is_ready() and not running:
                running = _native.calls_in_progress()
            del x
    assert running[0].key not in [c.key for c in _native.calls_in_progress()]


def test_short_calls_are_not_shown():
    a, b = system(n=64)
    console = screen(terminal=False)
    with jaxmg.progress(console=console, delay=60):
        jaxmg.potrs(a, b)
    assert text(console) == ""


def test_nested_blocks_share_the_outermost_display():
    a, b = system()
    outer, inner = screen(), screen()
    assert _native.counter("watchers") == 0
    with jaxmg.progress(console=outer, delay=0):
        with jaxmg.progress(console=inner, delay=0):
            until_shown("Cholesky", outer, lambda: jaxmg.potrs(a, b, T_A))
        assert _native.counter("watchers") >= 1
    assert text(inner) == ""


def test_an_exception_leaves_at_once():
    with pytest.raises(KeyError), jaxmg.progress(console=screen()):
        raise KeyError("x")


def test_a_failing_call():
    a, b = system(n=192)
    with (
        pytest.raises(jaxmg.NotPositiveDefiniteError),
        jaxmg.progress(console=screen(), delay=0),
    ):
        jaxmg.potrs(-a, b, check=True)


def test_several_threads():
    systems = [system(n=480, count=2, seed=s) for s in range(3)]
    console = screen(terminal=False)
    results = [None] * 3

    def work(i):
        with jaxmg.progress(console=console, delay=0):
            results[i] = jaxmg.potrs(*systems[i], T_A).block_until_ready()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (a, b), x in zip(systems, results, strict=True):
        assert np.abs(np.asarray(a) @ np.asarray(x) - b).max() < 1e-9


def test_unacceptable_delay():
    with pytest.raises(ValueError, match="delay"), jaxmg.progress(delay=-1):
        pass


# --- the display alone, told of calls that are not ------------------------------------------------


@pytest.fixture
def watcher(monkeypatch):
    """A display that is told of calls by the test."""
    monkeypatch.setattr(_progress, "INTERVAL", 1000)
    made = []

    def make(console, delay=0.0):
        made.append(_progress._Watcher(console, delay))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_bars_of_several_calls(watcher):
    console = screen()
    watched = watcher(console)
    watched._look([call(1, 0.2), call(2, 0.5, n=200)])
    watched._look([call(2, 0.75, n=200)])
    watched._display._progress.refresh()
    shown = text(console)
    assert "n = 100" in shown and "n = 200" in shown
    assert "100%" in shown and " 75%" in shown


def test_few_ended_calls_stay(watcher):
    watched = watcher(screen())
    for number in range(3 * _progress.KEPT):
        watched._look([call(number, 0.5)])
    assert len(watched._display._progress.tasks) <= _progress.KEPT + 1


def test_lines_come_now_and_then(watcher, monkeypatch):
    console = screen(terminal=False)
    clock = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    watched = watcher(console)
    for tenth in range(10):
        watched._look([call(1, tenth / 10, ranks=1)])
        clock[0] += 2.0
    watched._look([])
    assert text(console).splitlines() == [
        "Cholesky factorisation, n = 100, float64, 1 device: 30%, 6.0 s",
        "Cholesky factorisation, n = 100, float64, 1 device: 60%, 12.0 s",
        "Cholesky factorisation, n = 100, float64, 1 device: 90%, 18.0 s",
        "Cholesky factorisation, n = 100, float64, 1 device: done, 20.0 s",
    ]


def test_a_terminal_that_has_gone_away(watcher):
    console = screen(terminal=False)
    watched = watcher(console)
    watched._look([call(1, 0.5)])
    console.file.close()
    watched.stop()  # what the thread meets is kept to itself
    _native.watch_progress(True)  # the fixture stops it once more
