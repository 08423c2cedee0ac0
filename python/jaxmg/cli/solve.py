"""``jaxmg solve``: A x = b for matrices in files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import click
import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import errors
from jaxmg.cli import devices, loading, output
from jaxmg.cli.failure import Exit, Failure
from jaxmg.cli.pieces import Source
from jaxmg.cli.residual import ACCEPTED_RATIO, residual
from jaxmg.cli.sources import open_source

EXIT_CODES = """Exit codes: 0 solved; 2 bad options; 3 bad input; 4 numerical failure (not positive
definite, not Hermitian, inaccurate); 5 too large; 6 output cannot be written; 1 anything else."""


@click.command(epilog=EXIT_CODES)
@click.argument("a_file", metavar="A")
@click.argument("b_file", metavar="B")
@click.option(
    "-o",
    "--output",
    "x_file",
    type=click.Path(path_type=Path),
    required=True,
    help="File for x: .npy, .npz or .mtx.",
)
@click.option("--dtype", type=click.Choice(loading.ACCEPTED), help="Solve in this type.")
@click.option(
    "--devices",
    "count",
    type=click.IntRange(1, devices.MOST),
    help="Devices to use: GPUs, or virtual CPU devices where there are none.",
)
@click.option(
    "--lower/--upper",
    "lower",
    default=None,
    help="Read this triangle of A only (default: all of A).",
)
@click.option("--tile", type=click.IntRange(min=1), help="Tile size (default: planned).")
@click.option(
    "--in-place",
    is_flag=True,
    help="Let the factor overwrite A on the devices: half the memory, but the file is read twice.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def solve(
    a_file: str,
    b_file: str,
    x_file: Path,
    dtype: str | None,
    count: int | None,
    lower: bool | None,
    tile: int | None,
    in_place: bool,
    quiet: bool,
) -> None:
    """Solve A x = b, A Hermitian positive definite, with the rows of A spread over devices.

    A and B are .npy, .npz (FILE.npz:KEY names an array), .mtx or .mtx.gz files. Matrices are read
    piece by piece into the device that owns the rows.
    """
    a_source = open_source(a_file, "A")
    b_source = open_source(b_file, "b")
    loading.check_shapes(a_source, b_source)
    kind = loading.solve_dtype(a_source, b_source, dtype)
    with output.Output(x_file) as file:
        mesh = devices.start(count)
        b = loading.load_right_hand_side(b_source, mesh, kind)
        a, load_seconds = _load(a_source, mesh, kind, lower, quiet)
        x, solve_seconds = _solve(a, b, mesh, a_source.shape[0], lower, tile, in_place, quiet)
        if in_place:
            a, _ = _load(a_source, mesh, kind, lower, quiet)
        with output.stage("checking", quiet):
            error = residual(a, x, b, mesh, lower)
        file.write(np.asarray(x))
    output.report(
        [
            ("A", f"{a_source.name}: {a_source.shape[0]} x {a_source.shape[1]} {kind}"),
            ("b", f"{b_source.name}: {' x '.join(map(str, b_source.shape))}"),
            ("devices", devices.describe(mesh)),
            ("load", f"{load_seconds:.3f} s"),
            ("solve", f"{solve_seconds:.3f} s (with compilation)"),
            ("backward error", f"{error.backward_error:.2e}"),
            ("residual", f"{error.lapack_ratio:.2g} n eps |A| |x|"),
            ("x", str(x_file)),
        ],
        quiet,
    )
    if not error.lapack_ratio <= ACCEPTED_RATIO:  # NaN is not accepted either
        raise Failure(
            f"the residual is {error.lapack_ratio:.3g} n eps |A| |x|; {ACCEPTED_RATIO:g} was "
            f"expected at most. {x_file} was written all the same.",
            Exit.NUMERICAL,
        )


def _load(
    source: Source, mesh: Mesh, dtype: np.dtype, lower: bool | None, quiet: bool
) -> tuple[jax.Array, float]:
    begin = time.perf_counter()
    with output.stage(f"reading {source.name}", quiet) as progress:
        a = loading.load_matrix(source, mesh, dtype, lower, progress)
        a.block_until_ready()
    return a, time.perf_counter() - begin


def _solve(
    a: jax.Array,
    b: jax.Array,
    mesh: Mesh,
    n: int,
    lower: bool | None,
    tile: int | None,
    donate: bool,
    quiet: bool,
) -> tuple[jax.Array, float]:
    begin = time.perf_counter()
    with output.progress(quiet), library_errors():
        x = jaxmg.potrs(
            a,
            b,
            tile,
            mesh=mesh,
            in_specs=(P(devices.AXIS, None), P()),
            lower=lower,
            donate=donate,
            check=True,
            n=n,
        )
        x.block_until_ready()
    return x, time.perf_counter() - begin


@contextlib.contextmanager
def library_errors() -> Iterator[None]:
    """Turns the library's errors into exit codes."""
    try:
        yield
    except errors.NotPositiveDefiniteError as error:
        raise Failure(
            f"A is not positive definite: its leading minor of order {error.index} is not.",
            Exit.NUMERICAL,
        ) from error
    except errors.InsufficientMemoryError as error:
        raise Failure(str(error), Exit.MEMORY) from error
    except errors.NonFiniteInputError as error:
        raise Failure(str(error), Exit.INPUT) from error
    except errors.JaxMgError as error:
        raise Failure(str(error), Exit.NUMERICAL) from error
