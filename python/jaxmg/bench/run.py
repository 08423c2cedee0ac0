"""`run`: plans a benchmark, starts the measuring processes, gathers what they say."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from jaxmg.bench import plots, report
from jaxmg.bench.records import Report
from jaxmg.bench.routines import ROUTINES
from jaxmg.bench.threads import VARIABLES, available
from jaxmg.bench.worker import Request, execute

DTYPES = ("float32", "float64", "complex64", "complex128")

RESULTS = Path("bench/results")
"""Where reports go if nothing else is asked for."""

MEMORY_FRACTION = "0.95"
"""Part of a GPU's memory that a measuring process takes, unless XLA_PYTHON_CLIENT_MEM_FRACTION is
set: JAX's own 0.75 would leave out the largest sizes."""

_WORKER = "from jaxmg.bench.worker import main; main()"

_GRACE = 180.0  # seconds beyond the budget before a measuring process is taken for hung


def run(
    routine: str = "potrs",
    *,
    n: Sequence[int] | None = None,
    dtype: Sequence[str] | None = None,
    against: Sequence[str] | None = None,
    devices: Sequence[int] | int | None = None,
    donate: Sequence[bool] | bool | None = None,
    nrhs: int = 1,
    repeats: int = 5,
    budget: float | None = None,
    threads: int | None = None,
    platform: str | None = None,
    out: Path | str | None = RESULTS,
    plot: bool = True,
    limits: bool = True,
    trace: bool = False,
    in_process: bool = False,
    console: Console | None = None,
) -> Report:
    """Times a routine of this package against its peers; prints a table, writes JSON and plots.

    Each number of devices is measured in a process of its own. On GPUs that process takes the
    devices' memory: call this from a process that has not used them.

    Args:
        routine: "potrs" or "dispatch".
        n: Orders of the matrix. Default: by platform, as `python -m jaxmg.bench --help` says.
        dtype: Names of element types.
        against: Names of peers; [] for none.
        devices: Numbers of devices; on the CPU, of virtual devices.
        donate: False, True, or both. Default: both.
        nrhs: Number of right-hand sides.
        repeats: Timed calls of each solver; one more, which compiles, comes first.
        budget: Seconds that the whole run may take. What would not fit is skipped, and the table
            says so.
        threads: Threads that every CPU solver may use. Default: all processors.
        platform: "cpu" or "gpu". Default: what JAX finds.
        out: Folder for the JSON file and the plots; None writes nothing.
        plot: Draw plots, if matplotlib is installed.
        limits: Measure the machine's limits, for the last columns of the table.
        trace: Record one more call of ours for each case, and write a picture of it and a file for
            ui.perfetto.dev to `out`.
        in_process: Measure in this process, on the devices that it has; x64 stays as it is.
        console: Where to print. Default: standard output.

    Returns:
        The report.

    Raises:
        ValueError: An argument is not one of those accepted, or n does not divide over devices.
    """
    console = console or report.console()
    if routine not in ROUTINES:
        raise ValueError(f"routine = {routine!r}; accepted are {', '.join(ROUTINES)}")
    platform, present = _machine(platform, in_process)
    chosen = ROUTINES[routine].defaults(platform, present)
    given = {"n": n, "dtype": dtype, "against": against, "devices": devices}
    chosen |= {k: _listed(v) for k, v in given.items() if v is not None}
    template = Request(
        routine=routine,
        n=chosen["n"],
        dtype=chosen["dtype"],
        against=chosen["against"],
        devices=0,
        donate=_listed(donate) if donate is not None else [False, True],
        nrhs=nrhs,
        repeats=repeats,
        threads=threads,
        limits=limits,
        trace=str(Path(out).resolve()) if trace and out is not None else None,
        quiet=not console.is_terminal,
    )
    _validate(template, chosen["devices"])
    asked = {**dataclasses.asdict(template), **chosen, "budget": budget}
    asked["trace"] = template.trace is not None  # where it went is nobody else's business
    whole = Report(platform, arguments=asked)
    deadline = None if budget is None else time.monotonic() + budget
    for count in chosen["devices"]:
        left = None if deadline is None else deadline - time.monotonic()
        request = dataclasses.replace(template, devices=count, budget=left)
        part = execute(request) if in_process else _in_child(request, platform)
        _join(whole, part)
    whole.judge(ROUTINES[routine].TARGETS)
    report.show(whole, console)
    if out is not None:
        _write(whole, Path(out), routine, plot, console)
    return whole


