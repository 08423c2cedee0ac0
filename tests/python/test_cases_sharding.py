"""Meshes, specs and device counts that break distributed solvers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import child
import jaxmg
from jaxmg import linalg
from matrices import eps, general, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, relative

KINDS = pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])


@KINDS
def test_every_spec_of_one_axis_with_and_without_a_context(kind):
    mesh = line(4, "S", kind=kind)
    a, b = spd(8), general(8, 2)
    found = {}
    for spec in (("S",), ("S", None), (None, "S"), ()):
        placed, right = put(a, mesh, *spec), put(b, mesh)
        found[spec] = np.asarray(jaxmg.potrs(placed, right))
        with jax.set_mesh(mesh):
            assert (np.asarray(jaxmg.potrs(placed, right)) == found[spec]).all()
            assert (np.asarray(jax.jit(jaxmg.potrs)(placed, right)) == found[spec]).all()
        assert_solved(a, found[spec], b)
    assert (found["S",] == found["S", None]).all()
    assert all(relative(x, found["S",]) < 1e-14 for x in found.values())


@KINDS
def test_columns_of_a_solution_can_be_cut(kind):
    mesh = grid(2, 2, ("r", "c"), kind=kind)
    a, b = spd(8), general(8, 3)

    def first(a, b):
        return jaxmg.potrs(a, b)[:, :1] * 2

    placed, right = put(a, mesh, "r", "c"), put(b, mesh)
    for function in (first, jax.jit(first)):
        assert_solved(a, np.asarray(function(placed, right)) / 2, b[:, :1])


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_nothing_is_counted_once_per_device(ranks):
    """Sums over devices that are missing, or doubled, are off by the number of devices."""
    n = 21
    a, b = spd(n), general(n, 2)
    mesh = line(ranks)
    exact, inverse = np.linalg.solve(a, b), np.linalg.inv(a)

    def value(a, b):
        x, logdet = jaxmg.potrs(a, b, mesh=mesh, return_logdet=True)
        return jnp.sum(x) + logdet

    ga, gb = jax.jit(jax.grad(value, (0, 1)))(a, b)
    y = np.linalg.solve(a, np.ones_like(b))
    symmetric = inverse - (y @ exact.T + exact @ y.T) / 2
    assert relative(ga, symmetric) < 1e-12
    assert relative(gb, y) < 1e-12
    factor = linalg.cho_factor(a, mesh=mesh)
    assert relative(factor.solve(b), exact) < 1e-12
    assert relative(factor.inv(), inverse) < 1e-12
    assert float(factor.logdet()) == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-13)
    _, tangent = jax.jvp(lambda b: jaxmg.potrs(a, b, mesh=mesh), (b,), (b,))
    assert relative(tangent, exact) < 1e-12


def test_axis_that_the_matrix_does_not_use_counts_nothing_twice():
    """12 rows over x; the devices along y repeat the same work."""
    mesh = grid(4, 2, kind=EXPLICIT)
    a, b = spd(12), general(12, 2)
    with jax.set_mesh(mesh):
        f = lambda a, b: jnp.sum(jaxmg.potrs(a, b))  # noqa: E731
        gb = jax.jit(jax.grad(f, 1))(put(a, mesh, "x", None), put(b, mesh))
        logdet = linalg.logdet(put(a, mesh, "x", None))
    assert relative(gb, np.linalg.solve(a, np.ones_like(b))) < 1e-12
    assert float(logdet) == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-13)


def test_prime_counts_and_sizes_below_them_do_not_hang():
    need(2)
    child.run(
        """
for k in (3, 5, 7, 8):
    for n in (1, 2, k - 1, k + 1, 20):
        a, b = spd(n), general(n, 3)
        assert_solved(a, jaxmg.potrs(a, b, mesh=line(k)), b)
    for tile in (1, 8, 64):
        a, b = spd(10), general(10, 3)
        assert_solved(a, jaxmg.potrs(a, b, tile, line(k)), b)
""",
        devices=8,
        seconds=120,
    )


def test_grids_of_any_shape_do_not_hang():
    need(2)
    child.run(
        """
a, b = spd(96), general(96, 500)
for shape in ((1, 3), (3, 1), (1, 2), (2, 1), (2, 4), (4, 2)):
    for spec in (("x", "y"), (None, "y")):
        mesh = grid(*shape)
        assert_solved(a, jaxmg.potrs(put(a, mesh, *spec), b, 8), b)
