"""Triangular systems against jax.scipy.linalg.solve_triangular."""

import itertools

import jax
import jax.numpy as jnp
import jax.scipy.linalg as reference
import numpy as np
import pytest

from jaxmg import linalg
from matrices import general
from meshes import AUTO, EXPLICIT, grid, line, put
from residuals import LIMIT, relative, solve_residual

FORMS = list(itertools.product((0, 1, 2), (False, True), (False, True)))


def matrix(n, dtype="float64", seed=0):
    return general(n, n, dtype, seed) + (np.sqrt(n) * np.eye(n)).astype(dtype)


def meant(a, trans, lower, unit):
    a = np.tril(a) if lower else np.triu(a)
    if unit:
        a = a - np.diag(np.diagonal(a)) + np.eye(len(a), dtype=a.dtype)
    return (a, a.T, a.conj().T)[trans]


def only_what_is_read(a, lower, unit):
    inside = np.tri(len(a), k=-1 if unit else 0, dtype=bool)
    return np.where(inside if lower else inside.T, a, np.nan)


@pytest.mark.parametrize(
    ("dtype", "devices", "sizes"),
    [
        ("float64", 3, (0, 1, 5)),
        ("complex128", 8, (24,)),
        ("float32", 1, (5,)),
        ("complex64", 2, (9,)),
    ],
)
def test_forms(dtype, devices, sizes):
    mesh = line(devices)
    for n in sizes:
        b = general(n, 2, dtype, seed=1)
        for trans, lower, unit in FORMS:
            a = matrix(n, dtype)
            given = only_what_is_read(a, lower, unit)
            x = linalg.solve_triangular(given, b, trans, lower, unit, mesh=mesh, T_A=2)
            assert x.shape == b.shape
            if n:
                assert solve_residual(meant(a, trans, lower, unit), x, b) <= LIMIT


def test_names_of_the_system(mesh):
    a, b = matrix(16, "complex128"), general(16, 1, "complex128")[:, 0]
    placed = put(a, mesh, "x", None)
    for number, name in enumerate("NTC"):
        x = linalg.solve_triangular(placed, b, name)
        assert x.shape == (16,)
        assert relative(x, linalg.solve_triangular(placed, b, number)) == 0
        assert relative(x, reference.solve_triangular(a, b, number)) < 1e-12
    for trans in ("H", 3, True, None):
        with pytest.raises(ValueError, match="trans"):
            linalg.solve_triangular(placed, b, trans)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("trans", [0, 1])
def test_rows_of_the_right_hand_side_stay(kind, trans):
    mesh = line(4, kind=kind)
    a, b = matrix(16), general(16, 3)
    expected = reference.solve_triangular(a, b, trans, lower=True)
    for spec in ((), ("x", None), (None, None)):
        right = put(b, mesh, *spec)
        x = linalg.solve_triangular(put(a, mesh, "x", None), right, trans, lower=True)
        assert relative(x, expected) < 1e-12
        if spec[:1] == ("x",):
            assert x.sharding.is_equivalent_to(right.sharding, 2)


def test_meshes_of_all_kinds():
    a, b = matrix(24), general(24, 2)
    expected = reference.solve_triangular(a, b)
    for placed in (
        put(a, grid(2, 2), "x", "y"),
        put(a, line(4, order=(6, 1, 4, 3)), "x", None),
        put(a, line(3), None, "x"),
        a,
    ):
        assert relative(linalg.solve_triangular(placed, b), expected) < 1e-12


@pytest.mark.parametrize(
    ("trans", "lower", "unit", "dtype"),
    [
        (0, True, False, "float64"),
        (1, False, True, "float64"),
        (0, False, False, "complex128"),
        (1, True, False, "complex128"),
        (2, True, True, "complex128"),
    ],
)
def test_derivatives(trans, lower, unit, dtype, mesh):
    a, b = matrix(8, dtype), general(8, 2, dtype, seed=1)
    weight = general(8, 2, dtype, seed=3)

    def value(solver):
        return lambda a, b: jnp.sum(jnp.real(weight * solver(a, b, trans, lower, unit)) ** 2)

    placed = put(a, mesh, "x", None), jnp.asarray(b)
    plain = jnp.asarray(a), jnp.asarray(b)
    found = jax.grad(value(linalg.solve_triangular), (0, 1))(*placed)
    expected = jax.jit(jax.grad(value(reference.solve_triangular), (0, 1)))(*plain)
    assert max(map(relative, found, expected)) < 1e-12
    steps = general(8, 8, dtype, seed=7), general(8, 2, dtype, seed=8)
    tangents = tuple(map(jnp.asarray, steps))
    _, got = jax.jvp(
        lambda a, b: linalg.solve_triangular(a, b, trans, lower, unit), placed, tangents
    )
    _, want = jax.jvp(
        lambda a, b: reference.solve_triangular(a, b, trans, lower, unit), plain, tangents
    )
    assert relative(got, want) < 1e-12


