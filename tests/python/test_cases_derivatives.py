"""Which derivative is meant, and that it is finite where it exists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import linalg
from matrices import general, spd
from meshes import line
from residuals import relative

A = np.array([[4.0, 1.0], [1.0, 3.0]])
B = np.array([1.0, -2.0])
VALUES = {
    "logdet": lambda a, **o: linalg.logdet(a, **o),
    "solve": lambda a, **o: jnp.sum(jnp.sin(jaxmg.potrs(a, B, **o))),
    "factor": lambda a, *, lower, **o: linalg.cho_factor(a, lower, **o).logdet(),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("lower", [True, False])
def test_gradient_stays_in_the_triangle(lower, value, ranks):
    """Element by element the same as finite differences, zero where nothing is read."""
    function = lambda a: VALUES[value](a, lower=lower, mesh=line(ranks))  # noqa: E731
    ignored = (0, 1) if lower else (1, 0)
    found = np.asarray(jax.grad(function)(A))
    assert found[ignored] == 0
    step = 1e-6
    for place in ((0, 0), (1, 1), ignored[::-1]):
        change = np.zeros((2, 2))
        change[place] = step
        slope = (float(function(A + change)) - float(function(A - change))) / (2 * step)
        assert found[place] == pytest.approx(slope, rel=1e-7)
    a = A.copy()
    a[ignored] = np.nan
    assert relative(jax.grad(function)(a), found) < 1e-14


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_conventions_agree_along_symmetric_directions(ranks, value):
    mesh = line(ranks)
    grads = [
        np.asarray(jax.grad(lambda a, lower=lower: VALUES[value](a, lower=lower, mesh=mesh))(A))
        for lower in (None, True, False)
    ]
    assert relative(grads[0], grads[0].T) < 1e-15
    for direction in (np.eye(2), np.array([[0.0, 1], [1, 0]]), np.array([[1.0, 2], [2, -3]])):
        slopes = [np.sum(g * direction) for g in grads]
        assert np.ptp(slopes) <= 1e-14 * max(1, abs(slopes[0]))


def test_log_determinant_of_three(mesh):
    a = np.array([[4.0, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]])
    assert relative(jax.grad(lambda a: linalg.logdet(a, mesh=mesh))(a), np.linalg.inv(a)) < 1e-14


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("count", [3, 8])
def test_gradient_of_a_batch_is_the_batch_of_gradients(count, ranks):
    a = np.stack([spd(4, seed=s) for s in range(count)])
    b = general(count, 4)
    mesh = line(ranks)
    one = lambda a, b: jnp.sum(jaxmg.potrs(a, b, mesh=mesh) ** 2)  # noqa: E731
    together = jax.grad(lambda a, b: jnp.sum(jax.vmap(one)(a, b)), (0, 1))(a, b)
    apart = jax.vmap(jax.grad(one, (0, 1)))(a, b)
    each = [jax.grad(one, (0, 1))(a[i], b[i]) for i in range(count)]
    for i, parts in enumerate(zip(*each, strict=True)):
        assert relative(together[i], np.stack(parts)) < 1e-13
        assert relative(apart[i], np.stack(parts)) < 1e-13


def test_derivatives_of_a_failure_are_nan(mesh):
    """Never finite numbers that look like a gradient, and no exception under jit."""
    a = spd(8)
    a[3, 3] = -1
    for lower in (None, True):
        value = lambda a, low=lower: jnp.sum(jaxmg.potrs(a, jnp.ones(8), mesh=mesh, lower=low))  # noqa: E731
        assert np.isnan(np.asarray(jax.jit(jax.grad(value))(a))).any()
        logdet = lambda a, low=lower: linalg.logdet(a, mesh=mesh, lower=low)  # noqa: E731
        assert np.isnan(np.asarray(jax.jit(jax.grad(logdet))(a))).any()


def test_repeated_eigenvalues_do_not_matter(mesh):
    for a in (np.eye(6), np.diag([4.0, 1, 1, 1, 1, 1])):
        g = jax.grad(lambda a: linalg.logdet(a, mesh=mesh))(a)
        assert relative(g, np.linalg.inv(a)) < 1e-15


def test_matrix_given_twice(mesh):
    """x = A^-1 A = I whatever A is: its derivative is zero."""
    g = jax.grad(lambda a: jnp.sum(jnp.sin(jaxmg.potrs(a, a, mesh=mesh))))(spd(8))
    assert np.max(np.abs(np.asarray(g + g.T))) < 1e-13
