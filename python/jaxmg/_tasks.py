"""What the engines worked on, and when: the tasks of calls that were recorded."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from . import _native


class _TaskTimes(ctypes.Structure):
    """``jaxmg_task_times`` of src/ffi/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("number", "n", "step", "begin", "end")),
        *((name, ctypes.c_int32) for name in ("routine", "rank", "ranks", "task")),
    )


TASKS = ("probe", "panel", "look-ahead", "update", "solve", "exchange", "arrival")
"""``Observer::Task`` of src/algo/rank.h, in order."""


@dataclass(frozen=True)
class TaskTimes:
    """When a task of a call was worked on.

    Attributes:
        call: tells calls of this process apart.
        routine: as numbered by the engine.
        n: size of the matrix.
        rank, ranks: the device, by its place in the mesh, and how many there are.
        task: one of `TASKS`.
        step: of the algorithm.
        begin, end: seconds, of a clock that the devices of a host share.
    """

    call: tuple[str, int]
    routine: int
    n: int
    rank: int
    ranks: int
    task: str
    step: int
    begin: float
    end: float


def record_tasks(on: bool) -> None:
    """Asks the engines to record the tasks of calls that come from now on, or no more."""
    for library in (_native.CPU, _native.CUDA):
        if library.loaded:
            library.handle.jaxmg_record_tasks(1 if on else 0)


def take_tasks() -> list[TaskTimes]:
    """What was recorded since the last time; all calls must be over."""
    found: list[TaskTimes] = []
    buffer = (_TaskTimes * 1024)()
    for library in (_native.CPU, _native.CUDA):
        while library.loaded:
            count = library.handle.jaxmg_take_tasks(buffer, len(buffer))
            found += [
                TaskTimes(
                    (library.platform, t.number),
                    t.routine,
                    t.n,
                    t.rank,
                    t.ranks,
                    TASKS[t.task],
                    t.step,
                    t.begin * 1e-9,
                    t.end * 1e-9,
                )
                for t in buffer[:count]
            ]
            if count < len(buffer):
                break
    return found
