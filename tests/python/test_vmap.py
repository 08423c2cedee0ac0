"""vmap agrees with a loop, and takes the cheap way where there is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
import reference
from jaxmg import _native
from matrices import general, spd
from meshes import AUTO, EXPLICIT, grid, need, put
from residuals import relative

N = 16
TOLERANCE = 1e-12
BOTH_WAYS = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])


def matrices(count, dtype="float64"):
    return np.stack([spd(N, dtype, seed) for seed in range(count)])


def rights(count, dtype="float64"):
    return np.stack([general(N, 3, dtype, seed) for seed in range(count)])


def counted(function, *arrays):
    """The result, and how many factorisations and solutions it took."""
    jax.block_until_ready(function(*arrays))
    _native.reset_counters()
    out = jax.block_until_ready(function(*arrays))
    return out, _native.counter("potrf"), _native.counter("potrs")


@BOTH_WAYS
def test_right_hand_sides_become_columns(wrap, mesh):
    a, bs = spd(N), rights(4)
    placed = put(a, mesh, "x", None)
    x, factors, solves = counted(wrap(jax.vmap(jaxmg.potrs, (None, 0))), placed, bs)
    assert relative(x, np.linalg.solve(a, bs)) < TOLERANCE
    assert (factors, solves) == (1, 1)


def test_vectors_along_any_axis(mesh):
    a, b = spd(N), general(N, 5)
    placed = put(a, mesh, "x", None)
    x = jax.jit(jax.vmap(jaxmg.potrs, (None, 1), 1))(placed, b)
    assert relative(x, np.linalg.solve(a, b)) < TOLERANCE


@BOTH_WAYS
def test_few_matrices_one_after_the_other(wrap, mesh):
    need(8)
    matrix, b = matrices(3), rights(1)[0]
    placed = put(matrix, mesh, None, "x", None)
    x, factors, solves = counted(wrap(jax.vmap(jaxmg.potrs, (0, None))), placed, b)
    assert relative(x, np.linalg.solve(matrix, b)) < TOLERANCE
    assert (factors, solves) == (3, 3)


@pytest.mark.parametrize("count", [8, 11])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_many_matrices_are_spread(count, dtype, mesh):
    matrix, right = matrices(count, dtype), rights(count, dtype)
    solve = jax.jit(jax.vmap(lambda a, b: jaxmg.potrs(a, b, mesh=mesh)))
    x = solve(matrix, right)
    assert relative(x, np.linalg.solve(matrix, right)) < (1e-4 if dtype == "float32" else 1e-12)


def test_spread_matrices_are_not_gathered(mesh):
    """Each device works on its part of the batch: nothing of the size of the batch moves."""
    function = jax.jit(jax.vmap(jaxmg.potrs))
    matrix, right = put(matrices(16), mesh, "x"), put(rights(16), mesh, "x")
    text = function.lower(matrix, right).compile().as_text()
    assert "all-gather" not in text
    assert "all-to-all" not in text
    x = function(matrix, right)
    assert relative(x, np.linalg.solve(matrices(16), rights(16))) < TOLERANCE
    assert x.sharding.is_equivalent_to(right.sharding, 3)


@BOTH_WAYS
def test_nested(wrap, mesh):
    matrix, right = matrices(3), rights(4)
    f = lambda a, b: jaxmg.potrs(a, b, mesh=mesh)  # noqa: E731
    expected = np.linalg.solve(matrix[:, None], right[None])
    inner_b = wrap(jax.vmap(jax.vmap(f, (None, 0)), (0, None)))(matrix, right)
    assert relative(inner_b, expected) < TOLERANCE
    inner_a = wrap(jax.vmap(jax.vmap(f, (0, None)), (None, 0)))(matrix, right)
    assert relative(inner_a, expected.swapaxes(0, 1)) < TOLERANCE


def test_nested_batches_of_matrices(mesh):
    matrix = matrices(24).reshape(3, 8, N, N)
    f = lambda a: jaxmg.potrs(a, jnp.ones(N), mesh=mesh, return_logdet=True)  # noqa: E731
    x, logdet = jax.jit(jax.vmap(jax.vmap(f)))(matrix)
    assert relative(x, np.linalg.solve(matrix, np.ones((3, 8, N, 1)))[..., 0]) < TOLERANCE
    assert relative(logdet, np.linalg.slogdet(matrix)[1]) < TOLERANCE


@pytest.mark.parametrize("count", [3, 8])
def test_gradient_of_a_batch(count, mesh):
    matrix, right = matrices(count), rights(count)
    mine = lambda a, b: jaxmg.potrs(a, b, mesh=mesh, return_logdet=True)  # noqa: E731

    def value(function):
        def f(a, b):
            x, logdet = jax.vmap(function)(a, b)
            return jnp.sum(jnp.sin(x)) + jnp.sum(logdet**2)

        return f

    g = jax.jit(jax.grad(value(mine), (0, 1)))(matrix, right)
    e = jax.grad(value(reference.solve_logdet), (0, 1))(matrix, right)
    assert max(map(relative, g, e)) < TOLERANCE
    each = jax.jit(jax.vmap(jax.grad(lambda a, b: jnp.sum(jnp.sin(mine(a, b)[0])))))
    theirs = jax.vmap(jax.grad(lambda a, b: jnp.sum(jnp.sin(reference.solve(a, b)))))
    assert relative(each(matrix, right), theirs(matrix, right)) < TOLERANCE


def test_gradient_over_right_hand_sides(mesh):
    a, bs = spd(N), rights(4)
    f = lambda s: lambda a, b: jnp.sum(jnp.sin(s(a, b)))  # noqa: E731
    g = jax.jit(jax.vmap(jax.grad(f(jaxmg.potrs)), (None, 0)))(put(a, mesh, "x"), bs)
    e = jax.vmap(jax.grad(f(reference.solve)), (None, 0))(a, bs)
    assert relative(g, e) < TOLERANCE


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [(None, "x", None), ("x",), (("x", "y"),), ()], ids=str)
def test_shardings_of_a_batch(kind, spec):
    mesh = grid(4, 2, kind=kind)
    matrix, right = matrices(16), rights(16)
    with jax.set_mesh(mesh):
        left = put(matrix, mesh, *spec)
        batch = spec[0] if spec else None
        x = jax.jit(jax.vmap(jaxmg.potrs))(left, put(right, mesh, batch))
        assert relative(x, np.linalg.solve(matrix, right)) < TOLERANCE
        if kind == EXPLICIT:
            assert jax.typeof(x).sharding.spec[0] == batch


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_gradient_of_a_sharded_batch(kind):
    mesh = grid(4, 2, kind=kind)
    matrix, right = matrices(8), rights(8)
    f = lambda s: lambda a, b: jnp.sum(jnp.sin(jax.vmap(s)(a, b)))  # noqa: E731
    with jax.set_mesh(mesh):
        g = jax.jit(jax.grad(f(jaxmg.potrs)))(put(matrix, mesh, "x"), put(right, mesh, "x"))
        assert relative(g, jax.grad(f(reference.solve))(matrix, right)) < TOLERANCE
        if kind == EXPLICIT:
            assert g.sharding.spec[0] == "x"


def test_sharded_batch_of_right_hand_sides():
    mesh = grid(4, 2, kind=EXPLICIT)
    a, bs = spd(N), rights(8)
    with jax.set_mesh(mesh):
        placed, right = put(a, mesh, "y", None), put(bs, mesh, "x")
        x = jax.jit(jax.vmap(jaxmg.potrs, (None, 0)))(placed, right)
        assert relative(x, np.linalg.solve(a, bs)) < TOLERANCE
        assert jax.typeof(x).sharding.spec == P("x", None, None)


def test_empty_batch(mesh):
    x = jax.vmap(lambda a, b: jaxmg.potrs(a, b, mesh=mesh))(
        np.zeros((0, N, N)), np.zeros((0, N, 2))
    )
    assert x.shape == (0, N, 2)


def test_small_case_of_a_vmapped_solve(mesh):
    a = np.stack([spd(4, seed=s) for s in range(3)])
    b = general(3, 4)
    f = lambda s: lambda a: jnp.sum(jax.vmap(s)(a, b) ** 2)  # noqa: E731
    g = jax.grad(f(lambda a, b: jaxmg.potrs(a, b, mesh=mesh)))(a)
    assert relative(g, jax.grad(f(reference.solve))(a)) < TOLERANCE
