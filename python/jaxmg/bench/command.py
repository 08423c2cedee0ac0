"""The command `jaxmg bench`, also `python -m jaxmg.bench`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from jaxmg._memory import STAGES
from jaxmg._plan import scaling
from jaxmg.bench.records import Report
from jaxmg.bench.routines import ROUTINES
from jaxmg.bench.run import DTYPES, RESULTS, run

_PEERS = sorted({peer for routine in ROUTINES.values() for peer in routine.PEERS})


class _Listed(click.ParamType):
    """Values with commas between them."""

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list:
        if isinstance(value, list):
            return value
        return [self.kind.convert(v.strip(), param, ctx) for v in str(value).split(",") if v]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"{self.kind.name.upper()},..."


def _show_model(
    routines: list[str],
    orders: list[int] | None,
    dtypes: list[str] | None,
    nrhs: int,
    platform: str | None,
) -> None:
    """Prints a table of expected times for each routine, order and type."""
    known = [routine for routine in routines if routine in STAGES]
    if not known:
        raise click.ClickException(
            f"the cost model knows nothing of {', '.join(routines)}; it knows {', '.join(STAGES)}."
        )
    for routine in known:
        chosen = ROUTINES[routine].defaults(platform or "gpu", 1)
        for n in orders or chosen["n"]:
            for dtype in dtypes or chosen["dtype"]:
                table = scaling(routine, n, dtype, nrhs=nrhs, platform=platform)
                click.echo(table + "\n")


@click.command(
    name="bench",
    epilog="""
    \b
    Default on CPU: n = 4096, float64, on 1 and on 8 virtual devices,
      against scipy and jax_sharded.
    Default on GPU: n = 8192 ... 131072 as fits, float32 and float64, on all
      GPUs, against jax and cusolvermg.
    """,
)
@click.argument("names", nargs=-1, type=click.Choice([*ROUTINES]), metavar="[ROUTINE]...")
@click.option(
    "--routine",
    "routines",
    type=_Listed(click.Choice([*ROUTINES])),
    default="dispatch,potrs",
    show_default=True,
    help=f"What to time, if no ROUTINE is named: {', '.join(ROUTINES)}.",
)
@click.option(
    "-n", "--n", "orders", type=_Listed(click.IntRange(min=1)), help="Orders of the matrix."
)
@click.option(
    "--dtype", "dtypes", type=_Listed(click.Choice(DTYPES)), help=f"Types: {', '.join(DTYPES)}."
)
@click.option(
    "--against",
    type=_Listed(click.Choice([*_PEERS, "none"])),
    help=f"Peers: {', '.join(_PEERS)}, or none.",
)
@click.option(
    "--devices",
    type=_Listed(click.IntRange(min=1)),
    help="Numbers of devices (on the CPU: virtual ones), one process each.",
)
@click.option(
    "--donate",
    type=click.Choice(["no", "yes", "both"]),
    default="both",
    show_default=True,
    help="Let the call overwrite the matrix.",
)
@click.option("--nrhs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Timed calls of each solver, after one that compiles.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds for the whole run; what would not fit is skipped and marked in the table.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of every CPU solver. [default: all]"
)
@click.option("--cpu", "platform", flag_value="cpu", help="Time on the CPU.")
@click.option("--gpu", "platform", flag_value="gpu", help="Time on GPUs; fail if there are none.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="Folder for the JSON files and plots.",
)
@click.option("--no-plot", is_flag=True, help="Draw no plots.")
@click.option(
    "--trace",
    is_flag=True,
    help="Record one more call of ours for each case: a picture of what each device did when, "
    "and a file for ui.perfetto.dev.",
)
@click.option("--no-limits", is_flag=True, help="Do not measure the machine's limits.")
@click.option(
    "--model", is_flag=True, help="Print expected times for 1 to 64 devices; time nothing."
)
@click.option("--check", is_flag=True, help="Exit with 2 if a target is missed.")
def main(
    names: tuple[str, ...],
    routines: list[str],
    orders: list[int] | None,
    dtypes: list[str] | None,
    against: list[str] | None,
    devices: list[int] | None,
    donate: str,
    nrhs: int,
    repeats: int,
    budget: float | None,
    threads: int | None,
    platform: str | None,
    out: Path,
    no_plot: bool,
    trace: bool,
    no_limits: bool,
    model: bool,
    check: bool,
) -> None:
    """Time jaxmg against its peers on this machine.

    Prints a table (time, peer, ratio, limit, error), and writes all that was measured as JSON, with
    plots if matplotlib is installed. Lists are given with commas: -n 4096,8192.
    """
    routines = list(names) or routines
    if model:
        _show_model(routines, orders, dtypes, nrhs, platform)
        return
    reports: list[Report] = []
    begin = time.monotonic()
    for routine in routines:
        left = None if budget is None else max(0.0, budget - (time.monotonic() - begin))
        try:
            reports.append(
                run(
                    routine,
                    n=orders if routine != "dispatch" else None,
                    dtype=dtypes,
                    against=[p for p in against if p != "none"] if against is not None else None,
                    devices=devices if routine != "dispatch" else None,
                    donate={"no": False, "yes": True, "both": None}[donate],
                    nrhs=nrhs,
                    repeats=repeats,
                    budget=left,
                    threads=threads,
                    platform=platform,
                    out=out,
                    plot=not no_plot,
                    limits=not no_limits,
                    trace=trace,
                )
            )
        except (ValueError, RuntimeError) as error:
            raise click.ClickException(str(error)) from error
    if any(report.failed for report in reports):
        raise SystemExit(1)
    if check and any(report.missed for report in reports):
        raise SystemExit(2)
