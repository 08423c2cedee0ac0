"""The table of times to reach: every row can be measured, here on small matrices."""

import dataclasses

import pytest
from click.testing import CliRunner

from jaxmg.bench import goals
from jaxmg.bench.records import Report
from meshes import need_cpu

KINDS = {(g.work, g.dtype, g.devices, g.nrhs): g for g in goals.GOALS}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_row_is_measured(kind, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(goals.WORKS, "least_squares tall", goals._entry("least_squares", 20))
    monkeypatch.setattr(goals, "GOALS", [dataclasses.replace(KINDS[kind], n=32, must=100.0)])
    found = goals.run(repeats=1, platform="cpu")
    (result,) = found.results
    (measured,) = result.measurements
    assert measured.best is not None and not measured.failed, measured.remark
    assert measured.lapack_ratio < 25
    assert "met" in capsys.readouterr().out
    assert goals._table(found).row_count == 1
    found.save(tmp_path / "goals.json")
    assert Report.load(tmp_path / "goals.json").results[0].case == result.case


def test_rows_by_name():
    names = [str(goal) for goal in goals.GOALS]
    assert len(set(names)) == len(names)
    listed = CliRunner().invoke(goals.main, ["--list", "--only", "^syevd.*on one"])
    assert listed.exit_code == 0
    assert listed.output.split("\n")[:-1] == [
        f"syevd float64 {n} on one" for n in (8192, 16384, 32768)
    ]


def test_no_gpus_no_table():
    need_cpu("it would measure them all")
    refused = CliRunner().invoke(goals.main, ["--budget", "1"])
    assert refused.exit_code != 0 and "GPUs" in refused.output