def _listed(value: object) -> list:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _validate(request: Request, devices: Sequence[int]) -> None:
    for name in request.dtype:
        if name not in DTYPES:
            raise ValueError(f"dtype = {name!r}; accepted are {', '.join(DTYPES)}")
    peers = sorted({peer for routine in ROUTINES.values() for peer in routine.PEERS})
    for peer in request.against:
        if peer not in peers:
            raise ValueError(f"against = {peer!r}; accepted are {', '.join(peers)}")
    for name, values in (
        ("n", request.n),
        ("devices", devices),
        ("nrhs", [request.nrhs]),
        ("repeats", [request.repeats]),
    ):
        if not values or min(values) < 1:
            raise ValueError(f"{name} = {values}: at least 1 is needed")
    for count in devices:
        for n in request.n:
            if n % count:
                raise ValueError(
                    f"n = {n} does not divide over {count} devices, as these benchmarks need; "
                    f"the nearest n that does is {max(1, round(n / count)) * count}"
                )


def _machine(platform: str | None, in_process: bool) -> tuple[str, int]:
    """Platform and number of devices, without starting JAX's devices in this process."""
    if platform not in (None, "cpu", "gpu"):
        raise ValueError(f"platform = {platform!r}; accepted are 'cpu' and 'gpu'")
    if in_process:
        import jax

        found = jax.devices()
        return "cpu" if found[0].platform == "cpu" else "gpu", len(found)
    if platform == "cpu":
        return "cpu", 1
    code = "import jax; d = jax.devices(); print('jaxmg-bench', d[0].platform, len(d))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    match = re.search(r"^jaxmg-bench (\w+) (\d+)$", done.stdout, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"JAX found no device:\n{done.stderr.strip()[-2000:]}")
    seen = "cpu" if match[1] == "cpu" else "gpu"
    if platform == "gpu" and seen == "cpu":
        raise RuntimeError(
            "no GPU was found by JAX; `python -c 'import jax; print(jax.devices())'` says why, and "
            "jaxmg.bench runs on the CPU without --gpu"
        )
    return seen, int(match[2])


def _in_child(request: Request, platform: str) -> Report:
    """Measures in a new process. What it had measured before a crash is kept."""
    with tempfile.TemporaryDirectory(prefix="jaxmg-bench-") as folder:
        source, target = Path(folder, "request.json"), Path(folder, "report.json")
        source.write_text(json.dumps(dataclasses.asdict(request)))
        command = [sys.executable, "-c", _WORKER, str(source), str(target)]
        limit = None if request.budget is None else max(0.0, request.budget) + _GRACE
        remark = None
        with _running(command, _environment(request, platform)) as process:
            try:
                code = process.wait(timeout=limit)
                if code:
                    remark = f"{request.devices} devices: the measuring process ended with {code}"
            except subprocess.TimeoutExpired:
                remark = f"{request.devices} devices: stopped {_GRACE:.0f} s after the time budget"
        part = Report.load(target) if target.exists() else Report(platform)
    if remark:
        part.remarks.append(remark)
    return part


@contextlib.contextmanager
def _running(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, env=env)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _environment(request: Request, platform: str) -> dict[str, str]:
    env = dict(os.environ)
    count = str(request.threads or available())
    env |= dict.fromkeys(VARIABLES, count)
    # The package may have been found by other means than PYTHONPATH.
    root = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    if platform == "cpu":
        env["JAX_PLATFORMS"] = "cpu"
        flag = "--xla_force_host_platform_device_count"
        others = [f for f in env.get("XLA_FLAGS", "").split() if not f.startswith(flag)]
        env["XLA_FLAGS"] = " ".join([*others, f"{flag}={request.devices}"])
    else:
        env.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", MEMORY_FRACTION)
    return env


def _join(whole: Report, part: Report) -> None:
    whole.environments |= part.environments
    whole.limits |= part.limits
    whole.results += part.results
    whole.remarks += part.remarks


def _write(whole: Report, folder: Path, routine: str, plot: bool, console: Console) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = folder / f"{routine}-{whole.platform}-{stamp}.json"
    whole.save(path)
    console.print(f"written: {path}", soft_wrap=True)
    if plot:
        for drawn in plots.draw(whole, path.with_suffix("")):
            console.print(f"written: {drawn}", soft_wrap=True)
