"""Threads, processes that end, settings of JAX, and the order in which things happen."""

import contextlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import child
import jaxmg
from jaxmg import _native, linalg
from matrices import DTYPES, general, spd
from meshes import line, need, put
from residuals import assert_solved, relative

N = 16


@pytest.mark.timeout(120)
@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_run_one_program_on_one_mesh(threads, mesh):
    """Launches of the same executable from several threads are not mixed up."""
    solve = jax.jit(lambda a, b: jaxmg.potrs(a, b, return_status=True))
    jax.block_until_ready(solve(put(spd(N), mesh, "x", None), general(N, 1)))
    errors = []

    def work(seed):
        try:
            a, b = spd(N, seed=seed), general(N, 1, seed=seed)
            bad = a.copy()
            bad[seed, seed] = -1
            placed, failing = put(a, mesh, "x", None), put(bad, mesh, "x", None)
            for _ in range(8):
                x, status = solve(placed, b)
                assert_solved(a, x, b)
                assert int(status) == 0
                assert int(solve(failing, b)[1]) == seed + 1
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


@pytest.mark.timeout(120)
def test_threads_with_a_device_each():
    need(2)
    errors = []

    def work(index):
        try:
            mesh = line(1, order=[index])
            for seed in range(4):
                a, b = spd(200, seed=seed), general(200, 1)
                assert_solved(a, jaxmg.potrs(a, b, mesh=mesh), b)
                assert int(jaxmg.potrs(-a, b, mesh=mesh, return_status=True)[1]) == 1
        except Exception as error:
            errors.append(error)

    count = min(4, jax.device_count())
    workers = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


def test_many_calls_in_flight(mesh):
    """None is waited for before the next; meshes of other sizes in between."""
    small = line(min(3, jax.device_count()))
    calls = []
    for seed in range(40):
        a, b = spd(N, seed=seed), general(N, 1, seed=seed)
        calls.append((a, jaxmg.potrs(a, b, mesh=mesh if seed % 3 else small), b))
    for a, x, b in calls:
        assert_solved(a, x, b)


@pytest.mark.parametrize("last", ["pass", "raise SystemExit(3)", "raise KeyError('x')"])
def test_process_ends_without_waiting_for_its_calls(last):
    need(2)
    process = child.start(
        f"""
mesh = line(4)
a = put(spd(1024, "float32"), mesh, "x", None)
b = np.ones(1024, np.float32)
jax.block_until_ready(jaxmg.potrs(a, b))
jaxmg.set_timeout(30)
calls = [jaxmg.potrs(a, b) for _ in range(4)] + [jaxmg.linalg.cho_factor(a)]
print("reached", flush=True)
{last}
"""
    )
    code, output = child.finish(process, 60)
    assert "reached" in output
    assert code == {"pass": 0, "raise SystemExit(3)": 3}.get(last, 1), output[-2000:]


def test_process_ends_while_a_thread_still_calls():
    need(2)
    child.run(
        """
import threading
mesh = line(4)
a, b = put(spd(64), mesh, "x", None), np.ones(64)
jax.block_until_ready(jaxmg.potrs(a, b))
def work():
    for _ in range(20):
        jax.block_until_ready(jaxmg.potrs(a, b))
threading.Thread(target=work).start()
"""
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_tests_and_what_memory_held_before_do_not_matter(seed):
    """The suite itself in random order, every scratch buffer full of NaN at first."""
    need(8)
    folder = child.HERE
    chosen = "tile_sizes or one_triangle or large_enough or minor or non_finite or belong"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "shuffled", "-p", "no:xdist"]
    command += ["-p", "no:cacheprovider", "-k", chosen]
    command += [str(folder / f"test_{name}.py") for name in ("potrs", "status", "cyclic")]
    env = child.environment(devices=8, JAXMG_POISON_SCRATCH="1", JAXMG_TEST_SEED=str(seed))
    done = subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder.parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_bad_arguments_are_found_without_assertions():
    """`python -O` removes assert statements; no check may depend on one."""
    need(2)
    child.run(
        """
import sys
if __debug__:
    sys.exit("assertions are on")
mesh = line(4)
one = jax.sharding.PartitionSpec("q")
eye, ones = np.eye(8), np.ones(8)
cases = [
    (ValueError, "b has shape", lambda: jaxmg.potrs(eye, np.ones(7), mesh=mesh)),
    (ValueError, "a has shape", lambda: jaxmg.potrs(np.ones((3, 8)), ones, mesh=mesh)),
    (ValueError, "a has shape", lambda: jaxmg.linalg.cho_factor(np.ones((3, 8)), mesh=mesh)),
    (TypeError, "supported", lambda: jaxmg.potrs(jnp.eye(8, dtype=jnp.float16), ones)),
    (ValueError, "T_A", lambda: jaxmg.potrs(eye, ones, 0)),
    (ValueError, "T_A", lambda: jaxmg.cyclic_1d(eye, 0, mesh)),
    (ValueError, "in_specs", lambda: jaxmg.potrs(eye, ones, mesh=mesh, in_specs=one)),
    (TypeError, "mesh", lambda: jaxmg.potrs(eye, ones, mesh="x")),
    (ValueError, "lower", lambda: jaxmg.potrs(eye, ones, lower="U")),
    (ValueError, "assume_a", lambda: jaxmg.linalg.solve(eye, ones, assume_a="odd")),
    (TypeError, "c_and_lower", lambda: jaxmg.linalg.cho_solve(3, ones)),
    (ValueError, "routine", lambda: jaxmg.plan("x", 4, "float32")),
    (ValueError, "^n: got", lambda: jaxmg.plan("potrs", -1, "float32")),
    (jaxmg.NotPositiveDefiniteError, "order 1", lambda: jaxmg.potrs(-eye, ones, check=True)),
]
import re
for kind, words, call in cases:
    try:
        call()
    except kind as error:
        if not re.search(words, str(error)):
            sys.exit(f"{words}: {error}")
    else:
        sys.exit(f"nothing was raised: {words}")
x = np.asarray(jaxmg.potrs(2 * eye, ones, mesh=mesh))
if (abs(x - 0.5) > 1e-15).any():
    sys.exit("wrong answer")
print("done")
""",
        options=("-O",),
    )


