"""The measuring process: reads a request, runs its cases, writes a report after each.

`main` is run with two arguments, REQUEST and REPORT, both JSON files. A process of its own, since
the number of virtual CPU devices and of threads is settled when JAX starts, and since a crash must
not take the other cases with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import jaxmg
from jaxmg._memory import STAGES
from jaxmg.bench import environment, threads, trace
from jaxmg.bench.harness import Budget, Solver, measure
from jaxmg.bench.limits import limit_for, measure_limits
from jaxmg.bench.matrices import row_mesh
from jaxmg.bench.records import Case, Report, Result
from jaxmg.bench.routines import ROUTINES


@dataclass
class Request:
    """What one process is to measure.

    Attributes:
        routine: Name of the benchmark.
        n: Orders, in ascending order.
        dtype: Element types.
        against: Peers.
        devices: Number of devices.
        donate: Whether to time ours without donation, with it, or both.
        nrhs: Number of right-hand sides.
        repeats: Number of rounds.
        budget: Seconds that may be spent, or None.
        threads: Number of threads for CPU solvers, or None for all.
        limits: Whether to measure the machine's limits.
        trace: Folder for records of one call of each case, or None.
        quiet: No progress bar.
    """

    routine: str
    n: list[int]
    dtype: list[str]
    against: list[str]
    devices: int
    donate: list[bool]
    nrhs: int = 1
    repeats: int = 5
    budget: float | None = None
    threads: int | None = None
    limits: bool = True
    trace: str | None = None
    quiet: bool = False

    def cases(self) -> list[Case]:
        """The problems, small ones first."""
        return [
            Case(self.routine, n, dtype, self.devices, self.nrhs)
            for n in sorted(self.n)
            for dtype in self.dtype
        ]


def execute(request: Request, keep: Callable[[Report], None] = lambda report: None) -> Report:
    """Runs the cases of a request on the first devices of this process.

    Args:
        request: What to measure.
        keep: Called with the report so far, after each case.

    Returns:
        The report, without verdicts.

    Raises:
        ValueError: There are fewer devices than asked for.
    """
    budget = Budget(request.budget)
    present = jax.devices()
    if len(present) < request.devices:
        raise ValueError(f"{request.devices} devices were asked for, there are {len(present)}")
    platform = "cpu" if present[0].platform == "cpu" else "gpu"
    report = Report(platform, environments={})
    report.environments[str(request.devices)] = environment.record(request.threads)
    mesh = row_mesh(present[: request.devices])
    rates: dict[str, float] = {}
    if request.limits:
        for dtype in request.dtype:
            rates |= measure_limits(mesh, dtype, seconds=1.5 if platform == "gpu" else 0.5)
        report.limits[str(request.devices)] = rates
    keep(report)

    routine = ROUTINES[request.routine]
    against = [peer for peer in request.against if peer in routine.PEERS]
    with _progress(request.quiet) as progress:
        task = progress.add_task("", total=None)
        for done, case in enumerate(request.cases()):
            solvers = routine.solvers(case, mesh, against, request.donate)
            calls = len(request.cases()) * len(solvers) * (request.repeats + 1)
            share = calls // len(request.cases())
            progress.update(task, total=calls, completed=done * share)

            def tick(solver: str, case: Case = case) -> None:
                progress.update(task, advance=1, description=f"{case}: {solver}")

            result = Result(case, routine.flops(case), limit_for(case.dtype, rates))
            result.expected = expected_seconds(case, mesh)
            result.measurements = measure(
                solvers,
                dtype=case.dtype,
                flops=result.flops,
                repeats=request.repeats,
                budget=budget,
                tick=tick,
            )
            report.results.append(result)
            keep(report)
            if request.trace is not None:
                _record(case, solvers, result, Path(request.trace))
    return report


def _record(case: Case, solvers: list[Solver], result: Result, folder: Path) -> None:
    """Writes what the devices did in one more call of the first of our solvers that ran."""
    ran = [s for s, m in zip(solvers, result.measurements, strict=True) if m.ours and m.best]
    if not ran:
        return
    arguments = jax.block_until_ready(ran[0].prepare())
    with trace.record() as tasks:
        jax.block_until_ready(ran[0].call(*arguments))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"trace-{case.routine}-{case.n}-{case.dtype}-{case.devices}"
    trace.save(tasks, folder / f"{name}.json")
    trace.draw(tasks, folder / f"{name}.png", str(case))


def expected_seconds(case: Case, mesh: Any) -> float | None:
    """What the cost model says of a case; None of benchmarks that are no routine."""
    if case.routine not in STAGES:
        return None
    planned = jaxmg.plan(case.routine, case.n, case.dtype, nrhs=case.nrhs, mesh=mesh)
    return planned.seconds.total


def _progress(quiet: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


def main() -> None:
    """Entry of the measuring process."""
    source, target = map(Path, sys.argv[1:3])
    request = Request(**json.loads(source.read_text()))
    if request.threads is not None:
        threads.restrict(request.threads)
    # Results in float64 need it, and residuals of float32 solutions are formed in it.
    jax.config.update("jax_enable_x64", True)
    execute(request, keep=lambda report: report.save(target))
