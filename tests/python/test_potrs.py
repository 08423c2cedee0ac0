"""Solutions are right for every size, mesh, spec, dtype, tile and number of right-hand sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import DTYPES, HARD, eps, general, spd, wide
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, relative

SIZES = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 125, 126, 257]


def log_determinant(a):
    return np.linalg.slogdet(np.asarray(a).astype(wide(a.dtype)))[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_sizes(n, dtype, mesh):
    a, b = spd(n, dtype), general(n, 3, dtype)
    x, logdet, status = jaxmg.potrs(a, b, mesh=mesh, return_logdet=True, return_status=True)
    assert x.dtype == dtype
    assert_solved(a, x, b)
    assert logdet.dtype == np.finfo(dtype).dtype
    expected = log_determinant(a)
    assert abs(float(logdet) - expected) <= 10 * max(n, 1) * eps(dtype) * max(1, abs(expected))
    assert status.dtype == np.int32
    assert status.shape == ()
    assert int(status) == 0


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("ranks", range(1, 9))
def test_numbers_of_devices(ranks, n):
    a, b = spd(n), general(n, 2)
    assert_solved(a, jaxmg.potrs(a, b, mesh=line(ranks)), b)


@pytest.mark.parametrize("order", [[7, 6, 5, 4, 3, 2, 1, 0], [6, 2, 5, 3], [1, 4, 0], [5]])
def test_orders_and_subsets_of_devices(order):
    a, b = spd(24), general(24, 2)
    mesh = line(len(order), order=order)
    placed = put(a, mesh, "x", None)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        x = function(placed, b)
        assert_solved(a, x, b)
        assert x.sharding.device_set == set(mesh.devices.flat)


def test_one_trace_serves_any_order_of_devices():
    """A jitted function is traced once for equal abstract meshes, whatever the devices."""
    solve = jax.jit(jaxmg.potrs)
    a, b = spd(16), general(16, 1)
    for order in (range(8), range(7, -1, -1), [3, 1, 0, 2, 7, 4, 6, 5]):
        assert_solved(a, solve(put(a, line(8, order=order), "x", None), b), b)


SPECS = [
    ("x",),
    ("x", None),
    (None, "x"),
    ("x", "y"),
    (("x", "y"), None),
    (("y", "x"), None),
    (),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_specs(kind, spec):
    mesh = grid(4, 2, kind=kind)
    a, b = spd(16), general(16, 2)
    placed = put(a, mesh, *spec)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        assert_solved(a, function(placed, b), b)
    with jax.set_mesh(mesh):
        assert_solved(a, jaxmg.potrs(placed, b), b)


@pytest.mark.parametrize("nrhs", [1, 2, 3])
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_columns_on_a_grid_show_their_sharding(kind, nrhs):
    mesh = grid(2, 2, names=("r", "c"), kind=kind)
    a, b = spd(8), general(8, nrhs)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        x = function(put(a, mesh, "r", "c"), put(b, mesh))
        assert_solved(a, x, b)
        assert x.shape == (8, nrhs)
        if kind == EXPLICIT:
            assert jax.typeof(x).sharding.spec == P(None, None)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (1, 8), (8, 1), (1, 1), (3, 2)], ids=str)
def test_axes_of_any_size(shape):
    a, b = spd(24), general(24, 2)
    mesh = grid(*shape)
    assert_solved(a, jaxmg.potrs(put(a, mesh, "x", None), b), b)


@pytest.mark.parametrize("n", [5, 8, 13])
def test_tile_sizes(n):
    a, b = spd(n), general(n, 2)
    for tile in range(1, n + 1):
        assert_solved(a, jaxmg.potrs(a, b, tile, line(3)), b)


@pytest.mark.parametrize("shape", [(17,), (17, 0), (17, 1), (17, 3), (17, 300)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_right_hand_sides(shape, dtype, mesh):
    a = spd(17, dtype)
    b = general(17, int(np.prod(shape[1:])), dtype).reshape(shape)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs, static_argnames="mesh")):
        x = function(a, b, mesh=mesh)
        assert x.shape == shape
        assert_solved(a, x, b)


@pytest.mark.parametrize("nrhs", [255, 256, 257, 1000])
def test_many_right_hand_sides(nrhs):
    a, b = spd(9), general(9, nrhs)
    assert_solved(a, jaxmg.potrs(a, b, mesh=line(4)), b)


@pytest.mark.parametrize("shape", [(0,), (0, 3)], ids=str)
def test_empty(shape, mesh):
    a, b = np.zeros((0, 0)), np.zeros(shape)
    x, logdet, status = jaxmg.potrs(a, b, mesh=mesh, return_logdet=True, return_status=True)
    assert x.shape == shape
    assert x.dtype == a.dtype
    assert float(logdet) == 0
    assert int(status) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(HARD))
def test_hard_matrices(name, dtype, mesh):
    a, b = HARD[name](96, dtype), general(96, 2, dtype)
    x, status = jaxmg.potrs(put(a, mesh, "x", None), b, 4, return_status=True)
    assert int(status) == 0
    assert_solved(a, x, b)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_large_enough_for_several_panels(dtype, mesh):
    a, b = spd(1088, dtype), general(1088, 2, dtype)
    assert_solved(a, jaxmg.potrs(put(a, mesh, "x", None), b), b)


def test_result_does_not_depend_on_the_number_of_devices():
    a, b = spd(60), general(60, 3)
    exact = np.linalg.solve(a, b)
    condition = np.linalg.cond(a)
    for ranks in range(1, 9):
        x = jaxmg.potrs(a, b, mesh=line(ranks))
        assert relative(x, exact) <= 20 * condition * eps(np.float64)


def test_same_bits_every_time(mesh):
    a, b = put(spd(40), mesh, "x", None), general(40, 2)
    first = np.asarray(jaxmg.potrs(a, b, 2))
    for _ in range(100):
        assert (np.asarray(jaxmg.potrs(a, b, 2)) == first).all()


# --- where results lie -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_solution_has_the_sharding_of_the_right_hand_side(kind):
    mesh = grid(4, 2, kind=kind)
    a, b = spd(16), general(16, 8)
    placed = put(a, mesh, "x", None)
    for spec in [(), ("x", None), (("x", "y"), None), (None, "y"), ("y",)]:
        right = put(b, mesh, *spec)
        x = jaxmg.potrs(placed, right)
        assert_solved(a, x, b)
        assert x.sharding.is_equivalent_to(right.sharding, 2), spec


def test_rows_of_the_right_hand_side_stay_where_they_are(mesh):
    a, b = spd(16), general(16, 2)
    specs = (P("x", None), P("x", None))
    solve = jax.jit(lambda a, b: jaxmg.potrs(a, b, in_specs=specs))
    x = solve(put(a, mesh, "x", None), put(b, mesh, "x", None))
    assert_solved(a, x, b)
    assert x.sharding.spec[0] == "x"
    uneven, c = spd(13), general(13, 2)
    assert_solved(uneven, jaxmg.potrs(uneven, c, None, mesh, specs), c)


def test_inputs_on_the_host_and_on_one_device(mesh):
    need(8)
    a, b = spd(16), general(16, 1)
    one = jax.devices()[3]
    for left in (a, a.tolist(), jnp.asarray(a), jax.device_put(a, one)):
        for right in (b, jnp.asarray(b), jax.device_put(b, one)):
            x = jaxmg.potrs(left, right, mesh=mesh)
            assert_solved(a, x, b)
            assert len(x.sharding.device_set) == 8
    assert len(jaxmg.potrs(a, b).sharding.device_set) == 1
    with jax.set_mesh(mesh):
        x = jaxmg.potrs(a, b)
        assert_solved(a, x, b)
        assert len(x.sharding.device_set) == 8


# --- the caller's matrix ---------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lower": True}, {"return_status": True}], ids=str)
def test_matrix_is_unchanged(options, mesh):
    a, b = spd(32), general(32, 2)
    placed, right = put(a, mesh, "x", None), put(b, mesh)
    for function in (jaxmg.potrs, jax.jit(lambda a, b: jaxmg.potrs(a, b, **options))):
        for _ in range(2):
            jax.block_until_ready(function(placed, right))
    assert (np.asarray(placed) == a).all()
    assert (np.asarray(right) == b).all()


@pytest.mark.parametrize(("n", "spec"), [(32, ("x",)), (32, (None, "x")), (31, ())], ids=str)
def test_donated_matrix_is_gone(n, spec, mesh):
    a, b = spd(n), general(n, 2)
    placed = put(a, mesh, *spec)
    x = jaxmg.potrs(placed, b, donate=True)
    assert placed.is_deleted()
    assert_solved(a, x, b)


def test_donation_reuses_the_buffer(mesh):
    # Made by a program: memory that NumPy shares could not be reused.
    a = jax.jit(lambda a: a + 0)(put(spd(64), mesh, "x", None))
    before = {s.data.unsafe_buffer_pointer() for s in a.addressable_shards}
    factor = jaxmg.linalg.cho_factor(a, overwrite_a=True)
    after = {s.data.unsafe_buffer_pointer() for s in factor.parts.work.addressable_shards}
    assert a.is_deleted()
    assert before == after


def test_matrix_as_its_own_right_hand_side(mesh):
    for donate in (False, True):
        a = put(spd(16), mesh, "x", None)
        x = jaxmg.potrs(a, a, donate=donate)
        assert relative(x, np.eye(16)) < 1e-13


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_triangle_is_read(lower, dtype, mesh):
    a, b = spd(33, dtype), general(33, 2, dtype)
    other = np.triu(np.full((33, 33), np.nan), 1)
    dirty = (a + (other if lower else other.T)).astype(dtype)
    x, status = jaxmg.potrs(dirty, b, 2, mesh, lower=lower, return_status=True)
    assert int(status) == 0
    assert_solved(a, x, b)


@pytest.mark.parametrize("lower", [None, True])
def test_imaginary_diagonal_is_ignored(lower, mesh):
    a, b = spd(16, "complex128"), general(16, 1, "complex128")
    x = jaxmg.potrs(a + 0.3j * np.eye(16), b, mesh=mesh, lower=lower)
    assert_solved(a, x, b)


def test_padded_matrices(mesh):
    need(8)
    a, b = spd(13), general(13, 2)
    padded = np.full((16, 13), np.nan)
    padded[:13] = a
    x = jaxmg.potrs(put(padded, mesh, "x", None), b, n=13)
    assert_solved(a, x, b)
    even = spd(16)
    shards = np.full((8 * 3, 16), np.nan)
    for rank in range(8):
        shards[3 * rank : 3 * rank + 2] = even[2 * rank : 2 * rank + 2]
    b = general(16, 2)
    x = jaxmg.potrs(put(shards, mesh, "x", None), b, 3, mesh, P("x", None), False, False)
    assert_solved(even, x, b)


# --- accepted call forms ---------------------------------------------------------------------


def test_published_call_forms(mesh):
    a, b = spd(16), general(16, 2)
    placed = put(a, mesh, "x", None)
    row, whole = P("x", None), P(None, None)
    for specs in (row, (row,), [row], (row, whole)):
        x, status = jaxmg.potrs(placed, b, 4, mesh, specs, True, True)
        assert_solved(a, x, b)
        assert int(status) == 0
        assert_solved(a, jaxmg.potrs(placed, b, T_A=4, mesh=mesh, matrix_specs=specs), b)
        assert_solved(a, jaxmg.potrs(placed, b, 4, mesh, in_specs=specs, donate=False), b)


def test_expressions_of_jax(mesh):
    w, x, b = (put(general(20, 16, seed=s), mesh) for s in range(3))
    gram = w.T @ w + 0.1 * jnp.eye(16)
    found = jaxmg.potrs(gram.astype("float32"), (w.T @ x[:, 0]).astype("float32"))
    expected = np.linalg.solve(np.asarray(gram), np.asarray(w.T @ x[:, 0]))
    assert relative(found, expected) < 1e-3
    assert jaxmg.potrs(w.T @ w + jnp.eye(16), w.T @ x).shape == b[:16].shape
