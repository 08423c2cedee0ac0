"""The benchmarks: their matrices, their measures of error, their bookkeeping, and a small run."""

from __future__ import annotations

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import jaxmg.bench
from jaxmg.bench import potrs, report
from jaxmg.bench.factorisations import ENTRIES
from jaxmg.bench.harness import Budget, Solver, measure
from jaxmg.bench.matrices import TestMatrix, make, make_right_hand_sides, row_mesh
from jaxmg.bench.records import Case, Measurement, Report, Result, Target
from jaxmg.bench.residual import Residual, residual_of, residual_of_generated
from jaxmg.bench.worker import Request

DTYPES = ["float32", "float64", "complex64", "complex128"]


def device_counts():
    present = len(jax.devices())
    return [count for count in (1, 2, 4, 8) if count <= present]


def mesh_of(count):
    return row_mesh(jax.devices()[:count])


# --- matrices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_is_hermitian_and_the_same_on_any_number_of_devices(dtype):
    matrix = TestMatrix(40, dtype, seed=3)
    whole = [np.asarray(make(matrix, mesh_of(count))) for count in device_counts()]
    assert whole[0].dtype == dtype
    assert np.array_equal(whole[0], whole[0].conj().T)
    for other in whole[1:]:
        assert np.array_equal(whole[0], other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_lies_on_its_devices_by_rows(dtype):
    mesh = mesh_of(device_counts()[-1])
    a = make(TestMatrix(8 * mesh.size, dtype), mesh)
    assert {shard.data.shape for shard in a.addressable_shards} == {(8, 8 * mesh.size)}
    assert len(a.sharding.device_set) == mesh.size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 100, 250])
def test_matrix_is_positive_definite(dtype, n):
    for seed in range(3):
        values = np.linalg.eigvalsh(np.asarray(make(TestMatrix(n, dtype, seed), mesh_of(1))))
        assert values[0] > 0.02 * values[-1]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_shift_is_just_beyond_the_semicircle(dtype):
    matrix = TestMatrix(300, dtype)
    values = np.linalg.eigvalsh(np.asarray(make(matrix, mesh_of(1)))) - matrix.shift
    radius = (matrix.shift - 1) / 1.074
    assert values[0] == pytest.approx(-radius, rel=0.08)
    assert values[-1] == pytest.approx(radius, rel=0.08)


