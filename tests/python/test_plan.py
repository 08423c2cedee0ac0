"""Plans, memory refusals, information and the self-test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _device_memory, _memory, _native, _selftest, errors
from meshes import line, need


@pytest.mark.parametrize("n", [0, 1, 7, 46340, 46341, 65535, 65536, 1 << 20])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_sizes_are_64_bits_wide(n, dtype):
    plan = jaxmg.plan("potrs", n, dtype, nrhs=3, mesh=8)
    size = np.dtype(dtype).itemsize
    matrix = -(-n // 8) * n * size
    assert plan.bytes_by_purpose["matrix"] == matrix
    assert plan.bytes_needed >= matrix
    assert plan.bytes_needed_with_copy == plan.bytes_needed + matrix
    assert plan.flops >= float(n) ** 3 / 3


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_largest_n_is_the_largest_that_fits(ranks):
    plan = jaxmg.plan("potrs", 100, "float64", mesh=ranks)
    best = plan.largest_n
    assert best > 0
    assert jaxmg.plan("potrs", best, "float64", mesh=ranks).fits
    assert not jaxmg.plan("potrs", best + 1, "float64", mesh=ranks).fits


def test_tiles_are_smaller_where_memory_is_short(monkeypatch):
    size = 4 * 10**9
    monkeypatch.setattr(_device_memory, "device_bytes", lambda platform: (size, "a test"))

    def plan(n):
        return jaxmg.plan("potrs", n, "float32", mesh=2, platform="gpu")

    roomy = plan(30_000)
    assert roomy.fits and roomy.tile == 1024
    best = roomy.largest_n
    short = plan(best)
    assert short.fits and short.tile < 1024
    assert short.bytes_by_purpose["matrix"] > 0.9 * size
    assert not plan(best + 100).fits
    chosen = jaxmg.plan("potrs", best, "float32", mesh=2, platform="gpu", T_A=1024)
    assert chosen.tile == 1024 and not chosen.fits


@pytest.mark.parametrize("routine", ["potrs", "lu_solve"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_32_bits_are_split_on_gpus_unless_highest_is_asked_for(routine, dtype):
    def plan(precision, platform="gpu"):
        return jaxmg.plan(routine, 65536, dtype, mesh=2, platform=platform, precision=precision)

    narrow = dtype in ("float32", "complex64")
    for found, split in (
        (plan("default"), narrow),
        (plan("highest"), False),
        (plan("default", "cpu"), False),
    ):
        assert found.arithmetic == (f"{dtype}, by half-precision parts" if split else dtype)
        assert ("split_even" in found.bytes_by_purpose) == split
    assert (plan("default").seconds.total < plan("highest").seconds.total / 2) == narrow


def test_complex_tiles_by_parts_are_smaller_where_memory_is_short(monkeypatch):
    size = 4 * 10**9
    monkeypatch.setattr(_device_memory, "device_bytes", lambda platform: (size, "a test"))

    def plan(n):
        return jaxmg.plan("potrs", n, "complex64", mesh=2, platform="gpu")

    assert plan(20_000).tile == 512
    short = plan(plan(20_000).largest_n)
    assert short.fits and short.tile == 256
    assert short.bytes_by_purpose["matrix"] > 0.85 * size


def test_scratch_is_small_beside_the_matrix():
    need(8)
    plan = jaxmg.plan("potrs", 100_000, "float64", mesh=8)
    assert plan.bytes_needed < 1.1 * plan.bytes_by_purpose["matrix"]


def test_plan_prints_as_a_table():
    text = str(jaxmg.plan("potrs", 4096, "float32", mesh=line(4), T_A=64))
    for word in ("potrs", "4096", "float32", "4 devices", "tile", "matrix", "fits", "largest n"):
        assert word in text
    assert "64" in text


def test_tile_is_the_one_asked_for():
    assert jaxmg.plan("potrs", 4096, "float32", mesh=4, T_A=64).tile == 64
    assert jaxmg.plan("potrs", 16, "float32", mesh=4, T_A=64).tile == 4


def test_plan_takes_the_context_mesh():
    need(8)
    assert jaxmg.plan("potrf", 64, "float64").devices == 8
    with jax.set_mesh(line(2)):
        assert jaxmg.plan("potrf", 64, "float64").devices == 2


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        (("qz", 4, "float32"), ValueError, "routine"),
        (("potrs", 4, "float16"), TypeError, "dtype"),
        (("potrs", -1, "float32"), ValueError, "n: got -1"),
    ],
)
def test_arguments_of_plan(arguments, error, name):
    with pytest.raises(error, match=name):
        jaxmg.plan(*arguments)


def test_too_large_is_refused_before_anything_is_allocated(mesh):
    need(8)
    n = 1_000_000
    a = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=NamedSharding(mesh, P("x", None)))
    b = jax.ShapeDtypeStruct((n, 1), jnp.float64, sharding=NamedSharding(mesh, P()))
    with pytest.raises(jaxmg.InsufficientMemoryError) as caught:
        jax.jit(jaxmg.potrs).lower(a, b)
    error = caught.value
    assert error.needed > error.free > 0
    assert 0 < error.largest_n < n
    for word in (str(n), "float64", "GiB", "8 devices", str(error.largest_n)):
        assert word in str(error)


def test_warning_when_nearly_full(monkeypatch, mesh):
    needed = jaxmg.plan("potrs", 16384, "float64", mesh=mesh).bytes_needed
    monkeypatch.setattr(_memory, "available", lambda *_: (int(needed / 0.97), "test"))

    def lower(n):
        a = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=NamedSharding(mesh, P("x")))
        b = jax.ShapeDtypeStruct((n, 1), jnp.float64, sharding=NamedSharding(mesh, P()))
        jax.jit(jaxmg.potrs).lower(a, b)

    with pytest.raises(jaxmg.InsufficientMemoryError):
        lower(20000)
    with pytest.warns(jaxmg.JaxMgWarning, match="16384"):
        lower(16384)


def test_info():
    need(8)
    info = jaxmg.info()
    assert info["devices"]["count"] == 8
    assert info["versions"]["jax"] == jax.__version__
    assert info["backends"]["native cpu"]["available"]
    text = str(info)
    for word in ("versions", "devices", "backends", "engine", "links"):
        assert word in text
    if not _native.CUDA.loaded:
        assert info["backends"]["native cuda"]["reason"]


def test_selftest_names_what_fails(monkeypatch):
    """Checks that pass are run by the command (test_cli.py)."""

    def fail(*arguments):
        raise ValueError("wrong")

    checks = ("solve", "factor", "general", "qr", "spectral", "status", "cyclic")
    for name in checks:
        monkeypatch.setattr(_selftest, f"_{name}_check", lambda mesh, dtype: f"{mesh.size} devices")
    assert jaxmg.selftest(line(3))
    for name in checks:
        with monkeypatch.context() as changed:
            changed.setattr(_selftest, f"_{name}_check", fail)
            outcome = jaxmg.selftest(line(3))
        assert not outcome
        assert [c.detail for c in outcome.checks if not c.passed] == 4 * ["ValueError: wrong"]
        assert "4 failed" in str(outcome)


def test_library_that_is_missing_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(_native, "library_folders", lambda: [tmp_path])
    library = _native._load("cpu", "libjaxmg_engine", "libjaxmg_ffi")
    assert not library.loaded
    assert "libjaxmg_engine.so" in library.failure
    assert str(tmp_path) in library.failure
    monkeypatch.setattr(_native, "CPU", library)
    with pytest.raises(jaxmg.BackendUnavailableError, match=r"libjaxmg_engine\.so"):
        _native.require("cpu")


def test_library_that_cannot_be_loaded_is_reported(monkeypatch, tmp_path):
    for name in ("libjaxmg_engine.so", f"libjaxmg_ffi_{_native.ffi_generation()}.so"):
        (tmp_path / name).write_bytes(b"not a library")
    monkeypatch.setattr(_native, "library_folders", lambda: [tmp_path])
    assert "OSError" in _native._load("cpu", "libjaxmg_engine", "libjaxmg_ffi").failure


@pytest.mark.parametrize(
    ("minor", "generation"), [(1, "0_1"), (2, "0_1"), (3, "0_3"), (4, "0_4"), (7, "0_4")]
)
def test_generation_of_handlers(monkeypatch, minor, generation):
    monkeypatch.setattr(_native, "ffi_minor", lambda: minor)
    assert _native.ffi_generation() == generation


def test_explanations():
    assert "success" in errors.explain(0)
    assert "order 7" in errors.explain(7)
    for kind in (-1, -2, -3, -4, -5):
        assert "NaN" in errors.explain(kind)
    assert "lower=" in errors.explain(-2)
    assert "not known" in errors.explain(-99)
    assert "memory" in errors.explain("CUSOLVER_STATUS_ALLOC_FAILED")
    assert "jaxmg.info()" in errors.explain("No FFI handler registered for jaxmg_potrf on CUDA")
    assert "Known are" in errors.explain("something else")


def test_exceptions_of_every_kind():
    for kind in (1, 2, 3, -1, -2, -3, -4, -5, 77):
        error = errors.from_info([kind, 3, 0, 0, 0, 0, 0, 0], "potrs")
        assert isinstance(error, jaxmg.JaxMgError)
        assert "potrs" in str(error)
    assert errors.from_info([0] * 8, "potrs") is None
    assert issubclass(jaxmg.JaxMgError, RuntimeError)


def test_triangular_routines():
    factor = jaxmg.plan("cholesky", 4096, "float64", mesh=4)
    assert factor.flops == pytest.approx(4096**3 / 3, rel=1e-5)
    assert factor.bytes_by_purpose["send_staging"] > 0  # tiles are dealt out
    even, uneven = (jaxmg.plan("cholesky", n, "float64", mesh=8) for n in (8192, 8 * 1031))
    assert even.bytes_by_purpose["matrix"] == 8192 * 8192 * 8 // 8
    assert uneven.bytes_by_purpose["matrix"] > 8248 * 8248 * 8 // 8  # 1031 is prime
    solve = jaxmg.plan("solve_triangular", 4096, "float64", nrhs=3, mesh=4)
    assert solve.flops == pytest.approx(4096**2 * 3, rel=1e-5)
    update = jaxmg.plan("cho_update", 4096, "float64", nrhs=3, mesh=4)
    assert update.bytes_by_purpose["update_even"] == 4096 * 3 * 8
    for plan in (factor, solve, update):
        assert 0 < plan.bytes_needed < plan.bytes_needed_with_copy
