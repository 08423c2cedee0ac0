"""Nothing is compiled twice, and nothing that is compiled grows with the size."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, monitoring

import jaxmg
from jaxmg import linalg
from matrices import general, spd
from meshes import put
from residuals import relative

COMPILED = []
monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: COMPILED.append(event) if "backend_compile" in event else None
)
N = 16


def calls(mesh):
    a, b = put(spd(N), mesh, "x", None), put(general(N, 2), mesh)
    host, odd = spd(N), spd(13)
    few, many = np.stack([host] * 3), put(np.stack([host] * 8), mesh, "x")
    factor, factors = linalg.cho_factor(a), linalg.cho_factor(few, mesh=mesh)
    return {
        "potrs": lambda: jaxmg.potrs(a, b),
        "host": lambda: jaxmg.potrs(host, general(N, 2), mesh=mesh),
        "one device": lambda: jaxmg.potrs(host, general(N, 2)),
        "odd": lambda: jaxmg.potrs(odd, general(13, 2), mesh=mesh),
        "all results": lambda: jaxmg.potrs(a, b, return_status=True, return_logdet=True),
        "check": lambda: jaxmg.potrs(a, b, check=True),
        "triangle": lambda: jaxmg.potrs(a, b, lower=True),
        "donated": lambda: jaxmg.potrs(put(host, mesh, "x", None), b, donate=True),
        "logdet": lambda: linalg.logdet(a),
        "cho_factor": lambda: linalg.cho_factor(a).parts,
        "cho_solve": lambda: linalg.cho_solve(factor, b),
        "factor": lambda: (factor.logdet(), factor.status, factor.inv(), factor.factor()),
        "few": lambda: linalg.solve(few, b, assume_a="pos", mesh=mesh),
        "many": lambda: linalg.solve(many, b, assume_a="pos"),
        "factors": lambda: (factors.solve(b), factors.logdet(), factors.status),
        "cyclic": lambda: jaxmg.uncyclic_1d(jaxmg.cyclic_1d(a, 1), 1),
    }


def test_equal_calls_compile_once(mesh):
    for name, call in calls(mesh).items():
        for _ in range(2):
            jax.block_until_ready(call())
        COMPILED.clear()
        for _ in range(10):
            jax.block_until_ready(call())
        assert COMPILED == [], name


def test_other_values_of_the_same_shapes_compile_nothing(mesh):
    b = put(general(N, 2), mesh)
    jaxmg.potrs(put(spd(N), mesh, "x", None), b, return_status=True)
    COMPILED.clear()
    for seed in range(5):
        a = spd(N, seed=seed)
        a[seed, seed] = -1  # failures run a second search, which is compiled already
        jaxmg.potrs(put(a, mesh, "x", None), b, return_status=True)
    assert COMPILED == []


@pytest.mark.parametrize("steps", [1, 100])
def test_program_does_not_grow_with_the_steps_of_a_loop(steps, mesh):
    a, b = put(spd(64), mesh, "x", None), put(general(64, 1), mesh)
    loop = jax.jit(
        lambda a, b: lax.scan(lambda c, _: (jaxmg.potrs(a, c), None), b, None, length=steps)[0]
    )
    text = loop.lower(a, b).as_text()
    assert text.count("custom_call @jaxmg_potrf") == 1
    x = loop(a, b)
    if steps == 1:
        assert relative(x, np.linalg.solve(np.asarray(a), np.asarray(b))) < 1e-12
    assert np.isfinite(np.asarray(x)).all()


def test_program_does_not_grow_with_the_matrix(mesh):
    """The same number of operations for 64 and for 4096: no loop over blocks is unrolled."""

    def operations(n):
        a = jax.ShapeDtypeStruct((n, n), jnp.float32)
        b = jax.ShapeDtypeStruct((n, 1), jnp.float32)
        f = jax.jit(lambda a, b: jaxmg.potrs(a, b, mesh=mesh, return_logdet=True))
        return len(f.lower(a, b).as_text().splitlines())

    assert operations(4096) == operations(64)


def test_hundred_solves_in_a_loop_take_no_time_to_speak_of(mesh):
    a, b = put(spd(64), mesh, "x", None), put(general(64, 1), mesh)
    loop = jax.jit(
        lambda a, b: lax.scan(lambda c, _: (jaxmg.potrs(a, c), None), b, None, length=100)[0]
    )
    jax.block_until_ready(loop(a, b))
    start = time.perf_counter()
    jax.block_until_ready(loop(a, b))
    assert time.perf_counter() - start < 20
