"""Solutions with general matrices: values, shapes, shardings, failures, memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native, errors
from matrices import DTYPES, general
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved
from test_compile import largest_collective

N = 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 3, 4, 8])
def test_every_size(dtype, ranks):
    mesh = line(ranks)
    for n in sorted({0, 1, ranks - 1, ranks + 1, 33}):
        a, b = general(n, n, dtype), general(n, 2, dtype, 5)
        x, status = jaxmg.lu_solve(a, b, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert x.dtype == dtype
        assert_solved(a, x, b)


@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_vectors_and_no_right_hand_sides(ranks):
    a = general(13, 13)
    for b in (general(13, 1)[:, 0], general(13, 0), general(13, 513)):
        assert_solved(a, jaxmg.lu_solve(a, b, mesh=line(ranks)), b)


@pytest.mark.parametrize("tile", [1, 2, 5, 8, 100])
def test_every_tile(tile, mesh):
    a, b = general(37, 37), general(37, 3)
    assert_solved(a, jaxmg.lu_solve(a, b, tile, mesh), b)


def test_several_tiles_on_each_device():
    a, b = general(300, 300), general(300, 2)
    for ranks in (1, 3, 8):
        assert_solved(a, jaxmg.lu_solve(a, b, mesh=line(ranks)), b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [("x",), (None, "x"), ("x", "y"), (("x", "y"), None), ()], ids=str)
def test_shardings(spec, kind):
    mesh = grid(4, 2, kind=kind)
    a, b = general(N, N), general(N, 2)
    for call in (jaxmg.lu_solve, jax.jit(jaxmg.lu_solve)):
        assert_solved(a, call(put(a, mesh, *spec), b), b)
        assert_solved(a, call(put(a, mesh, *spec), put(b, mesh, "x", None)), b)


@pytest.mark.parametrize("order", [(3, 1, 0, 2), (7, 5), (2,), (6, 0, 4)])
def test_some_devices_in_any_order(order):
    mesh = line(len(order), order=order)
    a, b = general(12, 12), general(12, 2)
    x = jaxmg.lu_solve(put(a, mesh, "x", None), b)
    assert x.sharding.device_set == set(mesh.devices.flat)
    assert_solved(a, x, b)


def test_rows_of_the_right_hand_side_stay(mesh):
    a, b = general(N, N), general(N, 2)
    right = put(b, mesh, "x", None)
    x = jaxmg.lu_solve(put(a, mesh, "x", None), right)
    assert x.sharding.is_equivalent_to(right.sharding, 2)
    assert_solved(a, x, b)


def test_padded_matrix(mesh):
    need(8)
    n = 13
    a, b = general(n, n), general(n, 2)
    padded = np.concatenate([a, np.full((3, n), np.nan)])
    assert_solved(a, jaxmg.lu_solve(put(padded, mesh, "x", None), b, n=n), b)
    with pytest.raises(ValueError, match=r"n=13"):
        jaxmg.lu_solve(put(padded, mesh, "x", None), b)


def test_positional_arguments_as_of_the_other_routines(mesh):
    a, b = general(N, N), general(N, 2)
    x, status = jaxmg.lu_solve(
        put(a, mesh, "x", None), b, 2, mesh, (P("x", None), P(None, None)), True, True
    )
    assert int(status) == 0
    assert_solved(a, x, b)


def test_integers_and_mixed_types(mesh):
    a = np.array([[0, 2], [1, 3]])
    assert np.allclose(jaxmg.lu_solve(a, np.array([2, 5]), mesh=mesh), [2, 1])
    x = jaxmg.lu_solve(a, np.array([2j, 5j]))
    assert x.dtype == np.complex128
    with pytest.raises(TypeError, match="float16"):
        jaxmg.lu_solve(a.astype(np.float16), np.ones(2))
    for options, message in (
        ({"backend": "other"}, "backend"),
        ({"precision": "low"}, "precision"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxmg.lu_solve(a, np.ones(2), **options)


# --- failures --------------------------------------------------------------------------------


def _singular(*rows):
    a = general(N, N)
    for row in rows:
        a[row] = 0
    return a


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_dependent_equation(ranks):
    mesh = line(ranks)
    for row in range(N):
        x, status = jaxmg.lu_solve(_singular(row), np.ones(N), mesh=mesh, return_status=True)
        assert int(status) == row + 1
        assert np.isnan(x).all()


def test_the_first_one_in_the_order_of_elimination(mesh):
    need(8)
    # With one row of each tile on eight devices, even rows come before odd ones.
    options = {"T_A": 1, "mesh": mesh, "return_status": True}
    assert int(jaxmg.lu_solve(_singular(3, 12), np.ones(N), **options)[1]) == 13
    assert int(jaxmg.lu_solve(_singular(3, 13), np.ones(N), **options)[1]) == 4


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_input_that_is_not_finite(bad, mesh):
    a = general(N, N)
    a[7, 11] = bad
    x, status = jaxmg.lu_solve(put(a, mesh, "x"), np.ones((N, 2)), return_status=True)
    assert int(status) == errors.NON_FINITE
    assert np.isnan(x).all()
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.lu_solve(a, np.ones(N), mesh=mesh, check=True)


def test_exception_and_a_good_call_after_it(mesh):
    for matrix, index in ((_singular(4), 5), (np.array([[1.0, 2], [2, 4]]), 2)):
        with pytest.raises(jaxmg.SingularMatrixError) as caught:
            jaxmg.lu_solve(matrix, np.ones(len(matrix)), mesh=mesh, check=True)
        assert caught.value.index == index
    a = general(N, N)
    assert_solved(a, jaxmg.lu_solve(a, np.ones(N), mesh=mesh, check=True), np.ones(N))


# --- memory and communication ----------------------------------------------------------------


def test_matrix_is_kept_unless_donated(mesh):
    a, b = general(N, N), general(N, 2)
    kept = put(a, mesh, "x", None)
    assert_solved(a, jaxmg.lu_solve(kept, b), b)
    assert np.array_equal(kept, a)
    assert_solved(a, jaxmg.lu_solve(kept, b, donate=True), b)
    assert kept.is_deleted()
    both = put(a, mesh, "x", None)
    assert_solved(a, jaxmg.lu_solve(both, both, donate=True), a)


@pytest.mark.parametrize("rows", [(), ("x", None)])
def test_the_matrix_is_gathered_nowhere(rows, mesh):
    need(2)
    n = 1024
    kind = jax.ShapeDtypeStruct
    a = kind((n, n), np.float64, sharding=jax.sharding.NamedSharding(mesh, P("x", None)))
    b = kind((n, 2), np.float64, sharding=jax.sharding.NamedSharding(mesh, P(*rows)))
    program = jax.jit(jaxmg.lu_solve).lower(a, b).compile()
    assert largest_collective(program) <= 2 * n
    shard = n * n * 8 // mesh.size
    assert program.memory_analysis().temp_size_in_bytes < 1.5 * shard


def test_one_factorisation(mesh):
    a, b = put(general(N, N), mesh, "x"), general(N, 2)
    loss = jax.jit(jax.value_and_grad(lambda a, b: jnp.sum(jaxmg.lu_solve(a, b) ** 2), (0, 1)))
    jax.block_until_ready(loss(a, b))
    _native.reset_counters()
    jax.block_until_ready(loss(a, b))
    assert (_native.counter("getrf"), _native.counter("getrs")) == (1, 2)


def test_same_bits_every_time(mesh):
    a, b = put(general(50, 50), mesh), general(50, 2)
    first = np.asarray(jaxmg.lu_solve(a, b))
    for _ in range(20):
        assert np.array_equal(first, jaxmg.lu_solve(a, b))


def test_plan():
    plan = jaxmg.plan("lu_solve", 65536, "float64", mesh=8)
    assert plan.flops == pytest.approx(2 / 3 * 65536**3, rel=1e-3)
    assert plan.bytes_by_purpose["matrix"] == 65536 * 8192 * 8
    assert plan.bytes_by_purpose["pivots"] == 2 * 65536 * 4
    assert "row interchanges" in str(plan)
