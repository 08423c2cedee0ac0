"""Least squares, minimum norm and the QR factor object."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _calls, _native, linalg
from matrices import DTYPES, eps, general
from meshes import AUTO, EXPLICIT, grid, line, need, put
from rectangular import HARD, assert_least_squares, assert_orthonormal, conditioned
from residuals import relative

SHAPES = [(1, 1), (9, 4), (4, 9), (8, 8), (33, 16), (16, 40)]
FULL_RANK = [
    name for name in HARD if name not in ("zero columns", "zero", "repeated columns", "ones")
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 3, 8])
def test_every_shape(dtype, devices):
    mesh = line(devices)
    for m, n in SHAPES:
        a, b = general(m, n, dtype), general(m, 3, dtype, seed=1)
        x, status = jaxmg.least_squares(a, b, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert x.shape == (n, 3) and x.dtype == dtype
        assert_least_squares(a, x, b)
        expected = np.linalg.lstsq(a, b, rcond=None)[0]
        assert relative(x, expected) < 1e4 * eps(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hard_matrices(dtype, mesh):
    for name in FULL_RANK:
        a, b = HARD[name](64, 12, dtype), general(64, 2, dtype, seed=1)
        assert_least_squares(a, jaxmg.least_squares(a, b, mesh=mesh), b)
    consistent = conditioned(64, 12, 1e12, dtype)
    b = consistent @ general(12, 2, dtype, seed=1)
    assert_least_squares(consistent, jaxmg.least_squares(consistent, b, mesh=mesh), b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_decision(dtype, mesh):
    for name, matrix in HARD.items():
        for shape in ((64, 12), (12, 40)):
            a, b = matrix(*shape, dtype), general(shape[0], 2, dtype, seed=1)
            x, residuals, rank, s = linalg.lstsq(a, b, mesh=mesh)
            assert_least_squares(a, x, b)
            want = np.linalg.svd(a.astype(np.result_type(dtype, np.float64)), compute_uv=False)
            assert np.max(np.abs(s - want)) <= 25 * max(shape) * eps(dtype) * want[0], name
            assert residuals.shape == (2,) and s.shape == (12,)
            if name in ("random", "rank deficient", "zero columns", "repeated columns", "zero"):
                assert int(rank) == np.linalg.matrix_rank(a), name
                least = np.linalg.pinv(a, rcond=1e2 * eps(dtype)) @ b
                assert np.linalg.norm(x) <= np.linalg.norm(least) * (1 + 1e3 * eps(dtype)), name
                assert relative(x, least) < 1e5 * eps(dtype), name


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_agrees_with_jax(shape, mesh):
    a = general(*shape)
    for b in (general(shape[0], 3, seed=1), general(shape[0], 1, seed=1)[:, 0]):
        for rcond in (None, 0.3, -1.0):
            ours = linalg.lstsq(a, b, rcond, mesh=mesh)
            theirs = jnp.linalg.lstsq(a, b, rcond)
            for found, expected in zip(ours, theirs, strict=True):
                assert found.shape == expected.shape and found.dtype == expected.dtype
                assert np.allclose(found, expected, atol=1e-12)
        ours = linalg.lstsq(a, b, numpy_resid=True, mesh=mesh)[1]
        assert ours.shape == np.linalg.lstsq(a, b, rcond=None)[1].shape


def test_sizes_of_nothing(mesh):
    for m, n in ((0, 3), (3, 0), (0, 0)):
        x = jaxmg.least_squares(np.zeros((m, n)), np.zeros((m, 2)), mesh=mesh)
        assert x.shape == (n, 2) and not np.any(x)
        x, residuals, rank, s = linalg.lstsq(np.zeros((m, n)), np.ones(m), mesh=mesh)
        assert x.shape == (n,) and int(rank) == 0 and s.shape == (0,)
        assert residuals.shape == (1,) and residuals[0] == m
    assert jaxmg.least_squares(general(8, 3), np.zeros((8, 0)), mesh=mesh).shape == (3, 0)
    assert linalg.lstsq(general(8, 3), np.zeros((8, 0)), mesh=mesh)[2] == 3


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), ()])
def test_shardings(kind, spec):
    mesh = line(4, kind=kind)
    for m, n in ((32, 8), (8, 32), (18, 5), (5, 18)):
        a, b = general(m, n), general(m, 2, seed=1)
        even = m % 4 == 0 and n % 4 == 0
        placed = put(a, mesh, *spec) if even else a
        for right in (b, put(b, mesh), put(b, mesh, "x") if m % 4 == 0 else b):
            x = jaxmg.least_squares(placed, right, mesh=mesh)
            assert_least_squares(a, x, b)
            assert x.addressable_shards[0].data.shape == ((8, 2) if (m, n) == (8, 32) else (n, 2))


def test_two_axes():
    a, b = general(24, 6), general(24, 1)[:, 0]
    assert_least_squares(a, jaxmg.least_squares(put(a, grid(2, 3), "x", "y"), b), b)


def test_many_right_hand_sides(mesh):
    a, b = general(24, 6), general(24, 1000)
    assert_least_squares(a, jaxmg.least_squares(put(a, mesh, "x", None), b), b)


def test_a_zero_column_has_a_place(mesh):
    a, b = general(32, 8), general(32, 1)[:, 0]
    a[:, 5] = 0
    for matrix in (a, a.T):
        right = b[: matrix.shape[0]]
        x, status = jaxmg.least_squares(matrix, right, mesh=mesh, return_status=True)
        assert int(status) == 6
        assert np.isnan(x).all()
        with pytest.raises(jaxmg.SingularMatrixError) as caught:
            jaxmg.least_squares(matrix, right, mesh=mesh, check=True)
        assert caught.value.index == 6
    a[:, 5] = 1
    assert_least_squares(a, jaxmg.least_squares(a, b, mesh=mesh, check=True), b)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none(bad, mesh):
    for shape in ((32, 8), (8, 32)):
        a, b = general(*shape), general(shape[0], 2)
        a[3, 5] = bad
        x, status = jaxmg.least_squares(a, b, mesh=mesh, return_status=True)
        assert int(status) == -1 and np.isnan(x).all()
        assert np.isnan(linalg.lstsq(a, b, mesh=mesh)[0]).all()
        with pytest.raises(jaxmg.NonFiniteInputError):
            jaxmg.least_squares(a, b, mesh=mesh, check=True)


def test_arguments(mesh):
    with pytest.raises(ValueError, match=r"b has shape \(3,\)"):
        jaxmg.least_squares(general(8, 4), np.ones(3), mesh=mesh)
    with pytest.raises(ValueError, match="one matrix"):
        linalg.lstsq(np.ones((2, 8, 4)), np.ones(8), mesh=mesh)
    with pytest.raises(TypeError, match="float16"):
        jaxmg.least_squares(general(8, 4).astype("float16"), np.ones(8, "float16"), mesh=mesh)


def test_donation(mesh):
    a, b = general(32, 8), general(32, 2)
    given = put(a, mesh, "x", None)
    x = jaxmg.least_squares(given, b, donate=True)
    assert given.is_deleted()
    assert_least_squares(a, x, b)


def test_published_call_form(mesh):
    a, b = general(32, 8), general(32, 2)
    specs = (P("x", None), P(None, None))
    x, status = jaxmg.least_squares(put(a, mesh, "x", None), b, 4, mesh, specs, True, True)
    assert int(status) == 0
    assert_least_squares(a, x, b)


@pytest.mark.parametrize("shape", [(512, 8), (8, 512)])
def test_nothing_is_gathered(shape, mesh):
    need(2)
    m, n = shape
    a, b = put(general(m, n), mesh, "x", None), put(general(m, 2), mesh, "x", None)
    text = jax.jit(jaxmg.least_squares).lower(a, b).compile().as_text()
    assert f"f64[{m},{n}]" not in text and f"f64[{n},{m}]" not in text
    for size in re.findall(r"= f64\[([\d,]+)\]\S* all-(?:gather|reduce)", text):
        assert np.prod([int(x) for x in size.split(",")]) < m * n / 2, size


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(16, 8), (13, 5), (5, 13)])
def test_derivatives(dtype, shape):
    mesh = line(4)
    m, n = shape
    a, b, c = general(m, n, dtype), general(m, 2, dtype, 5), general(n, 2, dtype, 7)
    da, db = general(m, n, dtype, seed=8), general(m, 2, dtype, seed=9)

    def loss(solve, a, b):
        return jnp.real(jnp.sum(c * solve(a, b) ** 2))

    def second(solve):
        slope = jax.grad(functools.partial(loss, solve), (0, 1))
        return jax.jvp(slope, (a, b), (da, db))

    want = jax.jit(lambda: second(lambda a, b: jnp.linalg.lstsq(a, b)[0]))()
    for solve in (
        functools.partial(jaxmg.least_squares, mesh=mesh),
        lambda a, b: linalg.lstsq(a, b, mesh=mesh)[0],
    ):
        got = jax.jit(lambda solve=solve: second(solve))()
        for found, expected in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert relative(found, expected) < 1e-11


def test_derivatives_with_explicit_axes():
    mesh = line(4, kind=EXPLICIT)
    a, b = general(16, 8), general(16, 2, seed=5)
    loss = lambda a, b: jnp.sum(jaxmg.least_squares(a, b) ** 2)  # noqa: E731
    with jax.set_mesh(mesh):
        got = jax.grad(loss, (0, 1))(put(a, mesh, "x", None), put(b, mesh))
    want = jax.grad(lambda a, b: jnp.sum(jnp.linalg.lstsq(a, b)[0] ** 2), (0, 1))(a, b)
    for found, expected in zip(got, want, strict=True):
        assert relative(found, expected) < 1e-12


def test_derivative_of_singular_values_and_residuals(mesh):
    a, b = general(16, 5), general(16, 2, seed=5)

    def loss(solve, a):
        _, residuals, _, s = solve(a, b)
        return jnp.sum(residuals**2) + jnp.sum(s**3)

    ours = jax.grad(functools.partial(loss, functools.partial(linalg.lstsq, mesh=mesh)))(a)
    theirs = jax.jit(jax.grad(functools.partial(loss, jnp.linalg.lstsq)))(a)
    assert relative(ours, theirs) < 1e-11


def test_one_factorisation_for_value_and_gradient(mesh):
    a, b = put(general(32, 8), mesh, "x", None), general(32, 2)
    f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jaxmg.least_squares(a, b) ** 2)))
    jax.block_until_ready(f(a))
    before = _native.counter("geqrf")
    jax.block_until_ready(f(a))
    assert _native.counter("geqrf") == before + 1


def test_vmap(mesh):
    solve = functools.partial(jaxmg.least_squares, mesh=mesh)
    matrices = np.stack([general(12, 5, seed=k) for k in range(3)])
    rights = np.stack([general(12, 2, seed=k + 9) for k in range(3)])
    for a, b, x in zip(matrices, rights, jax.vmap(solve)(matrices, rights), strict=True):
        assert_least_squares(a, x, b)
    for b, x in zip(rights, jax.vmap(solve, (None, 0))(matrices[0], rights), strict=True):
        assert_least_squares(matrices[0], x, b)
    for a, x in zip(matrices, jax.vmap(solve, (0, None))(matrices, rights[0]), strict=True):
        assert_least_squares(a, x, rights[0])
    for b, x in zip(
        rights, jax.vmap(solve, (None, 0))(matrices[0, :5].T[:, :5], rights[:, :5]), strict=True
    ):
        assert_least_squares(matrices[0, :5].T, x, b[:5])


# --- the factor object -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 3, 8])
def test_factor(dtype, devices):
    mesh = line(devices)
    tolerance = 1e3 * eps(dtype)
    for m, n in ((24, 10), (10, 24), (16, 16)):
        a = general(m, n, dtype)
        f = linalg.qr_factor(a, mesh=mesh)
        assert f.shape == (m, n) and f.dtype == dtype and int(f.status) == 0
        q, r = np.asarray(f.q()), np.asarray(f.r())
        assert_orthonormal(q)
        assert relative(q @ r, a) < tolerance
        c, d = general(m, 3, dtype, seed=2), general(min(m, n), 2, dtype, seed=3)
        assert relative(f.apply_qh(c), q.conj().T @ c) < tolerance
        assert relative(f.apply_q(d), q @ d) < tolerance
        assert relative(f.apply_q(d[:, 0]), q @ d[:, 0]) < tolerance
        if m < n:
            with pytest.raises(ValueError, match="adjoint"):
                f.solve(c)
            continue
        assert_least_squares(a, f.solve(c), c)
        assert_least_squares(a, f.solve(c[:, 0]), c[:, 0])
        e = general(n, 2, dtype, seed=4)
        y = f.solve_adjoint(e)
        assert_least_squares(a.conj().T, y, e)
        assert relative(y, np.linalg.pinv(a.conj().T) @ e) < 100 * tolerance


def test_factor_is_a_pytree(mesh):
    a, b = general(24, 10), general(24, 2)
    f = linalg.qr_factor(put(a, mesh, "x", None))
    x = jax.jit(lambda f, b: f.solve(b))(f, b)
    assert_least_squares(a, x, b)
    again = jax.tree.map(lambda x: x, f)
    assert_least_squares(a, again.solve(b), b)
    with pytest.raises(ValueError, match="shape"):
        f.solve(np.ones(3))
    with pytest.raises(TypeError, match="complex128"):
        f.solve(1j * b)


def test_derivatives_of_a_factor(mesh):
    a, c, d = general(16, 5), general(16, 2, seed=1), general(5, 2, seed=2)

    def ours(a, c, d):
        f = linalg.qr_factor(a, mesh=mesh)
        return jnp.sum(f.apply_qh(c) ** 2 * d) + jnp.sum(f.apply_q(d) * c) + jnp.sum(f.solve(c))

    def theirs(a, c, d):
        q, _ = jnp.linalg.qr(a)
        return (
            jnp.sum((q.T @ c) ** 2 * d) + jnp.sum((q @ d) * c) + jnp.sum(jnp.linalg.lstsq(a, c)[0])
        )

    got = jax.jit(jax.grad(ours, (0, 1, 2)))(a, c, d)
    want = jax.jit(jax.grad(theirs, (0, 1, 2)))(a, c, d)
    for found, expected in zip(got, want, strict=True):
        assert relative(found, expected) < 1e-11


def test_a_factor_used_elsewhere_than_it_was_made(mesh):
    need(2)
    f = linalg.qr_factor(put(general(32, 8), mesh, "x", None))
    alone = f.parts._replace(info=f.parts.info.at[_calls.MADE_ON].set(1))
    moved = dataclasses.replace(f, parts=alone)
    assert np.isnan(moved.solve(general(32, 1))).all()
    assert np.isnan(moved.apply_qh(general(32, 1))).all()
    assert np.isnan(moved.r()).all()
