"""Timing: solvers take turns on one problem, each call on a matrix made anew.

A round times one call of every solver, so that a change of clock or of the machine's load meets all
of them. The matrix is made again before every call, outside the time: a donated one is gone after
it, and all solvers are treated alike. The first call of each solver compiles and is not counted.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxmg.bench.records import Measurement
from jaxmg.bench.residual import Residual

ENOUGH = 20.0
"""Seconds of timed calls after which a solver is given no more rounds."""


@dataclass
class Solver:
    """One way to solve a problem.

    Attributes:
        name: How it is called in tables; this package's begin with "jaxmg".
        prepare: Makes the arguments of one call; not timed.
        call: The call that is timed, until `jax.block_until_ready` of what it returns.
        check: Residual of what the last call returned.
        memory: Bytes that one device needs during a call, arguments included.
        shared_by: Number of devices that take that much from the same memory.
        calls: Number of calls timed together, for those too short for the clock.
        needs: Why it cannot run here, if it cannot.
    """

    name: str
    prepare: Callable[[], tuple[Any, ...]]
    call: Callable[..., Any]
    check: Callable[[Any], Residual]
    memory: float = 0.0
    shared_by: int = 1
    calls: int = 1
    needs: str | None = None


@dataclass
class Budget:
    """Time that may be spent, and what calls have been seen to take.

    Attributes:
        seconds: Time in all, from the making of this object; None is no limit.
    """

    seconds: float | None = None
    _begin: float = field(default_factory=time.monotonic)
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a limit."""
        if self.seconds is None:
            return math.inf
        return self.seconds - (time.monotonic() - self._begin)

    def learn(self, solver: str, dtype: str, flops: float, seconds: float) -> None:
        """Notes the rate of a call; calls come in order of growing size."""
        if seconds > 0:
            self._rates[solver, dtype] = flops / seconds

    def refusal(self, solver: str, dtype: str, flops: float) -> str | None:
        """Why a first and a timed call do not fit, or None; a solver never seen gets a try."""
        if self.left <= 0:
            return "skipped: the time budget is used up"
        rate = self._rates.get((solver, dtype))
        needed = 2 * flops / rate if rate else 0.0
        if needed <= self.left:
            return None
        return f"skipped: takes about {needed:.0f} s, {self.left:.0f} s of the time budget left"


def measure(
    solvers: Sequence[Solver],
    *,
    dtype: str,
    flops: float,
    repeats: int,
    budget: Budget,
    tick: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Times all solvers on one problem.

    Args:
        solvers: Who takes part.
        dtype: Element type, for the estimates of the budget.
        flops: Operations of the problem, likewise.
        repeats: Number of rounds, at least one; see ENOUGH.
        budget: Time that may be spent. Solvers that would pass it are left out and say so.
        tick: Called with the name of the solver before each call.

    Returns:
        One measurement for each solver, in order.
    """
    measurements = [Measurement(solver.name) for solver in solvers]
    running = []
    for solver, m in zip(solvers, measurements, strict=True):
        refusal = solver.needs or _memory_refusal(solver)
        m.remark = refusal or budget.refusal(solver.name, dtype, flops * solver.calls)
        if m.remark is None:
            tick(solver.name)
            took = _turn(solver, m, check=False)
            if took is not None:
                m.first_call = took[0]
                running.append((solver, m))
    for turn in range(repeats):
        for solver, m in running:
            if m.failed or m.remark or sum(m.times) > ENOUGH:
                continue
            if m.times and m.times[-1] * solver.calls > budget.left:
                m.remark = f"time budget: {turn} of {repeats} rounds"
                continue
            tick(solver.name)
            took = _turn(solver, m, check=turn in (0, repeats - 1))
            if took is not None:
                m.times.append(took[0] / solver.calls)
                m.cpu_times.append(took[1] / solver.calls)
    for _, m in running:
        if m.best is not None:
            budget.learn(m.solver, dtype, flops, m.best)
    return measurements


def _turn(solver: Solver, m: Measurement, check: bool) -> tuple[float, float] | None:
    """Seconds, and seconds of all processors, of a call; None, and a remark, if it failed."""
    try:
        arguments = jax.block_until_ready(solver.prepare())
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for _ in range(solver.calls):
            result = jax.block_until_ready(solver.call(*arguments))
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        del arguments
        if check:
            _check(solver, m, result)
        return seconds, cpu_seconds
    except Exception as error:
        # A benchmark goes on with the next solver, whatever happens to this one.
        m.failed, m.remark = True, f"{type(error).__name__}: {_first_line(error)}"
    # The traceback's frames held the matrix.
    gc.collect()
    return None


def _check(solver: Solver, m: Measurement, result: Any) -> None:
    residual = solver.check(result)
    m.backward_error, m.lapack_ratio = residual.backward_error, residual.lapack_ratio
    if not math.isfinite(residual.backward_error):
        m.failed, m.remark = True, "the result is not finite"


def _memory_refusal(solver: Solver) -> str | None:
    limit = memory_limit(jax.devices()[0])
    needed = solver.memory * solver.shared_by
    if limit is None or needed <= limit:
        return None
    return f"skipped: needs about {needed / 1e9:.1f} GB, there are {limit / 1e9:.1f} GB"


def memory_limit(device: jax.Device) -> float | None:
    """Bytes that arrays may take: on one GPU, or on the host for CPU devices. None if unknown."""
    if device.platform == "cpu":
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (ValueError, OSError):
            return None
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else ""