def test_compiled_programs_from_a_cache_on_disk(tmp_path):
    """A second process runs executables that the first one compiled."""
    need(2)
    program = """
import sys
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
mesh = line(4)
a, b = put(spd(16), mesh, "x", None), general(16, 1)
x, status = jaxmg.potrs(a, b, return_status=True)
assert_solved(spd(16), x, b)
bad = spd(16)
bad[8, 8] = -1
assert int(jaxmg.potrs(put(bad, mesh, "x", None), b, return_status=True)[1]) == 9
print("hits", len(hits))
"""
    first = child.run(program, tmp_path).splitlines()[-1]
    second = child.run(program, tmp_path).splitlines()[-1]
    assert first == "hits 0"
    assert int(second.split()[1]) > 0


# --- settings of JAX -------------------------------------------------------------------------


def everything(mesh, dtype="float64"):
    """Every routine once, with derivatives."""
    a, b = spd(N, dtype), general(N, 2, dtype)
    placed, right = put(a, mesh, "x", None), put(b, mesh)
    for lower in (None, True):
        x, _, status = jaxmg.potrs(
            placed, right, lower=lower, return_logdet=True, return_status=True
        )
        assert_solved(a, x, b)
        assert status.shape == ()
        value = lambda a, low=lower: jnp.real(jnp.sum(jaxmg.potrs(a, right, lower=low)))  # noqa: E731
        assert jax.grad(value)(placed).shape == a.shape
        assert jax.grad(lambda a, low=lower: linalg.logdet(a, lower=low))(placed).shape == a.shape
    factor = linalg.cho_factor(placed)
    assert_solved(a, factor.solve(right), b)
    assert factor.status.shape == factor.logdet().shape == ()
    assert factor.inv().shape == factor.factor()[0].shape == a.shape
    moved = jaxmg.cyclic_1d(placed, 1)
    assert relative(jaxmg.uncyclic_1d(moved, 1), a) == 0


SETTINGS = {
    "disable_jit": lambda: jax.disable_jit(),
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
    "checking_leaks": lambda: jax.checking_leaks(),
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "no rank promotion": lambda: jax.numpy_rank_promotion("raise"),
    "highest precision": lambda: jax.default_matmul_precision("highest"),
    "another default device": lambda: jax.default_device(jax.devices()[-1]),
    "no warnings": contextlib.nullcontext,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_users_debug_with(setting, mesh):
    with SETTINGS[setting]():
        everything(mesh)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_promotion_with_every_type(dtype, mesh):
    with jax.numpy_dtype_promotion("strict"):
        everything(mesh, dtype)


def test_batches_without_jit(mesh):
    a = np.stack([spd(N, seed=s) for s in range(9)])
    b = general(N, 2)
    with jax.disable_jit():
        for count in (2, 9):
            x = jax.vmap(lambda a: jaxmg.potrs(a, b, mesh=mesh))(a[:count])
            assert relative(x, np.linalg.solve(a[:count], b)) < 1e-12


def test_nothing_is_moved_behind_the_users_back(mesh):
    a, b = put(spd(N), mesh, "x", None), put(general(N, 2), mesh)
    calls = (
        lambda: jaxmg.potrs(a, b, return_status=True, return_logdet=True),
        lambda: linalg.logdet(a),
        lambda: linalg.cho_factor(a).solve(b),
        lambda: linalg.cho_factor(a).status,
    )
    for call in calls:
        jax.block_until_ready(call())
        with jax.transfer_guard("disallow"):
            jax.block_until_ready(call())


def test_import_and_calls_change_no_settings():
    need(2)
    child.run(
        """
import os
settings = lambda: {k: v for k, v in jax.config.values.items()}
environment = dict(os.environ)
before = settings()
everything = jaxmg.potrs(spd(8), general(8, 1), mesh=line(4), return_status=True)
jaxmg.linalg.cho_factor(spd(8)).inv()
assert settings() == before
assert dict(os.environ) == environment
""",
        preamble="import os, jax\nclean = dict(jax.config.values)\nimport jaxmg\n"
        "assert dict(jax.config.values) == clean\n" + child.PREAMBLE,
    )


def test_engine_settings_are_checked():
    for value in (-1, float("nan")):
        with pytest.raises(ValueError, match="^seconds: got"):
            jaxmg.set_timeout(value)
    for value in (0, -4):
        with pytest.raises(ValueError, match="^count: got"):
            jaxmg.set_threads(value)
    jaxmg.set_timeout(0)
    assert _native.counter("pending") == 0