@pytest.mark.parametrize("dtype", DTYPES)
def test_entries_are_uniform_and_independent(dtype):
    n = 512
    matrix = TestMatrix(n, dtype)
    a = np.asarray(make(matrix, mesh_of(1))) - matrix.shift * np.eye(n)
    below = a[np.tril_indices(n, -1)]
    parts = [below.real, below.imag] if np.iscomplexobj(a) else [below]
    for part in parts:
        assert np.abs(part).max() <= 0.5
        counts = np.histogram(part, bins=16, range=(-0.5, 0.5))[0]
        # Chi-square of 15 degrees of freedom: beyond 50 with probability 1e-5.
        expected = part.size / 16
        assert ((counts - expected) ** 2 / expected).sum() < 50
        for lag in (1, n // 2):
            correlation = np.corrcoef(part[:-lag], part[lag:])[0, 1]
            assert abs(correlation) < 5 / math.sqrt(part.size)


def test_float64_entries_use_all_their_bits():
    a = np.asarray(TestMatrix(64, "float64").rows(0, 64)) + 0.5
    assert np.unique(a[1:, 0] * 2.0**32 % 1).size > 60


def test_seeds_give_different_matrices_and_right_hand_sides():
    mesh = mesh_of(1)
    one, two = TestMatrix(16, "float64", 0), TestMatrix(16, "float64", 1)
    assert not np.array_equal(make(one, mesh), make(two, mesh))
    assert not np.array_equal(
        make_right_hand_sides(one, 2, mesh), make_right_hand_sides(two, 2, mesh)
    )


def test_matrix_is_made_in_float32_without_x64():
    matrix, wide = TestMatrix(16, "float32"), jax.config.jax_enable_x64
    try:
        made = []
        for x64 in (False, True):
            jax.config.update("jax_enable_x64", x64)
            made.append(np.asarray(matrix.rows(0, 16)))
    finally:
        jax.config.update("jax_enable_x64", wide)
    assert made[0].dtype == made[1].dtype == np.float32
    assert np.array_equal(*made)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_blocks_of_any_height_make_the_same_matrix(monkeypatch, rows):
    matrix = TestMatrix(16, "float64", seed=20 + rows)
    monkeypatch.setattr("jaxmg.bench.matrices.BLOCK_BYTES", rows * 16 * 8)
    mesh = mesh_of(1)
    assert np.array_equal(make(matrix, mesh), matrix.rows(0, 16))


def test_rows_that_do_not_divide_are_refused():
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    with pytest.raises(ValueError, match="nearest n that does is 8"):
        make(TestMatrix(9, "float32"), mesh_of(2))


# --- residuals -----------------------------------------------------------------------------------


def by_numpy(a, x, b):
    """Both measures, in the matrix's own shape and in double precision."""
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    eps = np.finfo(a.dtype).eps
    a, x, b = (np.asarray(v).astype(wide) for v in (a, x, b))
    backward, ratio = [], []
    for k in range(x.shape[1]):
        r = b[:, k] - a @ x[:, k]
        norm = np.linalg.norm
        below = norm(a, np.inf) * norm(x[:, k], np.inf) + norm(b[:, k], np.inf)
        backward.append(norm(r, np.inf) / below)
        ratio.append(norm(r, 1) / (len(a) * eps * norm(a, 1) * norm(x[:, k], 1)))
    return max(backward), max(ratio)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 8])
def test_residual_agrees_with_numpy(dtype, count, monkeypatch):
    if count > len(jax.devices()):
        pytest.skip(f"needs {count} devices")
    # Seven rows do not divide the shards: blocks overlap.
    monkeypatch.setattr("jaxmg.bench.matrices.BLOCK_BYTES", 7 * 120 * 16)
    mesh = mesh_of(count)
    matrix = TestMatrix(120, dtype, seed=count)
    a = make(matrix, mesh)
    b = make_right_hand_sides(matrix, 3, mesh)
    # Far from the solution, so that rounding does not hide a fault of the formula.
    x = jnp.asarray(np.linalg.solve(np.asarray(a), np.asarray(b)) * (1 + 1e-3) + 1e-3)
    expected = by_numpy(np.asarray(a), np.asarray(x), np.asarray(b))
    for found in (residual_of(a, x, b, mesh), residual_of_generated(matrix, x, b, mesh)):
        assert found.backward_error == pytest.approx(expected[0], rel=1e-4)
        assert found.lapack_ratio == pytest.approx(expected[1], rel=1e-4)


def test_residual_takes_the_row_sums_of_a_matrix_that_is_not_symmetric():
    a = np.arange(64.0).reshape(8, 8) ** 2
    x, b = np.ones((8, 1)), np.arange(8.0)[:, None]
    found = residual_of(jnp.asarray(a), jnp.asarray(x), jnp.asarray(b), mesh_of(1))
    assert (found.backward_error, found.lapack_ratio) == pytest.approx(by_numpy(a, x, b))


def test_residual_of_vectors_zeros_and_nan():
    mesh = mesh_of(1)
    matrix = TestMatrix(8, "float64")
    zero = jnp.zeros(8)
    assert residual_of_generated(matrix, zero, zero, mesh) == Residual(0.0, 0.0)
    found = residual_of_generated(matrix, zero.at[3].set(jnp.nan), zero, mesh)
    assert math.isnan(found.backward_error)


# --- harness and records -------------------------------------------------------------------------


def counted(name, made, **options):
    def prepare():
        made.append(name)
        return (jnp.ones(3),)

    return Solver(name, prepare, lambda v: v + 1, lambda x: Residual(0.0, 0.0), **options)


