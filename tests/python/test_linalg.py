"""The factor object, and the functions with the names and conventions of SciPy and JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
import reference
from jaxmg import _native, linalg
from matrices import DTYPES, general, hermitian, spd
from meshes import AUTO, EXPLICIT, grid, line, put
from residuals import LIMIT, assert_solved, factor_residual, inverse_residual, relative

N = 20


@pytest.mark.parametrize("dtype", DTYPES)
def test_factor(dtype):
    mesh = line(4)
    a, b = spd(N, dtype), general(N, 2, dtype)
    factor = linalg.cho_factor(a, mesh=mesh, T_A=2)
    assert factor.shape == (N, N)
    assert factor.dtype == dtype
    assert int(factor.status) == 0
    assert_solved(a, factor.solve(b), b)
    assert_solved(a, factor.solve(b[:, 0]), b[:, 0])
    lower, order = map(np.asarray, factor.factor())
    assert (np.sort(order) == np.arange(N)).all()
    assert (np.triu(lower, 1) == 0).all()
    assert factor_residual(a[order][:, order], lower) <= LIMIT
    assert inverse_residual(a, factor.inv()) <= LIMIT
    assert relative(factor.logdet(), np.linalg.slogdet(a)[1].astype(dtype).real) < 1e-4


@pytest.mark.parametrize("n", [0, 1, 7, 13])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_factor_of_any_size(n, ranks):
    a, b = spd(n), general(n, 2)
    factor = linalg.cho_factor(a, mesh=line(ranks))
    assert_solved(a, factor.solve(b), b)
    lower, order = map(np.asarray, factor.factor()) if n else (np.zeros((0, 0)), [])
    assert factor_residual(a[order][:, order] if n else a, lower) <= LIMIT
    assert float(factor.logdet()) == pytest.approx(np.linalg.slogdet(a)[1])


def test_pair_as_in_scipy(mesh):
    a, b = spd(N), general(N, 2)
    c, lower = linalg.cho_factor(a, True, mesh=mesh)
    assert lower is True
    assert_solved(a, linalg.cho_solve((c, lower), b), b)
    assert_solved(a, linalg.cho_solve(linalg.cho_factor(a, mesh=mesh), b), b)
    with pytest.raises(TypeError, match="c_and_lower"):
        linalg.cho_solve(("a", True), b)


def test_factor_is_reused(mesh):
    a, b = put(spd(16), mesh, "x"), general(16, 2)
    factor = jax.block_until_ready(linalg.cho_factor(a))
    _native.reset_counters()
    for _ in range(3):
        jax.block_until_ready(factor.solve(b))
    assert (_native.counter("potrf"), _native.counter("potrs")) == (0, 3)


def test_factor_passes_through_transformations(mesh):
    a, b = spd(16), general(16, 2)
    placed = put(a, mesh, "x", None)
    factor = linalg.cho_factor(placed)
    assert_solved(a, jax.jit(lambda f, b: f.solve(b))(factor, b), b)
    inside = jax.jit(lambda a, b: linalg.cho_solve(linalg.cho_factor(a), b))
    assert_solved(a, inside(placed, b), b)
    last, _ = jax.lax.scan(lambda c, _: (factor.solve(c), None), b, None, length=2)
    assert relative(last, np.linalg.solve(a, np.linalg.solve(a, b))) < 1e-12
    columns = jax.vmap(factor.solve, 1, 1)(b)
    assert_solved(a, columns, b)
    leaves, tree = jax.tree.flatten(factor)
    assert_solved(a, jax.tree.unflatten(tree, leaves).solve(b), b)
    made = jax.jit(linalg.cho_factor)(placed)
    assert_solved(a, made.solve(b), b)


def test_derivatives_through_a_factor(mesh):
    a, b = spd(16), general(16, 2)

    def value(a, b):
        factor = linalg.cho_factor(a, mesh=mesh)
        return jnp.sum(jnp.sin(factor.solve(b))) + factor.logdet() + jnp.sum(factor.inv() ** 3)

    def expected(a, b):
        x, logdet = reference.solve_logdet(a, b)
        inverse = jnp.linalg.inv(reference.hermitian_part(a))
        return jnp.sum(jnp.sin(x)) + logdet + jnp.sum(inverse**3)

    found = jax.grad(value, (0, 1))(a, b)
    assert max(map(relative, found, jax.grad(expected, (0, 1))(a, b))) < 1e-11
    factor = linalg.cho_factor(a, mesh=mesh)
    gradient = jax.grad(lambda b: jnp.sum(factor.solve(b)))(b)
    assert relative(gradient, np.linalg.solve(a, np.ones((16, 2)))) < 1e-12


def test_overwritten_matrix(mesh):
    a, b = spd(16), general(16, 2)
    placed = put(a, mesh, "x", None)
    factor = linalg.cho_factor(placed, overwrite_a=True)
    assert placed.is_deleted()
    assert factor.a is None
    assert_solved(a, factor.solve(b), b)
    gradient = jax.grad(lambda b: jnp.sum(factor.solve(b)))(b)
    assert relative(gradient, np.linalg.solve(a, np.ones((16, 2)))) < 1e-12
    with pytest.raises(ValueError, match="overwrite_a"):
        factor.inv()


def test_failed_factor(mesh):
    a = spd(16)
    a[9, 9] = -1
    factor = linalg.cho_factor(a, mesh=mesh)
    assert int(factor.status) == 10
    assert np.isnan(np.asarray(factor.solve(np.ones(16)))).all()
    assert np.isnan(float(factor.logdet()))
    assert np.isnan(np.asarray(factor.factor()[0])).all()


def test_rows_of_the_right_hand_side_stay(mesh):
    a, b = spd(16), general(16, 2)
    right = put(b, mesh, "x", None)
    x = linalg.cho_factor(put(a, mesh, "x")).solve(right)
    assert_solved(a, x, b)
    assert x.sharding.is_equivalent_to(right.sharding, 2)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_factor_on_a_grid(kind):
    mesh = grid(4, 2, kind=kind)
    a, b = spd(16), general(16, 2)
    for spec in (("x", None), ("x", "y"), ()):
        factor = linalg.cho_factor(put(a, mesh, *spec))
        assert_solved(a, factor.solve(b), b)
        lower, order = map(np.asarray, factor.factor())
        assert factor_residual(a[order][:, order], lower) <= LIMIT
        assert inverse_residual(a, factor.inv()) <= LIMIT


# --- batches ---------------------------------------------------------------------------------

BATCHES = [
    ((4, N, N), (4, N, 2)),
    ((4, N, N), (N, 2)),
    ((4, N, N), (N,)),
    ((N, N), (4, N, 2)),
    ((1, N, N), (4, N, 2)),
    ((2, 1, N, N), (3, N, 2)),
]


def batch(shape, make):
    count = int(np.prod(shape[:-2]))
    return np.stack([make(seed) for seed in range(count)]).reshape(shape)


@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
def test_batches_broadcast_as_in_numpy(left, right, mesh):
    a = batch(left, lambda seed: spd(N, seed=seed))
    vector = len(right) == 1
    columns = (*right, 1) if vector else right
    b = batch(columns, lambda seed: general(*columns[-2:], seed=seed))
    expected = np.linalg.solve(a, b)
    if vector:
        b, expected = b[..., 0], expected[..., 0]
    x = linalg.solve(a, b, assume_a="pos", mesh=mesh)
    assert relative(x, expected) < 1e-12
    factor = linalg.cho_factor(a, mesh=mesh)
    assert factor.shape == left
    assert relative(factor.solve(b), expected) < 1e-12


def test_members_of_a_batch_of_factors(mesh):
    a, b = batch((9, N, N), lambda seed: spd(N, seed=seed)), general(N, 2)
    factor = linalg.cho_factor(a, mesh=mesh)
    assert np.asarray(factor.status).tolist() == [0] * 9
    assert relative(factor.logdet(), np.linalg.slogdet(a)[1]) < 1e-12
    assert relative(linalg.logdet(a, mesh=mesh), np.linalg.slogdet(a)[1]) < 1e-12
    member = jax.tree.map(lambda x: x[5], factor)
    assert_solved(a[5], member.solve(b), b)


def test_table_of_shapes(mesh):
    """Only a b of one axis is a vector; anything else is a matrix, with batch axes in front."""
    solve = lambda a, b: linalg.solve(a, b, assume_a="pos", mesh=mesh)  # noqa: E731
    eye = np.eye(2)
    assert solve(eye, np.ones(2)).shape == (2,)
    assert solve(np.stack([eye, eye]), np.ones((2, 2))).shape == (2, 2, 2)
    for a, b in ((eye[None], np.ones((3, 2))), (eye, np.ones(3)), (eye, np.ones((3, 2)))):
        with pytest.raises(ValueError, match="b has shape"):
            solve(a, b)
    with pytest.raises(ValueError, match="a has shape"):
        solve(np.ones((2, 3)), np.ones(3))


def test_log_determinant(mesh):
    for dtype in DTYPES:
        a = spd(N, dtype)
        value = linalg.logdet(a, mesh=mesh)
        assert value.dtype == np.finfo(dtype).dtype
        assert float(value) == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-5)
    assert np.isnan(float(linalg.logdet(hermitian(N), mesh=mesh)))
    assert float(linalg.logdet(np.zeros((0, 0)), mesh=mesh)) == 0


def test_mixed_dtypes_with_a_factor(mesh):
    factor = linalg.cho_factor(spd(8, "float32"), mesh=mesh)
    assert factor.solve(np.ones(8, np.float32)).dtype == np.float32
    with pytest.raises(TypeError, match="float64"):
        factor.solve(np.ones(8))


def test_names_at_top_level():
    for name in jaxmg.__all__:
        assert hasattr(jaxmg, name)
    for name in linalg.__all__:
        assert hasattr(linalg, name)