""",
        devices=8,
        seconds=120,
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_size_that_divides_by_nothing(ranks):
    """2321 = 11 * 211."""
    a, b = spd(2321, "float32"), general(2321, 1, "float32")
    assert_solved(a, jaxmg.potrs(a, b, mesh=line(ranks)), b)


def test_arrays_on_other_devices_are_named():
    need(4)
    a, b = spd(16), general(16, 2)
    left, right = line(2), line(2, order=[2, 3])
    with pytest.raises(ValueError, match=r"^b: lies on 2 devices, \[2, 3\]"):
        jaxmg.potrs(put(a, left, "x"), put(b, right, "x"))
    for function in (
        lambda a: jaxmg.potrs(a, b, mesh=right),
        lambda a: linalg.cho_factor(a, mesh=right),
        lambda a: linalg.logdet(a, mesh=right),
        lambda a: jaxmg.cyclic_1d(a, 2, right),
    ):
        with pytest.raises(ValueError, match=r"^a: lies on 2 devices, \[0, 1\]"):
            function(put(a, left, "x"))
    with pytest.raises(ValueError, match="^b: lies on"):
        linalg.cho_factor(put(a, left, "x")).solve(put(b, right, "x"))


def test_equal_calls_follow_a_changed_context():
    """What is remembered of a call must not outlive the mesh that it was made under."""
    need(4)
    a, b = jnp.asarray(spd(16)), jnp.asarray(general(16, 2))
    for _ in range(2):
        for order in ([0, 1], [2, 3], [3, 2, 1, 0]):
            mesh = line(len(order), order=order)
            with jax.set_mesh(mesh):
                x = jaxmg.potrs(a, b)
            assert x.sharding.device_set == set(mesh.devices.flat)
            assert_solved(a, x, b)
        assert len(jaxmg.potrs(a, b).sharding.device_set) == 1


def test_equal_calls_follow_changed_defaults():
    a, b = spd(16), general(16, 2)
    assert jaxmg.potrs(a, b).dtype == np.float64
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        with pytest.warns(jaxmg.JaxMgWarning):
            assert jaxmg.potrs(a, b).dtype == np.float32
    x = jaxmg.potrs(a, b)
    assert x.dtype == np.float64
    assert relative(x, np.linalg.solve(a, b)) < 1e4 * eps(np.float64)


PROCESS = """
import sys
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
a, b = spd(16), general(16, 2)
whole = NamedSharding(jax.make_mesh((4,), ("x",)), P("x", None))
spread = jax.make_array_from_callback(a.shape, whole, lambda index: a[index])
bad = spd(16)
bad[4, 4] = -1
local = Mesh(np.array(jax.local_devices()), ("x",))
for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
    try:
        jax.block_until_ready(function(spread, b))
        print("solved")
    except jaxmg.BackendUnavailableError as error:
        assert "mesh=" in str(error)
    # Every process on its own devices, the first with a matrix that fails.
    mine = bad if jax.process_index() == 0 else a
    x, status = jaxmg.potrs(mine, b, mesh=local, return_status=True)
    assert int(status) == (5 if jax.process_index() == 0 else 0)
    assert_solved(a, jaxmg.potrs(a, b, mesh=local), b)
    solve = jax.jit(lambda a, b: jaxmg.potrs(a, b, mesh=local))
    assert_solved(a, solve(put(a, local, "x", None), b), b)
print("done")
"""


@pytest.mark.multiprocess
def test_devices_of_two_processes_are_refused_by_both_alike():
    """Never by one alone, never by waiting; each process can use its own devices."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [child.start(PROCESS, port, rank, devices=2) for rank in (0, 1)]
    outputs = [child.finish(process, 120) for process in processes]
    for code, output in outputs:
        assert code == 0, output[-3000:]
        assert "done" in output
    solved = ["solved" in output for _, output in outputs]
    assert solved[0] == solved[1]


def test_batch_spread_over_devices_keeps_its_spec_inside_a_batch_of_one_device_each():
    need(4)
    mesh = line(4)
    matrices = np.stack([spd(8, seed=s) for s in range(8)])
    logdet = jax.jit(jax.vmap(linalg.logdet))
    placed = put(matrices, mesh, "x", None, None)
    value = logdet(placed)
    assert relative(value, np.linalg.slogdet(matrices)[1]) < 1e-13
    assert value.sharding.is_equivalent_to(jax.NamedSharding(mesh, P("x")), 1)
    assert "all-gather" not in logdet.lower(placed).compile().as_text()
