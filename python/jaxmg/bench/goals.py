"""The times that this package is to reach on two H200: `python -m jaxmg.bench.goals`.

All rows are measured in one process, each as a user makes the call: wall time through JAX, warm,
the matrix row-sharded and given away where the routine can use that. "must" and "aim" are seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import jaxmg
from jaxmg.bench import environment, mixed, potri, potrs, report
from jaxmg.bench.factorisations import ENTRIES, Entry
from jaxmg.bench.harness import Budget, Solver, measure
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import Case, Report, Result
from jaxmg.bench.residual import Residual, residual_of_generated

MEMORY_FRACTION = "0.97"
"""Part of a GPU's memory that JAX takes here, unless XLA_PYTHON_CLIENT_MEM_FRACTION says other."""

TALL = 7813
"""Rows over columns of the tall least-squares problem: 4,000,256 x 512."""

_ENTRY: dict[str, Entry] = {entry.NAME: entry for entry in ENTRIES}


@dataclass(frozen=True)
class Goal:
    """One row.

    Attributes:
        work: Key of `WORKS`.
        n: Order of the matrix.
        dtype: Element type.
        must: Seconds that must be reached, if there is such a figure.
        aim: Seconds to aim for.
        devices: 1 for one device; None for all.
        nrhs: Number of right-hand sides.
    """

    work: str
    n: int
    dtype: str = "float64"
    must: float | None = None
    aim: float | None = None
    devices: int | None = None
    nrhs: int = 1

    def __str__(self) -> str:
        more = f" x {self.nrhs}" if self.nrhs > 1 else ""
        return f"{self.work}{more} {self.dtype} {self.n}" + (" on one" if self.devices else "")


def _donated(module: Any, case: Case, mesh: Mesh) -> Solver:
    solver: Solver = module.solvers(case, mesh, [], [True])[0]
    return solver


def _entry(name: str, height: int = 0, **options: Any) -> Callable[[Case, Mesh], Solver]:
    entry = _ENTRY[name]
    if height:
        entry = dataclasses.replace(entry, height=height)

    def build(case: Case, mesh: Mesh) -> Solver:
        solver = _donated(entry, case, mesh)
        call = functools.partial(getattr(jaxmg, name), **{"donate": True, **options})
        return dataclasses.replace(solver, call=call)

    return build


def _values(case: Case, mesh: Mesh) -> Solver:
    """Eigenvalues alone; the error is that of their sum of squares, || A ||_F^2."""
    solver = _donated(_ENTRY["syevd"], case, mesh)

    def check(w: Any) -> Residual:
        a = make(TestMatrix(case.n, case.dtype, case.seed), mesh)
        size = jnp.sum(jnp.abs(a) ** 2)
        error = float(jnp.abs(jnp.sum(w**2) - size) / size)
        return Residual(error, error / (float(jnp.finfo(a.dtype).eps) * case.n))

    call = functools.partial(jaxmg.syevd, return_eigenvectors=False, donate=True)
    return dataclasses.replace(solver, call=call, check=check)


def _solution(case: Case, mesh: Mesh) -> Solver:
    """Solutions with a factor that is kept."""
    matrix = TestMatrix(case.n, case.dtype, case.seed)
    kept: list[Any] = []

    def prepare() -> tuple[Any, ...]:
        if not kept:
            kept.append(jaxmg.linalg.cho_factor(make(matrix, mesh), overwrite_a=True))
        return kept[0], make_right_hand_sides(matrix, case.nrhs, mesh)

    def check(x: Any) -> Residual:
        b = make_right_hand_sides(matrix, case.nrhs, mesh)
        return residual_of_generated(matrix, x, b, mesh)

    return Solver("jaxmg", prepare, lambda factor, b: factor.solve(b), check)


WORKS: dict[str, Callable[[Case, Mesh], Solver]] = {
    "potrs": functools.partial(_donated, potrs),
    "potrs mixed": functools.partial(_donated, mixed),
    "potri": functools.partial(_donated, potri),
    "solution": _solution,
    "lu_solve": _entry("lu_solve"),
    "lu_solve mixed": _entry("lu_solve", precision="mixed", donate=False),
    "qr": _entry("qr"),
    "least_squares tall": _entry("least_squares", TALL),
    "syevd": _entry("syevd"),
    "syevd values": _values,
    "gesvd": _entry("gesvd"),
    "polar": _entry("polar"),
}
"""Makers of what is timed."""


def _rows(
    work: str,
    sizes: tuple[int, ...],
    must: tuple[float | None, ...],
    aim: tuple[float | None, ...] = (),
    **more: Any,
) -> list[Goal]:
    aim = aim or (None,) * len(sizes)
    return [Goal(work, n, must=a, aim=b, **more) for n, a, b in zip(sizes, must, aim, strict=True)]


_SINGLE: dict[str, Any] = {"dtype": "float32"}
_ONE: dict[str, Any] = {"devices": 1}

