"""Plots of a report: time and rate against n, with the limits drawn in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxmg.bench.records import Report, Result


def draw(report: Report, stem: Path) -> list[Path]:
    """Draws one PNG for each element type and number of devices that has two sizes or more.

    Args:
        report: What was measured.
        stem: Path of the files, without "-dtype-devices.png".

    Returns:
        The files written; none without matplotlib.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError:
        return []
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in report.results:
        groups.setdefault((result.case.dtype, result.case.devices), []).append(result)
    written = []
    for (dtype, devices), results in groups.items():
        if len({r.case.n for r in results}) < 2:
            continue
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        times, rates = figure.subplots(1, 2)
        _curves(times, rates, results, report)
        kind = results[0].case.routine
        plural = "device" if devices == 1 else "devices"
        figure.suptitle(f"{kind}, {dtype}, {devices} {plural} ({report.platform})")
        path = stem.with_name(f"{stem.name}-{dtype}-{devices}.png")
        figure.savefig(path, dpi=130)
        written.append(path)
    return written


def _curves(times: Any, rates: Any, results: list[Result], report: Report) -> None:
    unit, name = (1e12, "TF/s") if report.platform == "gpu" else (1e9, "GF/s")
    solvers = dict.fromkeys(m.solver for r in results for m in r.measurements)
    for solver in solvers:
        found = [(r, m) for r in results if (m := r.find(solver)) is not None and m.best]
        if not found:
            continue
        n = [r.case.n for r, _ in found]
        style = "o-" if found[0][1].ours else "s--"
        times.plot(n, [m.best for _, m in found], style, label=solver)
        rates.plot(n, [(r.rate(m) or 0.0) / unit for r, m in found], style, label=solver)
    limited = [r for r in results if r.limit_seconds]
    if limited:
        n = [r.case.n for r in limited]
        times.plot(n, [r.limit_seconds for r in limited], "k:", label="limit")
    case = results[0].case
    for label, rate in report.limits.get(str(case.devices), {}).items():
        if label.endswith(f" {case.dtype}") or (label == "f16x3" and "32" in case.dtype):
            rates.axhline(rate / unit, color="black", linestyle=":", linewidth=1)
            rates.annotate(label, (n[0] if limited else case.n, rate / unit), va="bottom")
    for axes, label in ((times, "seconds"), (rates, name)):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("n")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    times.set_yscale("log")
    rates.set_ylim(bottom=0)
