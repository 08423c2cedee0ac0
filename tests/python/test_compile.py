"""What programs are made of: traces, copies, collectives, memory, time; and control flow."""

import re
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native, _potrs
from matrices import general, spd
from meshes import line, need, put
from residuals import assert_solved, relative

BIG = 2048


def shapes(mesh, n=BIG, spec=("x", None)):
    matrix = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=NamedSharding(mesh, P(*spec)))
    right = jax.ShapeDtypeStruct((n, 1), jnp.float64, sharding=NamedSharding(mesh, P()))
    return matrix, right


def compiled(function, *arrays, **options):
    return jax.jit(function, **options).lower(*arrays).compile()


def shards_of_scratch(program, n=BIG, ranks=8):
    return program.memory_analysis().temp_size_in_bytes / (n * n * 8 / ranks)


def largest_collective(program):
    """Elements of the largest operand that XLA itself moves between devices."""
    largest = 0
    kinds = "all-gather|all-to-all|all-reduce|collective-permute|reduce-scatter"
    for line_ in program.as_text().splitlines():
        if re.search(rf"\b({kinds})(-start)?\(", line_):
            for dims in re.findall(r"f64\[([\d,]*)\]", line_.split("(")[0]):
                largest = max(largest, int(np.prod([int(d) for d in dims.split(",") if d])))
    return largest


def test_equal_calls_are_traced_once(mesh):
    a, b = put(spd(24), mesh, "x", None), general(24, 2)
    traces = []
    original = _potrs.solve_call

    def counting(call, a, b):
        traces.append(call)
        return original(call, a, b)

    _potrs_run, _potrs.run = _potrs.run, jax.jit(counting, static_argnums=0)
    try:
        for _ in range(10):
            jaxmg.potrs(a, b)
        jaxmg.potrs(a, b, mesh=line(8))
        jaxmg.potrs(put(spd(24, seed=1), line(8), "x"), b)
    finally:
        _potrs.run = _potrs_run
    assert len(traces) == 1


def test_second_eager_call_compiles_nothing(mesh):
    a, b = put(spd(24), mesh, "x", None), general(24, 2)
    call = lambda: jaxmg.potrs(a, b, return_logdet=True, return_status=True)  # noqa: E731
    jax.block_until_ready(call())
    with jax.log_compiles(False):
        before = _potrs.run._cache_size()
        start = time.perf_counter()
        jax.block_until_ready(call())
        assert time.perf_counter() - start < 1.0
        assert _potrs.run._cache_size() == before


@pytest.mark.parametrize("options", [{}, {"return_status": True, "return_logdet": True}], ids=str)
def test_memory_is_about_one_shard(options, mesh):
    """The copy that keeps the caller's matrix, and nothing of its size besides."""
    need(8)
    program = compiled(lambda a, b: jaxmg.potrs(a, b, **options), *shapes(mesh))
    assert shards_of_scratch(program) < 1.3
    assert largest_collective(program) <= BIG


def test_matrix_made_inside_is_overwritten(mesh):
    need(8)

    def solve(x, b):
        k = jnp.exp(-((x[:, None] - x[None]) ** 2)) + jnp.eye(BIG)
        k = lax.with_sharding_constraint(k, NamedSharding(mesh, P("x", None)))
        return jaxmg.potrs(k, b, return_status=True)

    x = jax.ShapeDtypeStruct((BIG,), jnp.float64, sharding=NamedSharding(mesh, P()))
    program = compiled(solve, x, shapes(mesh)[1])
    assert shards_of_scratch(program) < 1.3
    assert largest_collective(program) <= BIG


def test_size_that_does_not_divide_costs_nothing_more(mesh):
    need(8)
    n = BIG - 1

    def solve(x, b):
        k = jnp.exp(-((x[:, None] - x[None]) ** 2)) + jnp.eye(n)
        return jaxmg.potrs(k, b, mesh=mesh)

    whole = NamedSharding(mesh, P())
    x = jax.ShapeDtypeStruct((n,), jnp.float64, sharding=whole)
    b = jax.ShapeDtypeStruct((n, 1), jnp.float64, sharding=whole)
    program = compiled(solve, x, b)
    assert shards_of_scratch(program) < 1.3
    assert largest_collective(program) <= BIG


def test_donated_matrix_is_worked_on_in_place(mesh):
    need(8)
    program = compiled(lambda a, b: jaxmg.potrs_shardmap_ctx(a, b), *shapes(mesh), donate_argnums=0)
    assert shards_of_scratch(program) < 0.3
    assert program.memory_analysis().alias_size_in_bytes >= BIG * BIG * 8 / 8


