"""The Cholesky factor in natural order: values, shardings, failures, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import _native, linalg
from matrices import DTYPES, HARD, general, spd
from meshes import AUTO, EXPLICIT, grid, line, put
from residuals import LIMIT, assert_solved, factor_residual, inverse_residual, relative


def check_factor(a, lower):
    lower = np.asarray(lower)
    assert (np.triu(lower, 1) == 0).all()
    assert (np.real(np.diagonal(lower)) > 0).all()
    assert factor_residual(a, lower) <= LIMIT


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 3, 8])
def test_factor(dtype, devices):
    mesh = line(devices)
    for n in (0, 1, 7, 33) if dtype == "float64" else (8, 33):
        a = spd(n, dtype)
        lower, status = linalg.cholesky(a, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert lower.shape == a.shape
        check_factor(a, lower)
        upper = linalg.cholesky(a, mesh=mesh, upper=True)
        assert np.array_equal(upper, np.conj(np.asarray(lower)).T)


@pytest.mark.parametrize("tile", [1, 3, 100])
def test_every_tile(tile, mesh):
    a = spd(40)
    check_factor(a, linalg.cholesky(put(a, mesh, "x", None), T_A=tile))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", sorted(HARD))
def test_hard_matrices(kind, dtype, mesh):
    a = HARD[kind](96, dtype)
    placed = put(a, mesh, "x", None)
    check_factor(a, linalg.cholesky(placed))
    factor = linalg.cho_factor(placed, order="natural")
    b = general(96, 2, dtype)
    assert_solved(a, factor.solve(b), b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x",), (None, "x")])
def test_rows_stay_on_their_devices(kind, spec):
    mesh = line(2, kind=kind)
    a = spd(16)
    for upper in (False, True):
        x = linalg.cholesky(put(a, mesh, *spec), upper=upper)
        check_factor(a, np.asarray(x).T if upper else x)
        assert {s.device for s in x.addressable_shards} == set(mesh.devices.flat)
        if spec[0] == "x":
            assert x.addressable_shards[0].data.shape == (8, 16)


def test_meshes_of_all_kinds():
    a = spd(24)
    check_factor(a, linalg.cholesky(put(a, grid(2, 2), "x", "y")))
    check_factor(a, linalg.cholesky(put(a, line(4, order=(6, 1, 4, 3)), "x", None)))
    check_factor(a, linalg.cholesky(a.tolist()))


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle(lower, mesh):
    a = spd(16, "complex128")
    valid = np.tri(16, dtype=bool)
    half = np.where(valid if lower else valid.T, a, np.nan)
    check_factor(a, linalg.cholesky(put(half, mesh, "x", None), lower=lower))
    if lower:
        check_factor(a, linalg.cholesky(put(half, mesh, "x", None), symmetrize_input=False))


def test_failure(mesh):
    a = spd(24)
    a[6, 6] = -1
    placed = put(a, mesh, "x", None)
    lower, status = linalg.cholesky(placed, return_status=True)
    assert int(status) == 7
    assert np.isnan(lower).all()
    with pytest.raises(jaxmg.NotPositiveDefiniteError) as caught:
        linalg.cholesky(placed, check=True)
    assert caught.value.index == 7
    factor = linalg.cho_factor(placed, order="natural")
    assert int(factor.status) == 7
    assert np.isnan(factor.solve(np.ones(24))).all()


def test_matrix_is_kept_unless_donated(mesh):
    a = spd(16)
    kept = put(a, mesh, "x", None)
    linalg.cholesky(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    check_factor(a, linalg.cholesky(given, donate=True))
    assert given.is_deleted()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("upper", [False, True])
def test_derivatives(dtype, upper, mesh):
    n = 16
    a, weight = spd(n, dtype), general(n, n, dtype, seed=3)
    placed = put(a, mesh, "x", None)

    def value(function):
        return lambda a: jnp.sum(jnp.real(weight * function(a, upper=upper)))

    ours, theirs = value(linalg.cholesky), value(jnp.linalg.cholesky)
    assert relative(jax.grad(ours)(placed), jax.jit(jax.grad(theirs))(a)) < 1e-12
    direction = spd(n, dtype, seed=9)
    got = jax.jvp(linalg.cholesky, (placed,), (put(direction, mesh, "x", None),))
    want = jax.jvp(jnp.linalg.cholesky, (jnp.asarray(a),), (jnp.asarray(direction),))
    assert max(map(relative, got, want)) < 1e-12
    second = jax.jit(jax.grad(lambda a: jnp.sum(jnp.real(weight * jax.grad(ours)(a)))))
    expected = jax.grad(lambda a: jnp.sum(jnp.real(weight * jax.grad(theirs)(a))))
    assert relative(second(placed), expected(jnp.asarray(a))) < 1e-10


@pytest.mark.parametrize("n", [5, 16])
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_derivatives_on_typed_and_uneven_rows(n, kind):
    mesh = line(2, kind=kind)
    a, weight = spd(n), general(n, n, seed=3)
    placed = put(a, mesh, "x", None) if n % 2 == 0 else put(a, mesh)
    with jax.set_mesh(mesh):
        found = jax.jit(jax.grad(lambda a: jnp.sum(weight * linalg.cholesky(a))))(placed)
    expected = jax.grad(lambda a: jnp.sum(weight * jnp.linalg.cholesky(a)))(jnp.asarray(a))
    assert relative(found, expected) < 1e-12


def test_the_gradient_lies_in_the_triangle_that_is_read(mesh):
    """d sum(L) of [[4, 1], [1, 3]] in the lower triangle, where an element stands for two."""
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    found = jax.grad(lambda a: jnp.sum(linalg.cholesky(a, symmetrize_input=False)))(a)
    expected = [[0.20634, 0.0], [0.34924, 0.30151]]
    assert np.allclose(found, expected, atol=1e-5)
    whole = jax.grad(lambda a: jnp.sum(linalg.cholesky(a)))(a)
    assert np.allclose(whole, [[0.20634, 0.17462], [0.17462, 0.30151]], atol=1e-5)


def test_one_factorisation_for_value_and_gradient(mesh):
    a = put(spd(16), mesh, "x", None)
    f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(linalg.cholesky(a) ** 2)))
    jax.block_until_ready(f(a))
    before = _native.counter("potrf")
    jax.block_until_ready(f(a))
    assert _native.counter("potrf") == before + 1


@pytest.mark.parametrize("count", [3, 8])
def test_batches(count, mesh):
    batch = np.stack([spd(8, seed=k) for k in range(count)])
    for lower in (linalg.cholesky(batch, mesh=mesh), jax.vmap(linalg.cholesky)(batch)):
        for a, one in zip(batch, lower, strict=True):
            check_factor(a, one)


def test_factor_object(mesh):
    a, b = spd(24), general(24, 2)
    placed = put(a, mesh, "x", None)
    factor = linalg.cho_factor(placed, order="natural", T_A=2)
    lower, order = factor.factor()
    check_factor(a, lower)
    assert np.array_equal(order, np.arange(24))
    assert lower.addressable_shards[0].data.shape == (24 // mesh.size, 24)
    assert_solved(a, factor.solve(put(b, mesh, "x", None)), b)
    assert inverse_residual(a, factor.inv()) <= LIMIT
    assert float(factor.logdet()) == pytest.approx(np.linalg.slogdet(a)[1])
    value = lambda f: lambda a: jnp.sum(f(a).solve(b) ** 2) + f(a).logdet()  # noqa: E731
    natural = jax.grad(value(lambda a: linalg.cho_factor(a, order="natural")))(placed)
    assert relative(natural, jax.grad(value(linalg.cho_factor))(placed)) < 1e-11
    given = put(a, mesh, "x", None)
    assert_solved(a, linalg.cho_factor(given, overwrite_a=True, order="natural").solve(b), b)
    assert given.is_deleted()
    with pytest.raises(ValueError, match="order"):
        linalg.cho_factor(a, order="pivoted")


def test_arguments():
    with pytest.raises(ValueError, match="a has shape"):
        linalg.cholesky(np.ones((2, 3)))
    with pytest.raises(TypeError, match="float16"):
        linalg.cholesky(np.ones((2, 2), np.float16))
    assert linalg.cholesky(np.eye(3, dtype=int)).dtype == np.float64
