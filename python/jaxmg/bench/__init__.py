"""Benchmarks of this package against its peers, on the machine at hand.

From the shell, `jaxmg bench --help` or `python -m jaxmg.bench --help`; from Python:

    >>> import jaxmg.bench
    >>> report = jaxmg.bench.run("potrs", n=[4096], dtype=["float64"])  # doctest: +SKIP

Matrices are made on the devices (`jaxmg.bench.matrices`), errors are taken there
(`jaxmg.bench.residual`), and solvers take turns under the same clock (`jaxmg.bench.harness`).
"""

from jaxmg.bench.command import main
from jaxmg.bench.records import Case, Measurement, Report, Result
from jaxmg.bench.run import run

__all__ = ["Case", "Measurement", "Report", "Result", "main", "run"]
