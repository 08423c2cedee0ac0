"""Records of what the devices of a call did, and when."""

import json

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import jaxmg
from jaxmg import _tasks
from jaxmg.bench import trace
from matrices import spd
from meshes import line, put

N, T_A = 96, 8


@pytest.fixture(scope="module", params=[1, 4])
def recorded(request):
    """Tasks of one solution on so many devices, with tiles of T_A."""
    mesh = line(request.param)
    a = jax.block_until_ready(put(spd(N), mesh, "x", None))
    with trace.record() as tasks:
        jax.block_until_ready(jaxmg.potrs(a, np.ones(N), T_A=T_A))
    return request.param, tasks


def of(tasks, kind):
    return [t for t in tasks if t.task == kind]


def test_every_panel_is_made_once_by_the_device_that_has_it(recorded):
    devices, tasks = recorded
    panels = sorted(of(tasks, "panel"), key=lambda t: t.step)
    assert [t.step for t in panels] == list(range(N // T_A))
    assert [t.rank for t in panels] == [k % devices for k in range(N // T_A)]
    assert len({t.call for t in panels}) == 1


def test_updates_follow_their_panel(recorded):
    _, tasks = recorded
    made = {t.step: t.end for t in of(tasks, "panel")}
    updates = of(tasks, "update")
    assert updates
    for update in updates:
        assert update.begin < update.end
        assert update.end >= made[update.step]


def test_panels_arrive_at_all_others(recorded):
    devices, tasks = recorded
    arrivals = {(t.step, t.rank) for t in of(tasks, "arrival")}
    steps = range(N // T_A)
    assert arrivals == {(k, r) for k in steps for r in range(devices) if r != k % devices}


def test_nothing_is_recorded_unless_asked_for():
    mesh = line(1)
    a = put(spd(N), mesh, "x", None)
    with trace.record() as before:
        pass
    jax.block_until_ready(jaxmg.potrs(a, np.ones(N)))
    assert before == [] and _tasks.take_tasks() == []


def test_more_tasks_than_one_look_takes():
    n = 640
    a = jax.block_until_ready(put(spd(n), line(1), "x", None))
    with trace.record() as tasks:
        jax.block_until_ready(jaxmg.potrs(a, np.ones(n), T_A=1))
    assert len(tasks) > 2000
    assert sorted(t.step for t in of(tasks, "panel")) == list(range(n))


def test_an_unfinished_call_is_no_trouble():
    bad = -np.eye(N)
    with trace.record() as tasks:
        with pytest.raises(jaxmg.NotPositiveDefiniteError):
            jaxmg.potrs(put(bad, line(1), "x", None), np.ones(N), check=True)
    assert all(t.begin < t.end for t in tasks)


def test_files(recorded, tmp_path):
    devices, tasks = recorded
    trace.save(tasks, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(events) == len(tasks)
    assert {e["pid"] for e in events} == set(range(devices))
    assert min(e["ts"] for e in events) == 0 and all(e["dur"] > 0 for e in events)
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    assert trace.draw(tasks, tmp_path / "t.png", "title")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert not trace.draw([], tmp_path / "none.png")


def test_the_benchmark_draws_one_call_a_case(tmp_path):
    import jaxmg.bench

    arguments = "potrs -n 64 --dtype float64 --devices 1 --against none --repeats 1 --no-limits"
    done = CliRunner().invoke(
        jaxmg.bench.main, [*arguments.split(), "--trace", "--no-plot", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "trace-potrs-64-float64-1.json").exists()
