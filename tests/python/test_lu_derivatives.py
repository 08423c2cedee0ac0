"""Derivatives and vmap of the LU family agree with those of plain JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxmg
from jaxmg import _native, linalg
from matrices import general, hermitian
from meshes import AUTO, EXPLICIT, line, put
from residuals import relative
from test_compile import largest_collective

N = 16
TOLERANCE = 1e-11
REAL_AND_COMPLEX = pytest.mark.parametrize("dtype", ["float64", "complex128"])


def well(n, dtype="float64", seed=0):
    """A general matrix that is well-conditioned, and whose rows do change places."""
    return np.roll(general(n, n, dtype, seed) + 2 * np.eye(n), 3, axis=0)


def data(dtype="float64", seed=0):
    return well(N, dtype, seed), general(N, 2, dtype, seed)


def value_of(solve, slogdet, inv):
    def value(a, b):
        sign, log = slogdet(a)
        inverse = jnp.sum(jnp.sin(inv(a)))
        return jnp.real(jnp.sum(jnp.sin(solve(a, b))) + 0.3 * log + (1 + 2j) * sign + inverse)

    return value


def ours(mesh):
    return value_of(
        lambda a, b: jaxmg.lu_solve(a, b, mesh=mesh),
        lambda a: linalg.slogdet(a, mesh=mesh),
        lambda a: linalg.inv(a, mesh=mesh),
    )


THEIRS = jax.jit(value_of(jnp.linalg.solve, jnp.linalg.slogdet, jnp.linalg.inv))


@REAL_AND_COMPLEX
def test_gradient(dtype, mesh):
    a, b = data(dtype)
    expected = jax.value_and_grad(THEIRS, (0, 1))(a, b)
    placed = put(a, mesh, "x", None)
    for wrap in (lambda f: f, jax.jit):
        value, gradients = wrap(jax.value_and_grad(ours(mesh), (0, 1)))(placed, b)
        assert relative(value, expected[0]) < TOLERANCE
        assert max(map(relative, gradients, expected[1])) < TOLERANCE


@REAL_AND_COMPLEX
def test_forward_mode_and_linearize(dtype, mesh):
    (a, b), (da, db) = data(dtype), data(dtype, 7)
    expected = jax.jvp(THEIRS, (a, b), (da, db))
    found = jax.jvp(ours(mesh), (put(a, mesh, "x"), b), (put(da, mesh, "x"), db))
    assert max(map(relative, found, expected)) < TOLERANCE
    value, linear = jax.linearize(ours(mesh), put(a, mesh, "x"), b)
    assert relative(value, expected[0]) < TOLERANCE
    assert relative(linear(put(da, mesh, "x"), db), expected[1]) < TOLERANCE


def line_of_matrices(function, a, c, b):
    """A function of three numbers through A: a case for Jacobians."""
    return lambda t: function(a + t[0] * c + jnp.sin(t[1]) * jnp.eye(N), t[2] * b)


@pytest.mark.parametrize(
    "jacobian", [jax.jacfwd, jax.jacrev, jax.hessian], ids=lambda f: f.__name__
)
def test_jacobians(jacobian, mesh):
    a, b = data()
    c, t = general(N, N, seed=5), jnp.array([0.1, 0.2, 1.3])

    def mine(a, b):
        factor = linalg.lu_factor(a, mesh=mesh)
        return jnp.sum(jnp.sin(factor.solve(b))) + factor.slogdet()[1]

    def theirs(a, b):
        return jnp.sum(jnp.sin(jnp.linalg.solve(a, b))) + jnp.linalg.slogdet(a)[1]

    found = jax.jit(jacobian(line_of_matrices(mine, a, c, b)))(t)
    assert relative(found, jax.jit(jacobian(line_of_matrices(theirs, a, c, b)))(t)) < 1e-10


def test_second_order_by_differences(mesh):
    a, b = data()
    check_grads(lambda a, b: jaxmg.lu_solve(a, b, mesh=mesh), (a, b), order=2, rtol=1e-3)
    check_grads(lambda a: linalg.slogdet(a, mesh=mesh)[1], (a,), order=2, rtol=1e-3)


@REAL_AND_COMPLEX
def test_transpose_of_the_linear_map(dtype, mesh):
    a, b = data(dtype)
    solve = lambda b: jaxmg.lu_solve(put(a, mesh, "x"), b)  # noqa: E731
    (x,) = jax.linear_transpose(solve, b)(b)
    assert relative(x, np.linalg.solve(a.T, b)) < TOLERANCE
    factor = linalg.lu_factor(a, mesh=mesh)
    for trans, form in ((0, a.T), (1, a), (2, a.conj())):
        (x,) = jax.linear_transpose(lambda b, t=trans: factor.solve(b, t), b)(b)
        assert relative(x, np.linalg.solve(form, b)) < TOLERANCE


@REAL_AND_COMPLEX
def test_through_a_factor(dtype, mesh):
    a, b = data(dtype)

    def value(a, b):
        factor = linalg.lu_factor(a, mesh=mesh)
        parts = [jnp.sum(jnp.sin(factor.solve(b, trans))) for trans in (0, 1, 2)]
        return jnp.real(sum(parts) + factor.det() / 1e4)

    def expected(a, b):
        forms = (a, a.T, jnp.conj(a).T)
        parts = [jnp.sum(jnp.sin(jnp.linalg.solve(form, b))) for form in forms]
        return jnp.real(sum(parts) + jnp.linalg.det(a) / 1e4)

    found = jax.grad(value, (0, 1))(a, b)
    assert max(map(relative, found, jax.jit(jax.grad(expected, (0, 1)))(a, b))) < TOLERANCE


def test_one_factorisation_for_all_of_it(mesh):
    a, b = data()
    placed = put(a, mesh, "x", None)

    def value(a, b):
        factor = linalg.lu_factor(a)
        return jnp.sum(factor.solve(b) ** 2) + factor.slogdet()[1]

    for program in (
        jax.jit(jax.value_and_grad(value, (0, 1))),
        jax.jit(lambda a, b: jax.jvp(value, (a, b), (a, b))),
    ):
        jax.block_until_ready(program(placed, b))
        _native.reset_counters()
        jax.block_until_ready(program(placed, b))
        assert [_native.counter(name) for name in ("getrf", "getrs", "getri")] == [1, 2, 1]


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_gradient_has_the_rows_of_the_matrix(kind):
    mesh = line(4, kind=kind)
    a, b = data()
    placed = put(a, mesh, "x", None)
    with jax.set_mesh(mesh):
        gradient = jax.jit(jax.grad(lambda a: jnp.sum(jaxmg.lu_solve(a, b) ** 2)))(placed)
        determinant = jax.jit(jax.grad(lambda a: linalg.slogdet(a)[1]))(placed)
    expected = jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, b) ** 2))(a)
    assert relative(gradient, expected) < TOLERANCE
    assert gradient.sharding.is_equivalent_to(placed.sharding, 2)
    assert relative(determinant, np.linalg.inv(a).T) < TOLERANCE


def test_sizes_that_do_not_divide(mesh):
    a, b = well(13), general(13, 2)
    found = jax.grad(ours(mesh), (0, 1))(a, b)
    assert max(map(relative, found, jax.grad(THEIRS, (0, 1))(a, b))) < TOLERANCE


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_derivatives_of_inverses_gather_nothing(kind):
    n, mesh = 512, line(8, kind=kind)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", None))
    a = jax.ShapeDtypeStruct((n, n), np.float64, sharding=rows)
    value = lambda a: jnp.sum(jnp.sin(linalg.inv(a))) + linalg.slogdet(a)[1]  # noqa: E731
    forward = lambda a: jax.jvp(jax.grad(value), (a,), (a,))  # noqa: E731
    with jax.set_mesh(mesh):
        program = jax.jit(forward).lower(a).compile()
    assert largest_collective(program) <= n * n // 8


def test_symmetric_matrices_from_one_triangle(mesh):
    a, b = hermitian(N) + np.diag(np.arange(N) - 5.3), general(N, 2)
    half = np.tril(a)

    def value(a):
        x = linalg.solve(a, b, True, assume_a="sym", mesh=mesh)
        return jnp.sum(x**2)

    gradient = np.asarray(jax.grad(value)(half))
    assert np.array_equal(gradient, np.tril(gradient))
    whole = jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, b) ** 2))(a)
    both = np.tril(whole) + np.triu(whole, 1).T
    assert relative(gradient, both) < TOLERANCE


# --- vmap ------------------------------------------------------------------------------------


def counted(function, *arrays):
    """The result, and how many factorisations and solutions it took."""
    jax.block_until_ready(function(*arrays))
    _native.reset_counters()
    out = jax.block_until_ready(function(*arrays))
    return out, (_native.counter("getrf"), _native.counter("getrs"))


def test_right_hand_sides_become_columns(mesh):
    a = well(N)
    bs = np.stack([general(N, 3, seed=k) for k in range(4)])
    for wrap in (lambda f: f, jax.jit):
        solve = wrap(jax.vmap(jaxmg.lu_solve, (None, 0)))
        x, calls = counted(solve, put(a, mesh, "x", None), bs)
        assert relative(x, np.linalg.solve(a, bs)) < TOLERANCE
        assert calls == (1, 1)


@pytest.mark.parametrize("count", [3, 8, 11])
def test_matrices(count, mesh):
    a = np.stack([well(N, seed=k) for k in range(count)])
    b = np.stack([general(N, 2, seed=k) for k in range(count)])
    solve = jax.jit(jax.vmap(lambda a, b: jaxmg.lu_solve(a, b, mesh=mesh)))
    x, (factors, _) = counted(solve, a, b)
    assert relative(x, np.linalg.solve(a, b)) < TOLERANCE
    # Few matrices are worked on by all devices, many are dealt out, one device each.
    size = mesh.size
    assert factors == (count if count < size else -(-count // size) * size)


def test_nested_and_with_derivatives(mesh):
    a = np.stack([well(N, seed=k) for k in range(6)]).reshape(2, 3, N, N)
    b = general(N, 2)
    solve = lambda a: jaxmg.lu_solve(a, b, mesh=mesh)  # noqa: E731
    found = jax.jit(jax.vmap(jax.vmap(solve)))(a)
    assert relative(found, np.linalg.solve(a, b)) < TOLERANCE
    value = lambda solve: lambda a: jnp.sum(jnp.sin(solve(a)))  # noqa: E731
    gradients = jax.jit(jax.vmap(jax.vmap(jax.grad(value(solve)))))(a)
    expected = jax.grad(value(lambda a: jnp.linalg.solve(a, b)))(a)
    assert relative(gradients, expected) < TOLERANCE