def test_solvers_take_turns_on_new_arguments():
    made = []
    solvers = [counted("jaxmg", made), counted("peer", made)]
    ours, peer = measure(solvers, dtype="float32", flops=1.0, repeats=3, budget=Budget())
    assert made == ["jaxmg", "peer"] * 4
    assert len(ours.times) == len(peer.times) == 3
    assert ours.best == min(ours.times)
    assert len(ours.cpu_times) == 3 and ours.best_cpu == min(ours.cpu_times)
    assert ours.backward_error == 0.0 and ours.first_call > 0


def test_failing_solver_is_reported_and_the_others_go_on():
    def fail():
        raise RuntimeError("no luck\nand a long explanation")

    solvers = [dataclasses.replace(counted("jaxmg", []), prepare=fail), counted("peer", [])]
    ours, peer = measure(solvers, dtype="float32", flops=1.0, repeats=2, budget=Budget())
    assert ours.failed and ours.best is None and ours.remark == "RuntimeError: no luck"
    assert len(peer.times) == 2 and not peer.failed


def test_result_that_is_not_finite_is_a_failure():
    solver = dataclasses.replace(counted("jaxmg", []), check=lambda x: Residual(math.nan, math.nan))
    (ours,) = measure([solver], dtype="float32", flops=1.0, repeats=1, budget=Budget())
    assert ours.failed and "not finite" in ours.remark


def test_what_does_not_fit_in_memory_or_time_is_skipped_and_says_so():
    budget = Budget(seconds=100.0)
    budget.learn("slow", "float32", flops=1.0, seconds=60.0)
    solvers = [counted("large", [], memory=1e18), counted("slow", []), counted("quick", [])]
    large, slow, quick = measure(solvers, dtype="float32", flops=1.0, repeats=1, budget=budget)
    assert large.remark.startswith("skipped: needs about 1000000000.0 GB")
    assert slow.remark.startswith("skipped: takes about 120 s")
    assert not large.failed and not slow.failed and not large.times and not slow.times
    assert quick.times and quick.remark is None
    (late,) = measure(
        [counted("quick", [])], dtype="float32", flops=1.0, repeats=1, budget=Budget(0.0)
    )
    assert late.remark == "skipped: the time budget is used up"


def test_operations_are_real_ones():
    assert potrs.flops(Case("potrs", 300, "float64", 1)) == 300**3 / 3 + 2 * 300**2
    real, complex_ = (potrs.flops(Case("potrs", 64, t, 1)) for t in ("float32", "complex64"))
    assert complex_ == 4 * real


def example():
    case = Case("potrs", 4096, "float64", 1)
    ours = Measurement("jaxmg", [2.0, 1.0, 3.0], 9.0, 1e-16, 1e-3, cpu_times=[1.5, 1.8, 1.6])
    peer = Measurement("scipy", [0.5, 0.8], 0.6, 1e-16, 1e-3, cpu_times=[1.2, 1.0])
    absent = Measurement("jax", remark="skipped: needs about 9.0 GB, there are 1.0 GB")
    broken = Measurement(
        "jaxmg donated", [1.0], failed=True, remark="X: [y]", lapack_ratio=math.nan
    )
    result = Result(case, 1e9, ("gemm float64", 1e10), [ours, broken, peer, absent])
    return Report(
        "cpu", {"n": [4096]}, {"1": {"jax": "x"}}, {"1": {"gemm float64": 1e10}}, [result]
    )


def test_ratios_and_targets():
    whole = example()
    (result,) = whole.results
    assert result.ratio("jaxmg", "scipy") == 2.0
    assert result.ratio("jaxmg", "jax") is None and result.ratio("jaxmg donated", "scipy") is None
    assert result.cpu_ratio("jaxmg", "scipy") == 1.5
    assert result.cpu_ratio("jaxmg", "jax") is None
    assert result.limit_seconds == pytest.approx(0.1)
    loose = Target("potrs", "cpu", 4096, "float64", 1, "jaxmg", "scipy", 2.5)
    whole.judge([loose, dataclasses.replace(loose, ratio=1.5), dataclasses.replace(loose, n=8)])
    assert [v.met for v in whole.verdicts] == [True, False]
    assert [v.cpu_ratio for v in whole.verdicts] == [1.5, 1.5]
    assert len(whole.missed) == 1
    assert whole.failed


