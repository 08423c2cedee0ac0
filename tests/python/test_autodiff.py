"""Derivatives of any order agree with those of plain JAX, from one factorisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxmg
import reference
from jaxmg import _native
from matrices import general, hermitian, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import relative

N = 16
TOLERANCE = 1e-12
REAL_AND_COMPLEX = pytest.mark.parametrize("dtype", ["float64", "complex128"])
TRIANGLES = pytest.mark.parametrize("lower", [None, True, False])


def solve(a, b, **options):
    return jaxmg.potrs(a, b, **options)


def solve_logdet(a, b, **options):
    return jaxmg.potrs(a, b, return_logdet=True, **options)


def value_of_solve(function):
    return lambda a, b, **o: jnp.real(jnp.sum(jnp.sin(function(a, b, **o))))


def value_of_both(function):
    def value(a, b, **options):
        x, logdet = function(a, b, **options)
        return jnp.real(jnp.sum(jnp.sin(x))) + 0.3 * logdet

    return value


def data(dtype, lower=None):
    a, b = spd(N, dtype), general(N, 2, dtype)
    if lower is not None:
        a = np.where(np.tri(N, dtype=bool) if lower else np.tri(N, dtype=bool).T, a, np.nan)
    return a.astype(dtype), b


@REAL_AND_COMPLEX
@TRIANGLES
def test_gradient(dtype, lower, mesh):
    a, b = data(dtype, lower)
    mine = value_of_both(lambda a, b: solve_logdet(a, b, lower=lower))
    theirs = value_of_both(lambda a, b: reference.solve_logdet(a, b, lower))
    clean = np.nan_to_num(a)
    placed = put(a, mesh, "x", None)
    expected, (ea, eb) = jax.jit(jax.value_and_grad(theirs, (0, 1)))(clean, b)
    for wrap in (lambda f: f, jax.jit):
        value, (ga, gb) = wrap(jax.value_and_grad(mine, (0, 1)))(placed, b)
        assert float(value) == pytest.approx(float(expected), rel=1e-12)
        assert relative(ga, ea) < TOLERANCE
        assert relative(gb, eb) < TOLERANCE
        assert ga.sharding.is_equivalent_to(placed.sharding, 2)


@REAL_AND_COMPLEX
@TRIANGLES
def test_forward_mode(dtype, lower, mesh):
    a, b = data(dtype, lower)
    da, db = hermitian(N, dtype, 3), general(N, 2, dtype, 4)
    mine = lambda a, b: solve_logdet(a, b, lower=lower)  # noqa: E731
    theirs = lambda a, b: reference.solve_logdet(a, b, lower)  # noqa: E731
    found = jax.jit(lambda *v: jax.jvp(mine, v[:2], v[2:]))(put(a, mesh, "x"), b, da, db)
    expected = jax.jvp(theirs, (np.nan_to_num(a), b), (da, db))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert relative(x, y) < TOLERANCE


def test_gradient_conventions(mesh):
    """Whole matrix: the Hermitian gradient, A^-1 for log det. A triangle: both in one place."""
    a = spd(N)
    inverse = np.linalg.inv(a)
    gradient = lambda lower: np.asarray(  # noqa: E731
        jax.grad(lambda a: jaxmg.linalg.logdet(a, lower=lower, mesh=mesh))(a)
    )
    assert relative(gradient(None), inverse) < TOLERANCE
    doubled = 2 * np.tril(inverse, -1) + np.diag(inverse.diagonal())
    assert relative(gradient(True), doubled) < TOLERANCE
    assert relative(gradient(False), doubled.T) < TOLERANCE
    direction = hermitian(N, seed=9)
    slopes = [np.sum(gradient(lower) * direction) for lower in (None, True, False)]
    assert np.ptp(slopes) < TOLERANCE * abs(slopes[0])


def test_gradient_that_is_not_of_a_hermitian_function(mesh):
    """A weight on single elements of x gives a Hermitian gradient all the same."""
    a, b = spd(N, "complex128"), general(N, 1, "complex128")
    g = jax.grad(lambda a: jnp.real(jaxmg.potrs(a, b, mesh=mesh)[3, 0]))(jnp.asarray(a))
    assert relative(g, np.asarray(g).conj().T) < TOLERANCE


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), ("x", "y"), ()], ids=str)
def test_gradient_has_the_sharding_of_the_matrix(kind, spec):
    mesh = grid(4, 2, kind=kind)
    a, b = spd(N), general(N, 2)
    placed, right = put(a, mesh, *spec), put(b, mesh)
    with jax.set_mesh(mesh):
        g = jax.jit(jax.grad(value_of_both(solve_logdet)))(placed, right)
    expected = jax.grad(value_of_both(reference.solve_logdet))(a, b)
    assert relative(g, expected) < TOLERANCE
    if kind == EXPLICIT:
        assert g.sharding.is_equivalent_to(placed.sharding, 2)


@pytest.mark.parametrize(("n", "ranks"), [(1, 3), (13, 3), (4, 8), (12, 8)])
def test_sizes_that_do_not_divide(n, ranks):
    mesh = line(ranks)
    a, b = spd(n), general(n, 2)
    f = value_of_both(lambda a, b: solve_logdet(a, b, mesh=mesh))
    g = jax.jit(jax.grad(f, (0, 1)))(a, b)
    e = jax.grad(value_of_both(reference.solve_logdet), (0, 1))(a, b)
    assert max(map(relative, g, e)) < TOLERANCE


def test_padded_matrix(mesh):
    need(8)
    n = 13
    padded = np.full((16, n), np.nan)
    padded[:n] = spd(n)
    b = general(n, 2)
    f = value_of_both(lambda a, b: solve_logdet(a, b, n=n))
    g = np.asarray(jax.jit(jax.grad(f))(put(padded, mesh, "x", None), b))
    assert relative(g[:n], jax.grad(value_of_both(reference.solve_logdet))(spd(n), b)) < TOLERANCE
    assert (g[n:] == 0).all()


def test_factorisations_are_shared(mesh):
    placed, b = put(spd(N), mesh, "x", None), general(N, 2)
    step = jax.jit(jax.value_and_grad(value_of_both(solve_logdet), (0, 1)))
    jax.block_until_ready(step(placed, b))
    _native.reset_counters()
    jax.block_until_ready(step(placed, b))
    assert _native.counter("potrf") == 1
    forward = jax.jit(lambda a, b: jax.jvp(solve_logdet, (a, b), (a, b)))
    jax.block_until_ready(forward(placed, b))
    _native.reset_counters()
    jax.block_until_ready(forward(placed, b))
    assert _native.counter("potrf") == 1


def gaussian_process(solve_logdet, dtype="float64"):
    """Log marginal likelihood of four parameters."""
    x, y = general(N, 2, seed=5), general(N, 1, seed=6)[:, 0].astype(dtype)

    def likelihood(theta):
        d = (((x[:, None] - x[None]) ** 2) / jnp.exp(theta[:2])).sum(-1)
        k = jnp.exp(theta[2] - d) + (0.3 + jnp.exp(theta[3])) * jnp.eye(N)
        alpha, logdet = solve_logdet(k.astype(dtype), y)
        return -0.5 * jnp.real(jnp.vdot(y, alpha)) - 0.5 * logdet

    return likelihood


@REAL_AND_COMPLEX
def test_hessian_of_a_gaussian_process(dtype, mesh):
    theta = jnp.array([0.1, -0.2, 0.3, -1.0])
    mine = gaussian_process(lambda a, b: solve_logdet(a, b, mesh=mesh), dtype)
    theirs = gaussian_process(reference.solve_logdet, dtype)
    hessian = jax.jit(jax.hessian(mine))
    assert relative(hessian(theta), jax.jit(jax.hessian(theirs))(theta)) < 1e-11
    _native.reset_counters()
    jax.block_until_ready(hessian(theta))
    assert _native.counter("potrf") == 1


@pytest.mark.parametrize("lower", [None, True])
def test_second_order_in_reverse_over_reverse(lower, mesh):
    a, b, c = spd(N), general(N, 1), hermitian(N, seed=2)

    def twice(function):
        f = lambda s, a: value_of_both(function)(a + s * c, b)  # noqa: E731
        return jax.grad(lambda s, a: jax.grad(f)(s, a) ** 2)(0.1, a)

    mine = jax.jit(lambda: twice(lambda a, b: solve_logdet(a, b, lower=lower, mesh=mesh)))()
    theirs = jax.jit(lambda: twice(lambda a, b: reference.solve_logdet(a, b, lower)))()
    assert relative(mine, theirs) < 1e-11


def test_numerical_derivatives(mesh):
    f = lambda a, b: solve(reference.hermitian_part(a), b, mesh=line(2))  # noqa: E731
    check_grads(f, (spd(6), general(6, 2)), order=2, rtol=1e-4, atol=1e-4)


def test_linear_in_the_right_hand_side(mesh):
    a, b = spd(N, "complex128"), general(N, 2, "complex128")
    placed = put(a, mesh, "x", None)
    f = lambda b: solve(placed, b)  # noqa: E731
    (found,) = jax.linear_transpose(f, b)(b)
    assert relative(found, np.linalg.solve(a.T, b)) < TOLERANCE
    _, push = jax.linearize(f, b)
    assert relative(push(b), np.linalg.solve(a, b)) < TOLERANCE
    jacobian = jax.jit(jax.jacfwd(lambda b: solve(placed, b)))(jnp.real(b[:, 0]) + 0.0)
    assert relative(jacobian, np.linalg.inv(a)) < TOLERANCE


def test_rows_of_the_right_hand_side(mesh):
    a, b = spd(N), general(N, 2)
    left, right = put(a, mesh, "x", None), put(b, mesh, "x", None)
    g = jax.grad(value_of_solve(solve), (0, 1))(left, right)
    e = jax.grad(value_of_solve(reference.solve), (0, 1))(a, b)
    assert max(map(relative, g, e)) < TOLERANCE


def test_in_loops_with_rematerialisation(mesh):
    a, b = spd(N), general(N, 1)

    def loop(solve):
        step = jax.checkpoint(lambda c, a: (jnp.sin(solve(a, c)), None))
        return lambda a: jax.lax.scan(lambda c, _: step(c, a), b, None, length=3)[0].sum()

    g = jax.jit(jax.grad(loop(solve)))(put(a, mesh, "x", None))
    assert relative(g, jax.grad(loop(reference.solve))(a)) < 1e-11


def test_matrix_whose_function_has_a_symmetric_gradient(mesh):
    """log det of a 3 x 3 matrix: the gradient is the inverse."""
    a = np.array([[4.0, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]])
    g = jax.grad(lambda a: jaxmg.linalg.logdet(a, mesh=mesh))(a)
    assert relative(g, np.linalg.inv(a)) < TOLERANCE


def test_single_device():
    a, b = spd(N), general(N, 2)
    g = jax.jit(jax.grad(value_of_both(solve_logdet), (0, 1)))(a, b)
    e = jax.grad(value_of_both(reference.solve_logdet), (0, 1))(a, b)
    assert max(map(relative, g, e)) < TOLERANCE
