"""What a benchmark is asked and what it says, and the JSON form of both."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "jaxmg"
"""Solvers whose name begins so are this package's; all others are peers."""

DONATED = " donated"
"""Ends the names of those of ours that overwrite the matrix."""

OVERWRITING = " overwriting"
"""Ends the name of a peer that overwrites the matrix, where there is one that keeps it as well."""


@dataclass(frozen=True)
class Case:
    """One problem that every solver is given.

    Attributes:
        routine: Name of the benchmark, such as "potrs".
        n: Order of the matrix.
        dtype: Name of the element type.
        devices: Number of devices that the rows are split over.
        nrhs: Number of right-hand sides.
        seed: Which random matrix.
    """

    routine: str
    n: int
    dtype: str
    devices: int
    nrhs: int = 1
    seed: int = 0

    def __str__(self) -> str:
        plural = "device" if self.devices == 1 else "devices"
        return f"{self.routine} n={self.n} {self.dtype}, {self.devices} {plural}"


@dataclass
class Measurement:
    """One solver on one case.

    Attributes:
        solver: Its name.
        times: Seconds of every timed call, in order.
        first_call: Seconds of the first call, which compiles.
        backward_error: See `jaxmg.bench.residual`. Taken after the first and the last round.
        lapack_ratio: Likewise.
        remark: Why it was left out or cut short, or how it failed.
        failed: It was tried and did not give a good answer.
        cpu_times: Seconds that all threads of the process were at work during every timed call.
    """

    solver: str
    times: list[float] = field(default_factory=list)
    first_call: float | None = None
    backward_error: float | None = None
    lapack_ratio: float | None = None
    remark: str | None = None
    failed: bool = False
    cpu_times: list[float] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """It is this package's."""
        return self.solver.startswith(OURS)

    @property
    def best(self) -> float | None:
        """Shortest time: what is compared, as it suffers least from other load."""
        return min(self.times) if self.times and not self.failed else None

    @property
    def best_cpu(self) -> float | None:
        """Least work of a call: other load on the machine makes it hardly more."""
        return min(self.cpu_times) if self.cpu_times and not self.failed else None

    @property
    def median(self) -> float | None:
        """Median time."""
        return statistics.median(self.times) if self.times and not self.failed else None


@dataclass
class Result:
    """All solvers on one case.

    Attributes:
        case: The problem.
        flops: Real floating-point operations that it takes.
        limit: Name and FLOP/s of the rate that it is held against, if one was measured.
        expected: Seconds that the cost model expects of ours, if it knows the routine.
        measurements: One for each solver.
    """

    case: Case
    flops: float
    limit: tuple[str, float] | None = None
    measurements: list[Measurement] = field(default_factory=list)
    expected: float | None = None

    def find(self, solver: str) -> Measurement | None:
        """The measurement of a solver, or None."""
        return next((m for m in self.measurements if m.solver == solver), None)

    def peers(self, ours: str) -> list[Measurement]:
        """Whom one of ours is compared with: of peers in both kinds, that which treats A alike."""
        found = [m for m in self.measurements if not m.ours]
        names = {m.solver for m in found}
        both = {name for name in names if name + OVERWRITING in names}
        overwrites = ours.endswith(DONATED)

        def alike(name: str) -> bool:
            if name.endswith(OVERWRITING):
                return overwrites or name.removesuffix(OVERWRITING) not in both
            return not (overwrites and name in both)

        return [m for m in found if alike(m.solver)]

    def rate(self, measurement: Measurement) -> float | None:
        """FLOP/s of the best call."""
        return self.flops / measurement.best if measurement.best else None

    def ratio(self, ours: str, peer: str, slack: float = 0.0) -> float | None:
        """Time of ours, less `slack` seconds, over time of a peer. None if one is missing."""
        a, b = self.find(ours), self.find(peer)
        if a is None or b is None or a.best is None or b.best is None:
            return None
        return max(0.0, a.best - slack) / b.best

    def cpu_ratio(self, ours: str, peer: str) -> float | None:
        """The same of the processors' seconds."""
        a, b = self.find(ours), self.find(peer)
        if a is None or b is None or a.best_cpu is None or not b.best_cpu:
            return None
        return a.best_cpu / b.best_cpu

    @property
    def limit_seconds(self) -> float | None:
        """Time in which the operations are done at the limit's rate."""
        return self.flops / self.limit[1] if self.limit and self.limit[1] > 0 else None


