"""Nothing grows with the number of calls; nothing large appears beside the matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import child
import jaxmg
from meshes import need

LEAKS = """
import gc, os, resource
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

mesh = line(2)
a, b = put(spd(64), mesh, "x", None), put(general(64, 1), mesh)
bad = spd(64)
bad[30, 30] = -1
bad = put(bad, mesh, "x", None)
nan = put(np.full((64, 64), np.nan), mesh, "x", None)

def good():
    jax.block_until_ready(jaxmg.potrs(a, b))

def failing():
    x, status = jaxmg.potrs(bad, b, return_status=True)
    assert int(status) == 31
    x, status = jaxmg.potrs(nan, b, return_status=True)
    assert int(status) == -1

def factor():
    f = jaxmg.linalg.cho_factor(a)
    jax.block_until_ready((f.solve(b), f.logdet()))

def raising():
    try:
        jaxmg.potrs(bad, b, check=True)
    except jaxmg.NotPositiveDefiniteError:
        pass
    try:
        jaxmg.potrs(a, np.ones(3))
    except ValueError:
        pass

for call, count in ((good, 2000), (failing, 1000), (factor, 500), (raising, 500)):
    for _ in range(200):
        call()
    before, arrays = resident(), len(jax.live_arrays())
    for _ in range(count):
        call()
    grown = resident() - before
    assert len(jax.live_arrays()) == arrays, (call.__name__, arrays, len(jax.live_arrays()))
    # The matrix alone has 32 KiB: one copy lost per call would be 60 MB.
    assert grown < 8 << 20, (call.__name__, grown)
    print(call.__name__, grown)
jax.block_until_ready(jaxmg.potrs(a, b))
"""


def test_thousands_of_good_and_failing_calls_leave_nothing():
    need(2)
    child.run(LEAKS, devices=2, seconds=120)


def test_compiled_programs_that_are_dropped_leave_nothing_waiting(mesh):
    """Call sites have a state of their own, which ends with the program."""
    a, b = np.eye(16), np.ones(16)
    for _ in range(3):
        jax.clear_caches()
        x = jax.jit(lambda a: jaxmg.potrs(a, b, mesh=mesh))(a)
        assert (np.asarray(x) == 1).all()


@pytest.mark.parametrize("steps", [2, 5])
def test_matrix_that_a_loop_builds_is_not_copied(steps, mesh):
    """Donated, changed by a loop that reads it, then solved: no second buffer of its size."""
    need(8)
    n = 2048

    def change(i, state):
        a, seen = state
        a = a * 1.5
        return a, seen + jnp.max(a)

    def program(a, b):
        a, seen = lax.fori_loop(0, steps, change, (a, 0.0))
        work, x, _ = jaxmg.potrs_shardmap_ctx(a, b)
        return work, x, seen

    matrix = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=NamedSharding(mesh, P("x", None)))
    right = jax.ShapeDtypeStruct((n, 1), jnp.float64, sharding=NamedSharding(mesh, P()))
    compiled = jax.jit(program, donate_argnums=0).lower(matrix, right).compile()
    shard = n * n * 8 / 8
    assert compiled.memory_analysis().temp_size_in_bytes < 0.3 * shard
    kept = jax.jit(lambda a, b: program(a, b)[1:]).lower(matrix, right).compile()
    assert kept.memory_analysis().temp_size_in_bytes < 1.3 * shard


@pytest.mark.parametrize("routine", ["potrs", "cho_factor", "logdet"])
def test_refusal_says_what_is_needed(routine):
    n = 1_000_000
    call = {
        "potrs": lambda a: jaxmg.potrs(a, jnp.ones((n, 2), jnp.float32)),
        "cho_factor": lambda a: jaxmg.linalg.cho_factor(a),
        "logdet": lambda a: jaxmg.linalg.logdet(a),
    }[routine]
    with pytest.raises(jaxmg.InsufficientMemoryError) as caught:
        jax.jit(call).lower(jax.ShapeDtypeStruct((n, n), jnp.float32))
    error = caught.value
    assert error.needed >= 4 * n * n
    assert 0 < error.largest_n < n
    for word in (str(n), "float32", "iB", "device", "largest n"):
        assert word in str(error)
    assert (np.asarray(jaxmg.potrs(np.eye(3), np.ones(3))) == 1).all()


def test_no_shared_memory_segment_stays_behind():
    """Also not after a process that was killed."""
    need(2)
    child.run(
        """
import os, signal, subprocess, sys
before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else None
if before is None:
    sys.exit()
name = "jaxmg"
assert_solved(spd(16), jaxmg.potrs(spd(16), general(16, 1), mesh=line(4)), general(16, 1))
left = {entry for entry in set(os.listdir("/dev/shm")) - before if name in entry.lower()}
assert not left, left
"""
    )
