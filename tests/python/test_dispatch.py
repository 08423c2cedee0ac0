"""Equal calls are prepared, traced and compiled once; anything that matters makes another call."""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_factor, cho_solve
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _factor_object, _potri, _potrs, linalg
from jaxmg._prepared import Prepared, signature
from matrices import general, spd
from meshes import line, need_cpu, put
from residuals import LIMIT, assert_solved, inverse_residual


@pytest.fixture
def preparations(monkeypatch):
    """Counts what is not answered from memory; starts with an empty memory."""
    calls = []
    original = _potrs.prepare
    monkeypatch.setattr(_potrs, "_prepared", Prepared())
    monkeypatch.setattr(_potrs, "prepare", lambda *a, **o: calls.append(o) or original(*a, **o))
    return calls


def test_equal_calls_are_prepared_once(preparations, mesh):
    a, b = spd(24), general(24, 2)
    for seed in range(5):
        left, right = put(spd(24, seed=seed), mesh, "x", None), put(b, mesh)
        assert_solved(np.asarray(left), jaxmg.potrs(left, right), b)
    jaxmg.potrs(put(a, line(8), "x", None), put(b, line(8)))
    assert len(preparations) == 1


OPTIONS = [
    {"T_A": 2},
    {"in_specs": P("x", None)},
    {"in_specs": (P("x", None), P("x", None))},
    {"return_status": True},
    {"return_logdet": True},
    {"lower": True},
    {"lower": False},
    {"precision": "highest"},
    {"mesh": line},
    {"backend": "native"},
    {"n": 24},
]


def test_another_option_is_another_call(preparations, mesh):
    a, b = put(spd(24), mesh, "x", None), put(general(24, 2), mesh)
    for options in [{}, *OPTIONS] * 2:
        options = {"mesh": line(8)} if "mesh" in options else options
        out = jaxmg.potrs(a, b, **options)
        wanted = 1 + sum(options.get(k, False) for k in ("return_status", "return_logdet"))
        assert (len(out) if isinstance(out, tuple) else 1) == wanted
    assert len(preparations) == 1 + len(OPTIONS)


def test_another_array_is_another_call(preparations, mesh):
    a, b, backwards = spd(24), general(24, 2), line(8, order=range(7, -1, -1))
    operands = [
        (put(a, mesh, "x", None), put(b, mesh)),
        (put(a, mesh, None, "x"), put(b, mesh)),
        (put(a, mesh, "x", None), put(b, mesh, "x", None)),
        (put(a, line(4), "x", None), put(b, line(4))),
        (put(a, backwards, "x", None), put(b, backwards)),
        (put(a.astype("float32"), mesh, "x", None), put(b.astype("float32"), mesh)),
        (put(a, mesh, "x", None), put(b[:, 0], mesh)),
        (jnp.asarray(a), jnp.asarray(b)),
    ]
    for _ in range(2):
        for left, right in operands:
            x = jaxmg.potrs(left, right)
            assert_solved(np.asarray(left), x, np.asarray(right))
            assert x.sharding.device_set == left.sharding.device_set
    assert len(preparations) == len(operands)


def test_settings_of_jax_are_a_part_of_a_call(mesh):
    a, b = put(spd(8), mesh, "x", None), put(general(8, 1), mesh)
    plain = signature(a, b, ())
    assert plain == signature(a, b, ())
    with jax.default_matmul_precision("highest"):
        assert signature(a, b, ()) != plain
    with jax.numpy_dtype_promotion("strict"):
        assert signature(a, b, ()) != plain
    with jax.set_mesh(line(4)):
        inside = signature(a, b, ())
        assert inside != plain
    if hasattr(jax.sharding, "get_mesh"):  # else nothing depends on the devices of the context
        with jax.set_mesh(line(4, order=[4, 5, 6, 7])):
            assert signature(a, b, ()) not in (plain, inside)
    assert signature(a, b, (1,)) != signature(a, b, (True,))
    assert signature(a, b, ([P("x")],)) is None
    assert signature(np.asarray(a), b, ()) is None
    assert signature(a.astype("float32"), b, ()) != plain


def test_wrong_arguments_are_found_after_a_right_call(mesh):
    a, b = put(spd(8), mesh, "x", None), put(general(8, 1), mesh)
    for right, wrong in [({"T_A": 1}, {"T_A": True}), ({"lower": True}, {"lower": 1})]:
        jax.block_until_ready(jaxmg.potrs(a, b, **right))
        with pytest.raises(ValueError, match="accepted"):
            jaxmg.potrs(a, b, **wrong)
    with pytest.raises(ValueError, match="backend"):
        jaxmg.potrs(a, b, backend="mystery")


def test_donated_arguments_are_prepared_once(preparations, mesh):
    b = put(general(24, 2), mesh)
    for seed in range(3):
        a = put(spd(24, seed=seed), mesh, "x", None)
        assert_solved(spd(24, seed=seed), jaxmg.potrs(a, b, donate=True), np.asarray(b))
    assert len(preparations) == 1


def test_inverses_and_factors_are_prepared_once(monkeypatch, mesh):
    cholesky = sys.modules["jaxmg.linalg.cholesky"]
    work = []
    for module, name in (
        (_potri, "prepare_inverse"),
        (cholesky, "resolve"),
        (_factor_object, "place_rhs"),
    ):
        original = getattr(module, name)
        monkeypatch.setattr(module, "_prepared", Prepared())
        monkeypatch.setattr(
            module,
            name,
            lambda *a, name=name, original=original, **o: work.append(name) or original(*a, **o),
        )
    b = general(24, 2)
    for seed in range(3):
        a = put(spd(24, seed=seed), mesh, "x", None)
        assert inverse_residual(np.asarray(a), jaxmg.potri(a)) <= LIMIT
        for order in ("relabelled", "natural"):
            factor = linalg.cho_factor(a, order=order)
            assert_solved(np.asarray(a), factor.solve(put(b, mesh)), b)
    assert sorted(work) == ["place_rhs"] * 2 + ["prepare_inverse"] + ["resolve"] * 2
    assert int(jaxmg.potri(a, return_status=True)[1]) == 0
    with pytest.raises(ValueError, match="order"):
        linalg.cho_factor(a, order="mystery")


def test_memory_of_calls_is_bounded():
    known = Prepared(capacity=3)
    threads = [
        threading.Thread(target=lambda k=k: [known.put((k, i), i) for i in range(100)])
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known) <= 3
    known.put(("last",), 7)
    assert known.get(("last",)) == 7
    assert known.get(None) is None
    known.put(None, 1)


def best_time(call, rounds=200, calls=10):
    """Seconds of one call, the least of many rounds: the machine may be busy."""
    for _ in range(20):
        jax.block_until_ready(call())
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(call())
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def test_small_solve_costs_at_most_twice_that_of_jax():
    need_cpu("on GPUs the benchmark of small systems says what a call takes")
    mesh = line(1)
    a, b = put(spd(64), mesh, "x", None), put(general(64, 1), mesh)
    theirs = jax.jit(lambda a, b: cho_solve(cho_factor(a, lower=True), b))
    mine = best_time(lambda: jaxmg.potrs(a, b))
    assert mine <= 2 * best_time(lambda: theirs(a, b))