@dataclass(frozen=True)
class Target:
    """A ratio that ours / peer must not exceed.

    Attributes:
        routine: Benchmark it belongs to.
        platform: "cpu" or "gpu".
        n: Order of the matrix.
        dtype: Element type.
        devices: Number of devices.
        solver: Which of ours.
        peer: Against whom.
        ratio: Largest ratio of times accepted.
        slack: Seconds that ours may take beyond that.
    """

    routine: str
    platform: str
    n: int
    dtype: str
    devices: int
    solver: str
    peer: str
    ratio: float
    slack: float = 0.0

    def applies(self, case: Case) -> bool:
        """It is about this case."""
        return (self.routine, self.n, self.dtype, self.devices) == (
            case.routine,
            case.n,
            case.dtype,
            case.devices,
        )


@dataclass
class Verdict:
    """A target and what was measured; `ratio` is None if nothing was.

    `cpu_ratio`, of the processors' seconds, does not decide: it tells whether a ratio of times
    suffered from other load on the machine.
    """

    target: Target
    ratio: float | None
    cpu_ratio: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if it was not measured."""
        return None if self.ratio is None else self.ratio <= self.target.ratio


@dataclass
class Report:
    """A whole run.

    Attributes:
        platform: "cpu" or "gpu".
        arguments: What `jaxmg.bench.run` was asked.
        environments: Record of the machine and the software, one for each number of devices.
        limits: Measured rates in FLOP/s, by number of devices, then by name.
        results: One for each case.
        verdicts: Targets that this run can speak of.
        remarks: What went wrong with the run as a whole.
    """

    platform: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """One of our solvers failed, or the run did."""
        ours = (m for r in self.results for m in r.measurements if m.ours)
        return bool(self.remarks) or any(m.failed for m in ours)

    @property
    def missed(self) -> list[Verdict]:
        """Targets that were measured and not met."""
        return [v for v in self.verdicts if v.met is False]

    def judge(self, targets: list[Target]) -> None:
        """Fills `verdicts` with the targets that this platform and these cases can speak of."""
        self.verdicts = [
            Verdict(
                target,
                result.ratio(target.solver, target.peer, target.slack),
                result.cpu_ratio(target.solver, target.peer) if self.platform == "cpu" else None,
            )
            for target in targets
            if target.platform == self.platform
            for result in self.results
            if target.applies(result.case) and result.find(target.solver) is not None
        ]

    def save(self, path: Path) -> None:
        """Writes the report as JSON; derived figures (best, rates, ratios) are added."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".partial")
        draft.write_text(json.dumps(_plain(self), indent=1, allow_nan=False) + "\n")
        draft.replace(path)

    @staticmethod
    def load(path: Path) -> Report:
        """Reads what `save` wrote."""
        raw = json.loads(path.read_text())
        results = [
            Result(
                case=Case(**r["case"]),
                flops=r["flops"],
                limit=(r["limit"][0], r["limit"][1]) if r["limit"] else None,
                measurements=[_measurement(m) for m in r["measurements"]],
                expected=r.get("expected"),
            )
            for r in raw["results"]
        ]
        verdicts = [
            Verdict(Target(**v["target"]), v["ratio"], v.get("cpu_ratio")) for v in raw["verdicts"]
        ]
        rest = {k: raw[k] for k in ("platform", "arguments", "environments", "limits", "remarks")}
        return Report(results=results, verdicts=verdicts, **rest)


def _measurement(raw: dict[str, Any]) -> Measurement:
    names = {f.name for f in dataclasses.fields(Measurement)}
    return Measurement(**{k: v for k, v in raw.items() if k in names})


def _plain(report: Report) -> dict[str, Any]:
    raw = dataclasses.asdict(report)
    for result, r in zip(report.results, raw["results"], strict=True):
        r["limit_seconds"] = result.limit_seconds
        for measurement, m in zip(result.measurements, r["measurements"], strict=True):
            m["best"], m["median"] = measurement.best, measurement.median
            m["best_cpu"] = measurement.best_cpu
            m["flop_per_second"] = result.rate(measurement)
            if measurement.ours:
                peers = [p.solver for p in result.peers(measurement.solver)]
                m["ratio"] = {p: result.ratio(measurement.solver, p) for p in peers}
                m["cpu_ratio"] = {p: result.cpu_ratio(measurement.solver, p) for p in peers}
    for verdict, v in zip(report.verdicts, raw["verdicts"], strict=True):
        v["met"] = verdict.met
    return _finite(raw)


def _finite(value: Any) -> Any:
    """The same with NaN and infinity, which JSON lacks, written as null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