def test_gradients_need_two_shards_at_most(mesh):
    need(8)
    objective = lambda a, b: jnp.sum(jnp.sin(jaxmg.potrs(a, b)))  # noqa: E731
    program = compiled(jax.grad(objective), *shapes(mesh))
    assert shards_of_scratch(program) < 1.3
    assert largest_collective(program) <= BIG
    program = compiled(jax.grad(lambda a: jaxmg.linalg.logdet(a)), shapes(mesh)[0])
    assert shards_of_scratch(program) < 2.3
    assert largest_collective(program) <= BIG


def test_columns_are_moved_once(mesh):
    need(8)
    program = compiled(jaxmg.potrs, *shapes(mesh, spec=(None, "x")))
    assert shards_of_scratch(program) < 2.3
    assert "all-gather" not in program.as_text()


def test_time_to_compile_does_not_grow_with_the_size(mesh):
    def seconds(n):
        start = time.perf_counter()
        compiled(jaxmg.potrs, *shapes(mesh, n))
        return time.perf_counter() - start

    seconds(64)
    assert seconds(4096) < 4 * seconds(128) + 0.5


def test_scan(mesh):
    a, b = spd(16), general(16, 2)
    powers = jax.jit(
        lambda a, b: lax.scan(lambda c, _: (jaxmg.potrs(a, c),) * 2, b, None, length=20)
    )
    start = time.perf_counter()
    last, every = powers(put(a, mesh, "x"), b)
    assert time.perf_counter() - start < 30
    assert relative(every[2], np.linalg.matrix_power(np.linalg.inv(a), 3) @ b) < 1e-11
    assert (np.asarray(last) == np.asarray(every[-1])).all()


def test_while_and_cond(mesh):
    a, b = spd(16), general(16, 2)

    @jax.jit
    def loop(a, b):
        def body(state):
            i, x = state
            return i + 1, lax.cond(i % 2 == 0, lambda x: jaxmg.potrs(a, x), lambda x: 2 * x, x)

        return lax.while_loop(lambda s: s[0] < 4, body, (0, b))[1]

    expected = 4 * np.linalg.matrix_power(np.linalg.inv(a), 2) @ b
    assert relative(loop(put(a, mesh, "x"), b), expected) < 1e-11


def test_independent_calls_in_one_program(mesh):
    """Calls that become ready in any order are not mixed up."""
    matrices = [put(spd(16, seed=s), mesh, "x", None) for s in range(12)]
    b = general(16, 1)

    @jax.jit
    def many(matrices, b):
        out = []
        for i, a in enumerate(matrices):
            skew = b
            for _ in range(i % 4):  # different amounts of work in front
                skew = jnp.cos(a @ jnp.sin(skew))
            out.append(jaxmg.potrs(a, skew))
        return out

    found = many(matrices, b)
    for i, a in enumerate(matrices):
        skew = b
        for _ in range(i % 4):
            skew = np.cos(np.asarray(a) @ np.sin(skew))
        assert relative(found[i], np.linalg.solve(np.asarray(a), skew)) < 1e-11


@pytest.mark.timeout(120)
def test_threads_with_different_programs_and_meshes():
    errors = []

    def work(seed, ranks, order):
        try:
            mesh = line(ranks, order=order)
            a, b = spd(24, seed=seed), general(24, 1, seed=seed)
            placed = put(a, mesh, "x", None)
            solve = jax.jit(jaxmg.potrs) if seed % 2 else jaxmg.potrs
            for _ in range(20):
                assert_solved(a, solve(placed, b), b)
        except Exception as error:
            errors.append(error)

    count = len(jax.devices())
    orders = [range(count), range(count - 1, -1, -1), [6, 2, 5, 3], [0, 1]]
    orders = [[i for i in order if i < count] for order in orders]
    orders = [order for order in orders if order]
    threads = [
        threading.Thread(target=work, args=(seed, len(order), order))
        for seed, order in enumerate(orders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert _native.counter("pending") == 0


def test_meshes_of_changing_size():
    a, b = spd(24), general(24, 1)
    for ranks in (3, 8, 2, 8, 3):
        assert_solved(a, jaxmg.potrs(a, b, mesh=line(ranks)), b)


def test_export(mesh):
    pytest.importorskip("flatbuffers")
    from jax import export

    names = [export.DisabledSafetyCheck.custom_call(name) for name in _native.TARGETS]
    a, b = spd(16), general(16, 1)
    right = jax.ShapeDtypeStruct(b.shape, b.dtype, sharding=NamedSharding(mesh, P()))
    exported = export.export(jax.jit(jaxmg.potrs), disabled_checks=names)(
        shapes(mesh, 16)[0], right
    )
    again = export.deserialize(exported.serialize())
    backwards = line(8, order=range(7, -1, -1))
    assert_solved(a, again.call(put(a, backwards, "x", None), put(b, backwards)), b)