def test_report_survives_json(tmp_path):
    whole = example()
    whole.judge(potrs.TARGETS)
    whole.save(tmp_path / "new" / "report.json")
    again = Report.load(tmp_path / "new" / "report.json")
    whole.results[0].measurements[1].lapack_ratio = None  # JSON has no NaN
    assert again == whole
    raw = json.loads((tmp_path / "new" / "report.json").read_text())
    assert raw["results"][0]["measurements"][0]["ratio"] == {"scipy": 2.0, "jax": None}
    assert raw["results"][0]["measurements"][0]["cpu_ratio"] == {"scipy": 1.5, "jax": None}


def test_table_names_what_was_skipped_and_what_failed(capsys):
    whole = example()
    whole.judge(potrs.TARGETS)
    report.show(whole, report.console())
    text = capsys.readouterr().out
    assert "2.00" in text and "1.0e-16" in text
    assert "jax: skipped: needs about 9.0 GB, there are 1.0 GB" in text
    assert "jaxmg donated: X: [y]" in text
    assert "jaxmg / scipy = 2.00 (target <= 1.25, CPU seconds 1.50): missed" in text
    assert "CPU ratio" in text
    whole.platform = "gpu"  # whose processors only enqueue
    report.show(whole, report.console())
    assert "CPU" not in capsys.readouterr().out.replace("CPU seconds", "")


def test_cases_come_in_order_of_size():
    request = Request("potrs", [64, 8], ["float64", "float32"], [], 1, [False])
    assert [(c.n, c.dtype) for c in request.cases()] == [
        (8, "float64"),
        (8, "float32"),
        (64, "float64"),
        (64, "float32"),
    ]


# --- runs ----------------------------------------------------------------------------------------