GOALS: list[Goal] = [
    *_rows("potrs", (16384, 32768, 65536), (0.024, 0.165, 1.12), (0.020, 0.135, 0.98)),
    *_rows("potrs", (32768, 65536), (0.080, 0.38), (0.060, 0.30), **_SINGLE),
    *_rows("potrs", (32768, 65536), (0.11, 0.64), **_SINGLE, **_ONE),
    *_rows("potrs mixed", (65536,), (0.55,), (0.40,)),
    *_rows("potrs", (32768, 65536), (0.196, 1.48), dtype="complex64"),
    *_rows("potrs", (32768, 65536), (None, None), dtype="complex128"),
    *_rows("potri", (16384, 32768), (0.075, 0.46), (0.060, 0.40)),
    *_rows("lu_solve", (16384, 32768, 65536), (0.075, 0.34, 2.2), (0.055, 0.28, 1.95)),
    *_rows("lu_solve", (32768, 65536), (0.185, 0.80), (0.14, 0.65), **_SINGLE),
    *_rows("lu_solve", (32768,), (None,), dtype="complex64"),
    *_rows("lu_solve mixed", (65536,), (1.15,), (0.9,)),
    *_rows("qr", (16384, 32768), (0.21, 1.25), (0.14, 1.0)),
    *_rows("least_squares tall", (512,), (None,)),
    *_rows("solution", (65536,), (0.015,), (0.008,)),
    *_rows("solution", (65536,), (0.020,), (0.012,), nrhs=64),
    *_rows("syevd", (8192, 16384, 32768), (0.25, 0.85, 4.3), (0.15, 0.55, 3.2)),
    *_rows("syevd values", (8192, 16384, 32768), (0.17, 0.48, 1.7), (0.12, 0.35, 1.2)),
    *_rows("syevd", (8192, 16384, 32768), (0.26, 1.15, 7.2), (0.2, 0.9, 6.0), **_ONE),
    *_rows("syevd", (16384, 32768), (2.6, 13.0), (1.8, 10.0), dtype="complex128"),
    *_rows("gesvd", (8192, 16384), (1.0, 3.5), (0.6, 2.5)),
    *_rows("polar", (16384,), (2.0,), (1.2,)),
    *_rows("lu_solve", (98304,), (7.0,), (6.4,)),
    *_rows("lu_solve", (131072,), (5.2,), (4.5,), **_SINGLE),
    *_rows("potrs mixed", (131072,), (3.4,), (2.6,)),
    *_rows("potrs", (131072, 229376), (2.45, 11.8), (2.1, 10.5), **_SINGLE),
    *_rows("potrs", (131072,), (8.4,), (7.6,)),
    *_rows("syevd", (65536,), (30.0,)),
    *_rows("potrs", (269312,), (None,), **_SINGLE),
]
"""The rows; those that take long come last."""


def run(
    only: str = "", budget: float | None = None, repeats: int = 3, platform: str = "gpu"
) -> Report:
    """Measures the rows whose names match `only`, on the devices of this process.

    Args:
        only: Regular expression, searched for in `str(goal)`.
        budget: Seconds that may be spent.
        repeats: Timed calls after one that compiles.
        platform: Name for the report.
    """
    spent = Budget(budget)
    result = Report(platform, arguments={"only": only, "repeats": repeats, "goals": []})
    devices = jax.devices()
    result.environments[str(len(devices))] = environment.record()
    for goal in GOALS:
        if re.search(only, str(goal)):
            mesh = row_mesh(devices[: goal.devices])
            result.results.append(_measured(goal, mesh, repeats, spent))
            result.arguments["goals"].append([str(goal), goal.must, goal.aim])
            print(_line(goal, result.results[-1]), flush=True)
            gc.collect()
    return result


def _measured(goal: Goal, mesh: Mesh, repeats: int, budget: Budget) -> Result:
    case = Case(goal.work, goal.n, goal.dtype, mesh.size, goal.nrhs)
    found = Result(case, 0.0)
    solver = dataclasses.replace(WORKS[goal.work](case, mesh), memory=0.0)
    # A call of many seconds says enough by itself.
    rounds = 1 if max(goal.must or 0.0, goal.n / 20000) > 7 else repeats
    found.measurements = measure(
        [solver], dtype=goal.dtype, flops=0.0, repeats=rounds, budget=budget
    )
    return found


def _line(goal: Goal, result: Result) -> str:
    m = result.measurements[0]
    if m.best is None:
        return f"{goal}: {m.remark}"
    verdict = "" if goal.must is None else "met" if (m.median or m.best) <= goal.must else "MISSED"
    every = " ".join(f"{t:.4g}" for t in m.times)
    return (
        f"{goal}: {m.median:.4g} s (must {goal.must}, aim {goal.aim}) {verdict}; all {every}; "
        f"first {m.first_call or 0:.3g}; error {m.backward_error or 0:.1e}"
    )


def _table(found: Report) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for header in ("work", "median", "must", "aim", "must reached", "error"):
        table.add_column(header)
    for (name, must, aim), result in zip(found.arguments["goals"], found.results, strict=True):
        m = result.measurements[0]
        reached = "-" if must is None or m.median is None else "yes" if m.median <= must else "no"
        error = "-" if m.backward_error is None else f"{m.backward_error:.1e}"
        table.add_row(
            name,
            report.seconds(m.median) if m.median else (m.remark or "-")[:60],
            report.seconds(must),
            report.seconds(aim),
            reached,
            error,
        )
    return table


@click.command()
@click.option("--only", default="", help="Regular expression: rows to measure.")
@click.option("--budget", type=float, help="Seconds for the whole run.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="bench/results")
@click.option("--list", "listed", is_flag=True, help="Print the rows; measure nothing.")
def main(only: str, budget: float | None, repeats: int, out: Path, listed: bool) -> None:
    """Time every row that this package has a goal for, on all GPUs of this machine."""
    if listed:
        print(*(goal for goal in GOALS if re.search(only, str(goal))), sep="\n")
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", MEMORY_FRACTION)
    jax.config.update("jax_enable_x64", True)
    if jax.default_backend() == "cpu":
        raise click.ClickException("these are goals for GPUs, and there are none")
    found = run(only, budget, repeats)
    Console(width=120).print(_table(found))
    out.mkdir(parents=True, exist_ok=True)
    found.save(out / f"{datetime.now(UTC):%Y-%m-%d-%H%M}-goals.json")


if __name__ == "__main__":
    main()