@pytest.mark.parametrize("trans", [0, 2])
def test_derivatives_with_explicit_axes(trans):
    mesh = line(2, kind=EXPLICIT)
    a, b = matrix(8), general(8, 2)
    value = lambda solver: lambda a, b: jnp.sum(solver(a, b, trans) ** 2)  # noqa: E731
    with jax.set_mesh(mesh):
        gradient = jax.jit(jax.grad(value(linalg.solve_triangular), (0, 1)))
        found = gradient(put(a, mesh, "x", None), put(b, mesh))
    expected = jax.grad(value(reference.solve_triangular), (0, 1))(jnp.asarray(a), jnp.asarray(b))
    assert max(map(relative, found, expected)) < 1e-12


def test_second_derivative(mesh):
    a, b = matrix(8), general(8, 2)

    def curvature(solver):
        inner = jax.grad(lambda a: jnp.sum(solver(a, b, lower=True) ** 3))
        return jax.grad(lambda a: jnp.sum(jnp.sin(inner(a))))

    found = jax.jit(curvature(linalg.solve_triangular))(put(a, mesh, "x", None))
    assert relative(found, jax.jit(curvature(reference.solve_triangular))(a)) < 1e-11


def test_batches(mesh):
    a = np.stack([matrix(8, seed=k) for k in range(9)])
    b = np.stack([general(8, 2, seed=k) for k in range(9)])
    solve = lambda a, b: linalg.solve_triangular(a, b, lower=True, mesh=mesh)  # noqa: E731
    expected = np.linalg.solve(np.tril(a), b)
    assert relative(solve(a, b), expected) < 1e-12
    assert relative(jax.vmap(solve)(a, b), expected) < 1e-12
    assert relative(solve(a[0], b), np.linalg.solve(np.tril(a[0]), b)) < 1e-12
    assert relative(jax.vmap(solve, (None, 0))(a[0], b), np.linalg.solve(np.tril(a[0]), b)) < 1e-12
    assert (
        relative(jax.vmap(solve, (0, None))(a[:2], b[0]), np.linalg.solve(np.tril(a[:2]), b[0]))
        < 1e-12
    )
    assert relative(solve(a, b[0, :, 0]), np.linalg.solve(np.tril(a), b[0, :, :1])[..., 0]) < 1e-12


def test_a_zero_on_the_diagonal_is_not_hidden(mesh):
    a, b = matrix(16), np.ones(16)
    a[5, 5] = 0
    x = np.asarray(linalg.solve_triangular(put(a, mesh, "x", None), b, lower=True))
    assert np.isfinite(x[:5]).all()
    assert not np.isfinite(x[5])


def test_the_other_triangle_may_hold_anything(mesh):
    """LU in one matrix: both triangles are solved with, each for itself."""
    packed, b = matrix(16), general(16, 2)
    placed = put(packed, mesh, "x", None)
    y = linalg.solve_triangular(placed, b, lower=True, unit_diagonal=True)
    x = linalg.solve_triangular(placed, y)
    a = (np.tril(packed, -1) + np.eye(16)) @ np.triu(packed)
    assert solve_residual(a, x, b) <= LIMIT


def test_under_jit_and_scan(mesh):
    a, b = matrix(16), general(16, 2)
    placed = put(a, mesh, "x", None)
    step = jax.jit(lambda a, b: linalg.solve_triangular(a, b, lower=True))
    assert relative(step(placed, b), reference.solve_triangular(a, b, lower=True)) < 1e-12
    last, _ = jax.lax.scan(lambda c, _: (step(placed, c), None), jnp.asarray(b), None, length=2)
    twice = np.linalg.solve(np.tril(a), np.linalg.solve(np.tril(a), b))
    assert relative(last, twice) < 1e-12


def test_arguments(mesh):
    with pytest.raises(ValueError, match="a has shape"):
        linalg.solve_triangular(np.ones((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match="b has shape"):
        linalg.solve_triangular(np.eye(3), np.ones(4))
    assert linalg.solve_triangular(np.eye(2, dtype=int), np.ones(2, int)).dtype == np.float64
