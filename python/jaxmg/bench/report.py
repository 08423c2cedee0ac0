"""The table that a run ends with."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from jaxmg.bench.records import Measurement, Report, Result, Verdict


def console() -> Console:
    """Standard output; wide enough for the table where it is no terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=120)


def show(report: Report, console: Console) -> None:
    """Prints every case, then the targets, then what went wrong.

    Args:
        report: What was measured.
        console: Where to print.
    """
    if report.results:
        console.print(_table(report))
        console.print(
            "Times are the best of all rounds; ratio = time of jaxmg / time of the peer (below 1 "
            "is faster). Limit: the operations at the rate of matrix products on the same devices. "
            "Model: what jaxmg.plan expects."
        )
        if report.platform == "cpu":
            console.print(
                "CPU ratio: the same of the seconds that processors were at work, which other load "
                "on the machine hardly changes."
            )
    for remark in _remarks(report):
        console.print(remark, soft_wrap=True, markup=False, highlight=False)
    for verdict in report.verdicts:
        console.print(_sentence(verdict), soft_wrap=True)
    for remark in report.remarks:
        console.print(remark, soft_wrap=True, markup=False, style="red")


def seconds(value: float | None) -> str:
    """A time with three digits and a fitting unit."""
    if value is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def _table(report: Report) -> Table:
    unit, name = (1e12, "TF/s") if report.platform == "gpu" else (1e9, "GF/s")
    routine = report.results[0].case.routine
    table = Table(title=f"{routine} on {report.platform}", title_justify="left", box=SIMPLE_HEAD)
    left, right = {"overflow": "fold"}, {"justify": "right", "overflow": "fold"}
    for header, options in (
        ("n", right),
        ("dtype", left),
        ("devices", right),
        ("ours", left),
        ("time", right),
        (name, right),
        ("error", right),
        ("peer", left),
        ("time", right),
        ("ratio", right),
        *([("CPU ratio", right)] if report.platform == "cpu" else []),
        ("limit", right),
        ("model", right),
    ):
        table.add_column(header, **options)  # type: ignore[arg-type]
    for result in report.results:
        for row in _rows(result, unit, report.platform == "cpu"):
            table.add_row(*row)
        table.add_section()
    return table


def _rows(result: Result, unit: float, with_cpu: bool) -> list[list[str]]:
    """One row for each of ours and each of its peers; `with_cpu`: with the CPU ratio."""
    case = result.case
    rows = []
    for ours in (m for m in result.measurements if m.ours):
        rate = result.rate(ours)
        limit = result.limit_seconds
        part = f" ({limit / ours.best:.0%})" if limit and ours.best else ""
        error = f"{ours.backward_error:.1e}" if ours.backward_error is not None else "-"
        first = [str(case.n), case.dtype, str(case.devices), ours.solver, _time(ours)]
        first += [f"{rate / unit:.3g}" if rate else "-", error]
        peers: list[Measurement | None] = [*result.peers(ours.solver)]
        for k, peer in enumerate(peers or [None]):
            ratios = [result.ratio(ours.solver, peer.solver) if peer else None]
            if with_cpu:
                ratios.append(result.cpu_ratio(ours.solver, peer.solver) if peer else None)
            rows.append(
                (first if k == 0 else [""] * len(first))
                + ([peer.solver, _time(peer)] if peer else ["-", "-"])
                + [f"{ratio:.2f}" if ratio else "-" for ratio in ratios]
                + [seconds(limit) + part if k == 0 else ""]
                + [seconds(result.expected) if k == 0 else ""]
            )
    return rows


def _time(measurement: Measurement) -> str:
    """The best time, or in one word why there is none."""
    if measurement.best is not None:
        return seconds(measurement.best)
    return "failed" if measurement.failed else "skipped"


def _remarks(report: Report) -> list[str]:
    return [
        f"{result.case}: {m.solver}: {m.remark}"
        for result in report.results
        for m in result.measurements
        if m.remark
    ]


def _sentence(verdict: Verdict) -> str:
    t = verdict.target
    devices = "1 device" if t.devices == 1 else f"{t.devices} devices"
    head = f"{t.routine} n={t.n} {t.dtype}, {devices}: {t.solver} / {t.peer}"
    if verdict.ratio is None:
        return f"{head}: not measured (target <= {t.ratio:g})"
    more = f" after {1e3 * t.slack:g} ms" if t.slack else ""
    mark = "[green]met[/green]" if verdict.met else "[red]missed[/red]"
    cpu = "" if verdict.cpu_ratio is None else f", CPU seconds {verdict.cpu_ratio:.2f}"
    return f"{head} = {verdict.ratio:.2f} (target <= {t.ratio:g}{more}{cpu}): {mark}"
