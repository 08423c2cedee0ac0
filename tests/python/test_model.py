"""Predicted times, profiles of machines, and how they are measured."""

import dataclasses
import json
import math

import jax
import pytest

import jaxmg
from jaxmg import _layout, _memory, _model, _plan, _profile
from jaxmg.bench import tuning
from meshes import need, need_cpu

# Seconds on H200, as in bench/results.
MEASURED = [
    ("float64", False, 2, 16384, 512, 0.0334),
    ("float64", False, 2, 32768, 1024, 0.146),
    ("float64", False, 2, 65536, 1024, 1.08),
    ("float32", True, 2, 16384, 512, 0.0286),
    ("float32", True, 2, 32768, 1024, 0.085),
    ("float32", True, 2, 65536, 1024, 0.389),
    ("float32", True, 2, 131072, 1024, 2.54),
    ("float32", True, 1, 65536, 1024, 0.666),
    ("complex64", True, 2, 32768, 512, 0.1915),
    ("complex64", True, 2, 65536, 512, 1.213),
]
# The same of LU, float64 on two of them.
LU = [(16384, 512, 0.068), (32768, 1024, 0.311), (65536, 1024, 2.08)]


@pytest.mark.parametrize(("dtype", "split", "ranks", "n", "tile", "seconds"), MEASURED)
def test_times_on_h200(dtype, split, ranks, n, tile, seconds):
    found = _model.estimate("potrs", n, dtype, ranks, tile, _profile.H200, split=split)
    assert 0.85 < found.total / seconds < 1.15


@pytest.mark.parametrize(("n", "tile", "seconds"), LU)
def test_times_of_lu_on_h200(n, tile, seconds):
    found = _model.estimate("lu_solve", n, "float64", 2, tile, _profile.H200)
    assert 0.8 < found.total / seconds < 1.2


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("routine", _memory.STAGES)
def test_times_grow_with_the_problem(platform, routine):
    profile = _profile.default(platform)

    def seconds(n, dtype="float64", ranks=4):
        return _model.estimate(routine, n, dtype, ranks, 256, profile).total

    times = [seconds(n) for n in (0, 1, 1000, 10_000, 100_000)]
    assert times == sorted(times) and times[0] > 0
    assert seconds(50_000, "complex128") > seconds(50_000)


def test_more_gpus_are_faster_up_to_the_chain_of_panels():
    times = [
        _model.estimate("potrs", 65536, "float64", g, 1024, _profile.H200) for g in (1, 2, 4, 8, 64)
    ]
    assert times[0].total > 1.8 * times[1].total > 1.5 * times[2].total
    shares = [t.communication_share for t in times]
    assert shares == sorted(shares) and shares[0] == 0 and 0 < shares[-1] < 1


def test_tiles():
    tiles = [_model.best_tile(n, "float64", 2, _profile.H200) for n in (256, 4096, 16384, 131072)]
    assert tiles == sorted(tiles) and tiles[0] <= 128 and tiles[-1] == 1024
    assert _model.best_tile(3, "float64", 8, _profile.H200) == 1


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A profile file that this process uses."""
    path = tmp_path / "profile.json"
    monkeypatch.setenv(_profile.VARIABLE, str(path))
    caches = (_profile.present, _layout.resolve_plan)
    for cached in caches:
        cached.cache_clear()
    yield path
    for cached in caches:
        cached.cache_clear()


def test_a_measured_profile_chooses_tiles(stored):
    need_cpu("the profile is one of a CPU")
    before = jaxmg.plan("potrs", 2048, "float64", mesh=2)
    assert "assumed" in before.seconds_source
    # A machine on which a step costs as good as nothing, and wide tiles all the more.
    slow = {
        name: dataclasses.replace(a, tile_seconds=10.0, half_inner=1e-3)
        for name, a in _profile.CPU.arithmetic.items()
    }
    odd = dataclasses.replace(
        _profile.CPU, arithmetic=slow, step_seconds=1e-9, exchange_seconds=1e-9, measured=True
    )
    _profile.save(odd, stored)
    after = jaxmg.plan("potrs", 2048, "float64", mesh=2)
    assert "measured" in after.seconds_source
    assert after.tile == 32 < before.tile
    assert _layout.resolve_plan(_layout.Layout(), 2048, "float64").tile == 32
    assert jaxmg.plan("potrs", 2048, "float64", mesh=2, T_A=64).tile == 64


def test_profiles_as_files(stored):
    _profile.save(_profile.H200, stored)
    assert _profile.Profile.from_json(json.loads(stored.read_text())) == _profile.H200
    assert _profile.present("cpu") == _profile.default("cpu")  # it is one of GPUs
    for text in ("{", "[]", "{}", '{"arithmetic": {}}'):
        stored.write_text(text)
        _profile.present.cache_clear()
        with pytest.warns(jaxmg.JaxMgWarning, match="jaxmg tune"):
            assert _profile.present("cpu") == _profile.default("cpu")


def test_where_profiles_are(monkeypatch, tmp_path):
    monkeypatch.delenv(_profile.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert _profile.path_for("cpu").parent == tmp_path / "jaxmg"
    monkeypatch.setenv(_profile.VARIABLE, "")
    assert _profile.path_for("cpu") is None


def test_tune(monkeypatch):
    need(2)
    small = tuning._Sizes((32, 64), (16, 32), (64, 8), 128, 1 << 16)
    platform = "cpu" if jax.default_backend() == "cpu" else "cuda"
    monkeypatch.setitem(tuning._SIZES, platform, small)
    told = []
    profile = tuning.tune(jax.devices()[:2], told.append, seconds=0.01)
    assert profile.measured and profile.platform == platform
    assert {"float32", "float64", "complex64", "complex128"} <= set(profile.arithmetic)
    assert profile == _profile.Profile.from_json(profile.to_json())  # all of them positive
    numbers = [v for a in profile.arithmetic.values() for v in dataclasses.astuple(a)]
    assert all(math.isfinite(v) and v >= 0 for v in numbers)
    assert "link" in told and any("complex64" in line for line in told)
    text = _profile.describe(profile)
    for word in ("measured", "float64", "GB/s", "step", "exchange"):
        assert word in text


def test_scaling_table():
    text = _plan.scaling("potrs", 8192, "float64", counts=(1, 2, 8), precision="mixed")
    rows = text.splitlines()[2:]
    assert [int(row.split()[0]) for row in rows] == [1, 2, 8]
    assert "one device" in rows[0] and "distributed" in rows[2]
