"""Pictures of calls: what each device worked on, and when.

    with record() as tasks:
        jax.block_until_ready(jaxmg.potrs(a, b))
    draw(tasks, "potrs.png")

A task's times are taken in the lane (on a GPU: the stream) that its work is in, before and after
it, so tasks of one device that overlap in the picture did so on the device. An arrival begins when
the buffer for another device's panel is free and ends when the panel is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jaxmg import _tasks
from jaxmg._layout import ROUTINES
from jaxmg._tasks import TaskTimes

_LANES = {"arrival": "copies", "panel": "panels", "look-ahead": "panels"}  # else: updates
_COLORS = {
    "probe": "tab:gray",
    "panel": "tab:red",
    "look-ahead": "tab:orange",
    "update": "tab:blue",
    "solve": "tab:green",
    "exchange": "tab:purple",
    "arrival": "tab:cyan",
}
_NAMES = {number: name for name, number in ROUTINES.items()}


def lane(task: TaskTimes) -> str:
    """The lane that a task's work is in: "panels", "updates" or "copies"."""
    return _LANES.get(task.task, "updates")


@contextmanager
def record() -> Iterator[list[TaskTimes]]:
    """Records the calls made within; what is yielded is filled at its end.

    Calls must be over when it ends: use `jax.block_until_ready`. Calls of other threads are
    recorded too.

    Yields:
        An empty list, to which the tasks are added.
    """
    tasks: list[TaskTimes] = []
    _tasks.take_tasks()  # of calls that nobody asked for any more
    _tasks.record_tasks(True)
    try:
        yield tasks
    finally:
        _tasks.record_tasks(False)
        tasks += _tasks.take_tasks()


def save(tasks: Sequence[TaskTimes], path: Path | str) -> None:
    """Writes the tasks in the format of chrome://tracing and ui.perfetto.dev."""
    first = min((t.begin for t in tasks), default=0.0)
    events = [
        {
            "name": f"{t.task} {t.step}",
            "cat": _NAMES.get(t.routine, str(t.routine)),
            "ph": "X",
            "pid": t.rank,
            "tid": lane(t),
            "ts": (t.begin - first) * 1e6,
            "dur": (t.end - t.begin) * 1e6,
        }
        for t in tasks
    ]
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def draw(tasks: Sequence[TaskTimes], path: Path | str, title: str = "") -> bool:
    """Draws the tasks, a row for each lane of each device, and time from left to right.

    Args:
        tasks: what was recorded.
        path: of the picture; the suffix says its format.
        title: above it.

    Returns:
        False, and no picture, without matplotlib or without tasks.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        return False
    if not tasks:
        return False
    first = min(t.begin for t in tasks)
    rows = [
        (rank, name)
        for rank in sorted({t.rank for t in tasks})
        for name in ("panels", "updates", "copies")
        if any(t.rank == rank and lane(t) == name for t in tasks)
    ]
    figure = Figure(figsize=(13, 1.4 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    kinds = [kind for kind in _COLORS if any(t.task == kind for t in tasks)]
    for place, row in enumerate(rows):
        for kind in kinds:
            bars = [
                ((t.begin - first) * 1e3, (t.end - t.begin) * 1e3)
                for t in tasks
                if (t.rank, lane(t)) == row and t.task == kind
            ]
            axes.broken_barh(
                bars, (place - 0.4, 0.8), color=_COLORS[kind], edgecolor="white", linewidth=0.2
            )
    axes.set_yticks(range(len(rows)), [f"device {rank}: {name}" for rank, name in rows])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title(title)
    patches = [Patch(color=_COLORS[kind], label=kind) for kind in kinds]
    axes.legend(handles=patches, ncols=len(kinds), loc="upper center", bbox_to_anchor=(0.5, -0.18))
    figure.savefig(path, dpi=130)
    return True