def test_small_run_end_to_end(tmp_path, capsys):
    devices = device_counts()[-1]
    whole = jaxmg.bench.run(
        "potrs",
        n=[16, 32],
        dtype=["float64"],
        against=["jax", "jax_sharded", "scipy"],
        devices=devices,
        repeats=2,
        limits=False,
        in_process=True,
        out=tmp_path,
    )
    assert not whole.failed
    assert [r.case.n for r in whole.results] == [16, 32]
    for result in whole.results:
        names = [m.solver for m in result.measurements]
        peers = ["jax", "jax_sharded", "scipy", "scipy overwriting"]
        assert names == ["jaxmg", "jaxmg donated", *peers]
        assert [m.solver for m in result.peers("jaxmg")] == peers[:3]
        assert [m.solver for m in result.peers("jaxmg donated")] == [*peers[:2], peers[3]]
        for m in result.measurements:
            eps = np.finfo(result.case.dtype).eps
            assert len(m.times) == 2 and m.backward_error < 4 * eps and m.lapack_ratio < 1
    (written,) = tmp_path.glob("potrs-*.json")
    assert Report.load(written) == whole
    assert str(devices) in json.loads(written.read_text())["environments"]
    assert "potrs on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"routine": "nothing"}, "accepted are potrs, potri"),
        ({"dtype": ["int8"]}, "accepted are float32"),
        ({"against": ["nobody"]}, "accepted are cusolvermg, jax"),
        ({"n": [0]}, "at least 1"),
        ({"repeats": 0}, "at least 1"),
        ({"n": [9], "devices": [2]}, "nearest n that does is 8"),
        ({"platform": "abacus"}, "accepted are 'cpu' and 'gpu'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        jaxmg.bench.run(**{"in_process": True, "out": None, **options})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="processes of a run would share the GPUs with this one"
)
def test_command_measures_in_processes_of_their_own(tmp_path):
    arguments = "--routine dispatch,potrs -n 64 --devices 1,4 --dtype float32 --repeats 1 --cpu"
    done = CliRunner().invoke(
        jaxmg.bench.main, [*arguments.split(), "--no-limits", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    written = {path.name.split("-")[0]: Report.load(path) for path in tmp_path.glob("*.json")}
    assert [r.case.devices for r in written["potrs"].results] == [1, 4]
    assert [len(e["devices"]) for e in written["potrs"].environments.values()] == [1, 4]
    names = [m.solver for m in written["dispatch"].results[0].measurements]
    assert names == ["jaxmg", "jaxmg jit", "jax"]


# --- other routines ------------------------------------------------------------------------------


@pytest.mark.parametrize("routine", ["potri", "mixed", "small"])
def test_small_run_of_other_routines(routine):
    count = min(2, len(jax.devices()))
    found = jaxmg.bench.run(
        routine,
        n=[64],
        dtype=["float64"],
        devices=[count],
        repeats=1,
        out=None,
        limits=False,
        in_process=True,
        **({} if routine == "small" else {"against": ["scipy", "jax_sharded"]}),
    )
    (result,) = found.results
    assert not found.failed
    names = [m.solver for m in result.measurements]
    expected = {
        "potri": ["jaxmg", "jaxmg donated", "scipy", "jax_sharded"],
        "mixed": ["jaxmg mixed", "jaxmg mixed donated", "jaxmg", "jaxmg donated", "scipy",
                  "scipy overwriting", "jax_sharded"],
        "small": ["jaxmg", "jax_gathered"],
    }  # fmt: skip
    assert names == expected[routine]
    for m in result.measurements:
        assert m.best is not None and m.best > 0, m.remark
        assert m.backward_error < 1e-12
    assert (result.expected is not None) == (routine == "potri")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.NAME)
def test_small_run_of_factorisations(entry):
    for dtype in ("float64", "complex128"):
        found = jaxmg.bench.run(
            entry.NAME,
            n=[32],
            dtype=[dtype],
            devices=[min(2, len(jax.devices()))],
            against=["jax", "scipy"] if dtype == "float64" else [],
            repeats=1,
            out=None,
            limits=False,
            in_process=True,
        )
        (result,) = found.results
        assert not found.failed, [m.remark for m in result.measurements]
        assert result.flops > 32**3 / 2
        for m in result.measurements:
            assert m.best is not None and m.best > 0, m.remark
            assert m.backward_error < 1e-12, m.solver


def test_errors_of_factorisations_are_seen():
    mesh = mesh_of(1)
    for entry in ENTRIES:
        (solver, *_) = entry.solvers(Case(entry.NAME, 16, "float64", 1), mesh, [], [False])
        good = solver.call(*solver.prepare())
        assert solver.check(good).backward_error < 1e-12
        bad = jax.tree.map(lambda x: x.at[(0,) * x.ndim].add(0.5), good)
        assert solver.check(bad).backward_error > 1e-5, entry.NAME


def test_a_target_with_slack_allows_for_it():
    case = Case("small", 64, "float64", 2)
    result = Result(case, 1.0, None, [Measurement("jaxmg", [3e-4]), Measurement("peer", [2e-4])])
    assert result.ratio("jaxmg", "peer") == pytest.approx(1.5)
    assert result.ratio("jaxmg", "peer", slack=1e-4) == pytest.approx(1.0)
    whole = Report("gpu", results=[result])
    whole.judge([Target("small", "gpu", 64, "float64", 2, "jaxmg", "peer", 1.1, slack=1e-4)])
    assert whole.verdicts[0].met


def test_command_prints_what_the_model_expects():
    done = CliRunner().invoke(
        jaxmg.bench.main, ["potrs", "--model", "--gpu", "--n", "65536", "--dtype", "float64"]
    )
    assert done.exit_code == 0, done.output
    assert "H200" in done.output and "efficiency" in done.output
    wrong = CliRunner().invoke(jaxmg.bench.main, ["dispatch", "--model"])
    assert wrong.exit_code == 1 and "potrs" in wrong.output
