"""The command group ``jaxmg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

import jaxmg
from jaxmg._arguments import PRECISIONS
from jaxmg._plan import scaling
from jaxmg._profile import describe, path_for, save
from jaxmg.bench import tuning
from jaxmg.bench.command import main as bench
from jaxmg.cli import devices
from jaxmg.cli.failure import Exit, Failure
from jaxmg.cli.loading import ACCEPTED
from jaxmg.cli.solve import library_errors, solve


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(jaxmg.__version__, prog_name="jaxmg")
def main() -> None:
    """Distributed dense linear algebra for JAX."""


main.add_command(solve)
main.add_command(bench, "bench")

_devices = click.option(
    "--devices",
    "count",
    type=click.IntRange(1, devices.MOST),
    help="Devices to use: GPUs, or virtual CPU devices where there are none.",
)


@main.command()
@_devices
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(count: int | None, as_json: bool) -> None:
    """Show versions, devices, links between them, and the libraries that were found."""
    devices.start(count)
    found = jaxmg.info()
    click.echo(json.dumps(dict(found), default=str, indent=2) if as_json else str(found))


@main.command()
@_devices
def selftest(count: int | None) -> None:
    """Run small problems of every routine and type on the devices that are here."""
    mesh = devices.start(count)
    with library_errors():
        outcome = jaxmg.selftest(mesh=mesh)
    click.echo(str(outcome))
    sys.exit(Exit.SUCCESS if outcome else Exit.NUMERICAL)


@main.command()
@click.argument("routine")
@click.argument("n", type=click.IntRange(min=0))
@click.option("--dtype", type=click.Choice(ACCEPTED), default="float64", show_default=True)
@click.option("--nrhs", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--tile", type=click.IntRange(min=1), help="Tile size (default: planned).")
@click.option(
    "--devices",
    "count",
    type=click.IntRange(1, devices.MOST),
    help="Devices to plan for; they need not be here (default: all that are).",
)
@click.option("--precision", type=click.Choice(PRECISIONS), help="Arithmetic, as of jaxmg.potrs.")
@click.option("--gpu", "platform", flag_value="gpu", help="For GPUs, also where there are none.")
@click.option("--scale", is_flag=True, help="Tabulate expected times for 1 to 64 devices.")
def plan(
    routine: str,
    n: int,
    dtype: str,
    nrhs: int,
    tile: int | None,
    count: int | None,
    precision: str | None,
    platform: str | None,
    scale: bool,
) -> None:
    """Say what ROUTINE would do and need for an N x N matrix; nothing is allocated."""
    devices.configure(count)
    options: dict[str, Any] = {"nrhs": nrhs, "T_A": tile, "precision": precision}
    options["platform"] = platform
    if scale:
        try:
            with library_errors():
                table = scaling(routine, n, dtype, **options)
        except (ValueError, TypeError) as error:
            raise Failure(str(error), Exit.USAGE) from error
        click.echo(table)
        return
    try:
        with library_errors():
            if platform and count is None:
                raise ValueError("--gpu: say for how many, with --devices.")
            planned = jaxmg.plan(routine, n, dtype, mesh=count, **options)
    except (ValueError, TypeError) as error:
        raise Failure(str(error), Exit.USAGE) from error
    click.echo(str(planned))
    sys.exit(Exit.SUCCESS if planned.fits is not False else Exit.MEMORY)


@main.command()
@_devices
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write (default: this machine's profile in the configuration folder).",
)
def tune(count: int | None, out: Path | None) -> None:
    """Measure this machine, for predicted times, tiles and the path of small problems.

    Takes a minute or less. Without it, `jaxmg plan` assumes H200 GPUs, or usual CPU cores.
    """
    mesh = devices.start(count)
    found = list(mesh.devices.flat)
    platform = "cpu" if found[0].platform == "cpu" else "cuda"
    path = out or path_for(platform)
    if path is None:
        raise Failure("JAXMG_PROFILE is empty: name a file with --out.", Exit.USAGE)
    with library_errors():
        profile = tuning.tune(found, tell=lambda text: click.echo(f"measuring {text}", err=True))
    try:
        save(profile, path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error}", Exit.OUTPUT) from error
    click.echo(describe(profile))
    click.echo(f"written: {path}")
