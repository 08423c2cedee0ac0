"""Cholesky factors of matrices that change by little, against new factorisations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmg import _native, linalg
from matrices import HARD, badly_scaled, general, spd
from meshes import EXPLICIT, line, put
from residuals import LIMIT, assert_solved, factor_residual, inverse_residual, norm1, relative


def adjoint(x):
    return np.conj(np.asarray(x)).T


def square(v):
    v = np.asarray(v).reshape(len(v), -1)
    return v @ adjoint(v)


def check(a, factor):
    """Everything that is asked of a factor, against the matrix."""
    b = general(len(a), 2, a.dtype)
    assert int(factor.status) == 0
    assert_solved(a, factor.solve(b), b)
    lower, order = map(np.asarray, factor.factor())
    assert factor_residual(a[order][:, order], lower) <= LIMIT
    assert inverse_residual(a, factor.inv()) <= LIMIT
    expected = np.linalg.slogdet(a)[1]
    assert float(factor.logdet()) == pytest.approx(expected, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize(
    ("dtype", "devices", "n"),
    [
        ("float32", 1, 9),
        ("float64", 3, 7),
        ("complex64", 2, 16),
        ("complex128", 8, 16),
        ("float64", 8, 3),
    ],
)
@pytest.mark.parametrize("order", ["relabelled", "natural"])
def test_update_and_downdate(dtype, devices, n, order):
    a, v = spd(n, dtype), general(n, 2, dtype, seed=4)
    factor = linalg.cho_factor(a, mesh=line(devices), order=order, T_A=2)
    more = linalg.cho_update(factor, v)
    check(a + square(v), more)
    check(a, linalg.cho_update(more, v, True))
    check(a + square(v[:, 0]), linalg.cho_update(more, v[:, 1], downdate=True))
    assert_solved(a, factor.solve(v), v)  # the old one is as it was


def test_no_new_factorisation(mesh):
    a, v = put(spd(16), mesh, "x", None), general(16, 1)
    factor = jax.block_until_ready(linalg.cho_factor(a))
    _native.reset_counters()
    jax.block_until_ready(linalg.cho_update(factor, v).solve(v))
    assert (_native.counter("potrf"), _native.counter("cholupdate")) == (0, 1)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_triangular_arrays(dtype, upper, mesh):
    a, v = spd(16, dtype), general(16, 2, dtype, seed=4)
    x = linalg.cholesky(put(a, mesh, "x", None), upper=upper)
    new, status = linalg.cho_update(x, v, lower=not upper, return_status=True)
    assert int(status) == 0
    expected = linalg.cholesky(a + square(v), upper=upper)
    assert relative(new, expected) < 1e-13
    assert new.sharding.is_equivalent_to(x.sharding, 2)
    pair, is_lower = linalg.cho_update((x, not upper), v)
    assert is_lower is not upper
    assert_solved(a + square(v), linalg.cho_solve((pair, is_lower), v), v)


def test_uneven_arrays():
    a, v = spd(13), general(13, 1, seed=4)
    lower = linalg.cholesky(a, mesh=line(3))
    assert factor_residual(a + square(v), linalg.cho_update(lower, v, mesh=line(3))) <= LIMIT


@pytest.mark.parametrize("kind", sorted(HARD))
def test_hard_matrices(kind, mesh):
    """What has been added is taken away; rounding is that of the larger matrix."""
    a, v = HARD[kind](48, "float64"), general(48, 3, seed=4)
    more = a + square(v)
    for order in ("relabelled", "natural"):
        factor = linalg.cho_update(linalg.cho_factor(put(a, mesh, "x", None), order=order), v)
        lower, p = map(np.asarray, factor.factor())
        assert factor_residual(more[p][:, p], lower) <= LIMIT
    wide = badly_scaled(48) + square(v[:, :1])
    less = linalg.cho_update(linalg.cho_factor(put(wide, mesh, "x", None)), v[:, 0], True)
    lower, p = map(np.asarray, less.factor())
    scale = norm1(wide) / norm1(badly_scaled(48))
    assert factor_residual(badly_scaled(48)[p][:, p], lower) <= LIMIT * scale


def test_a_downdate_that_loses_definiteness(mesh):
    a = spd(16)
    v = np.zeros(16)
    v[6] = 2 * np.sqrt(a[6, 6])
    factor = linalg.cho_factor(put(a, mesh, "x", None), order="natural")
    gone, status = linalg.cho_update(factor, v, True, return_status=True)
    assert int(status) == 7
    assert np.isnan(gone.solve(np.ones(16))).all()
    assert np.isnan(float(gone.logdet()))
    assert int(linalg.cho_update(gone, v).status) == 7  # and cannot be mended
    relabelled = linalg.cho_update(linalg.cho_factor(put(a, mesh, "x", None)), v, True)
    order = np.asarray(linalg.cho_factor(put(a, mesh, "x", None)).factor()[1])
    assert order[int(relabelled.status) - 1] == 6
    lower, status = linalg.cho_update(np.linalg.cholesky(a), v, True, mesh=mesh, return_status=True)
    assert int(status) == 7
    assert np.isnan(lower).all()


def test_derivatives_through_a_factor_object(mesh):
    a, v, b = spd(16), general(16, 2, seed=4), general(16, 2)

    def value(a, v):
        factor = linalg.cho_update(linalg.cho_factor(a, mesh=mesh), v)
        return jnp.sum(jnp.sin(factor.solve(b))) + factor.logdet()

    def expected(a, v):
        a = (a + a.T) / 2 + v @ v.T
        return jnp.sum(jnp.sin(jnp.linalg.solve(a, b))) + jnp.linalg.slogdet(a)[1]

    found = jax.grad(value, (0, 1))(a, v)
    assert max(map(relative, found, jax.grad(expected, (0, 1))(a, v))) < 1e-11


@pytest.mark.parametrize("upper", [False, True])
def test_derivatives_of_arrays(upper, mesh):
    a, v, weight = spd(8, "complex128"), general(8, 1, "complex128"), general(8, 8, "complex128")
    x = jnp.linalg.cholesky(a, upper=upper)

    def value(x, v):
        new = linalg.cho_update(x, v, lower=not upper, mesh=mesh)
        return jnp.sum(jnp.real(weight * new))

    def expected(x, v):
        lower = jnp.tril(jnp.conj(x).T if upper else x)
        a = lower @ jnp.conj(lower).T + v @ jnp.conj(v).T
        return jnp.sum(jnp.real(weight * jnp.linalg.cholesky(a, upper=upper)))

    found = jax.grad(value, (0, 1))(x, jnp.asarray(v))
    assert max(map(relative, found, jax.grad(expected, (0, 1))(x, jnp.asarray(v)))) < 1e-11


def test_transformations(mesh):
    a, vectors = spd(16), general(3, 16, seed=4)
    factor = linalg.cho_factor(put(a, mesh, "x", None))
    grown, _ = jax.lax.scan(
        lambda f, v: (linalg.cho_update(f, v), None), factor, jnp.asarray(vectors)
    )
    check(a + vectors.T @ vectors, grown)
    each = jax.vmap(lambda v: linalg.cho_update(factor, v).logdet())(vectors)
    expected = [np.linalg.slogdet(a + square(v))[1] for v in vectors]
    assert relative(each, expected) < 1e-12
    batch = np.stack([spd(16, seed=k) for k in range(3)])
    many = linalg.cho_update(linalg.cho_factor(batch, mesh=mesh), vectors)
    logdets = [np.linalg.slogdet(x + square(v))[1] for x, v in zip(batch, vectors, strict=True)]
    assert relative(many.logdet(), logdets) < 1e-12
    given = linalg.cho_factor(put(a, mesh, "x", None))
    check(a + square(vectors[0]), linalg.cho_update(given, vectors[0], donate=True))
    assert given.parts.work.is_deleted()


def test_explicit_axes():
    mesh = line(2, kind=EXPLICIT)
    a, v = spd(16), general(16, 2, seed=4)
    check(a + square(v), linalg.cho_update(linalg.cho_factor(put(a, mesh, "x", None)), v))


def test_arguments(mesh):
    factor = linalg.cho_factor(spd(8), mesh=mesh)
    with pytest.raises(ValueError, match="cho_update"):
        linalg.cho_update(factor, np.ones(7))
    with pytest.raises(TypeError, match="complex128"):
        linalg.cho_update(factor, np.ones(8, np.complex128))
    with pytest.raises(ValueError, match="a has shape"):
        linalg.cho_update(np.ones((2, 3)), np.ones(3))
    check(spd(8), linalg.cho_update(factor, np.ones((8, 0))))
