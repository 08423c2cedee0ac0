"""lu_solve with precision="mixed": a 32-bit factor, 64-bit answers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
import mixed_precision
from jaxmg import _native
from matrices import eps, general, orthonormal, wide
from meshes import AUTO, EXPLICIT, line, put
from mixed_precision import (
    DEVICES_AND_SIZES,
    DTYPES,
    SPECS,
    assert_failure_is_reported,
    assert_not_finite_is_reported,
    assert_shardings_are_kept,
    assert_solved_as_natively,
)
from residuals import assert_solved, relative

mixed = functools.partial(mixed_precision.mixed, jaxmg.lu_solve)


def with_condition(n, decades, dtype=np.float64):
    """Singular values from 1 to 10^-decades."""
    return orthonormal(n, dtype, 1) * np.logspace(0, -decades, n) @ orthonormal(n, dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("devices", "n"), DEVICES_AND_SIZES)
def test_as_accurate_as_64_bits(dtype, devices, n):
    mesh = line(devices)
    a, b = general(n, n, dtype), general(n, 2, dtype, 1)
    x, (status, iterations, path) = mixed(a, b, mesh=mesh)
    assert status == 0 and path in (1, 2)
    assert 0 < iterations <= 15
    native = jaxmg.lu_solve(a, b, mesh=mesh)
    assert_solved_as_natively(a, x, native, b)
    assert relative(x, native) <= 10 * np.linalg.cond(a) * eps(dtype)


def test_condition_numbers(mesh):
    n = 64
    for decades in (1, 3, 5, 6, 7, 9, 12, 15):
        a, b = with_condition(n, decades), general(n, 2)
        x, (status, iterations, path) = mixed(put(a, mesh, "x", None), b)
        assert status == 0
        assert_solved(a, x, b)
        if decades <= 3:
            assert path == 1 and 0 < iterations <= 8
        if path == 0:
            assert iterations in (-3, -31)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_beyond_the_range_of_32_bits(dtype, mesh):
    n = 40
    powers = np.round(np.linspace(-150, 150, n))
    plain, b = with_condition(n, 1, wide(dtype)), general(n, 2, dtype)
    rows, columns = 2.0 ** powers[:, None], 2.0 ** powers[::-1]
    a = rows * plain * columns
    x, (status, iterations, path) = mixed(put(a, mesh, "x", None), rows * b)
    assert (status, path) == (0, 1) and iterations <= 6
    assert_solved(plain, np.asarray(x) * columns[:, None], b)  # the scaled system
    for factor in (1e-290, 1e290):
        x, (status, _, path) = mixed(put(plain * factor, mesh, "x", None), b)
        assert (status, path) == (0, 1)
        assert_solved(plain, np.asarray(x) * factor, b)


def test_status_is_that_of_64_bits(mesh):
    a = general(16, 16)
    a[6] = 0
    assert_failure_is_reported(jaxmg.lu_solve, a, mesh, 7, jaxmg.SingularMatrixError)


def test_not_finite(mesh):
    assert_not_finite_is_reported(jaxmg.lu_solve, general(16, 16), mesh, (3, 4))


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", SPECS)
def test_shardings(kind, spec):
    assert_shardings_are_kept(jaxmg.lu_solve, general(16, 16), kind, spec, paths=(1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives(dtype, mesh):
    a, b = put(general(16, 16, dtype), mesh, "x", None), jnp.asarray(general(16, 2, dtype, 1))

    def value(solve):
        return lambda a, b: jnp.sum(jnp.abs(solve(a, b)) ** 2)

    got = jax.grad(value(lambda a, b: jaxmg.lu_solve(a, b, precision="mixed")), (0, 1))(a, b)
    want = jax.grad(value(jnp.linalg.solve), (0, 1))(jnp.asarray(a), b)
    for g, w in zip(got, want, strict=True):
        assert relative(g, w) <= 1e-9
    change = general(16, 16, dtype, 3)
    _, dx = jax.jvp(lambda a: jaxmg.lu_solve(a, b, precision="mixed"), (a,), (change,))
    _, dw = jax.jvp(lambda a: jnp.linalg.solve(a, b), (jnp.asarray(a),), (change,))
    assert relative(dx, dw) <= 1e-9


def test_transformations(mesh):
    a = put(general(16, 16), mesh, "x", None)
    b = jnp.asarray(general(5, 16))
    solve = jax.jit(lambda a, b: jaxmg.lu_solve(a, b, precision="mixed"))
    x = jax.vmap(lambda b: solve(a, b))(b)
    assert relative(x.T, np.linalg.solve(np.asarray(a), np.asarray(b).T)) <= 1e-10
    stack = jnp.stack([general(16, 16), general(16, 16, seed=4)])
    x = jax.vmap(lambda a: jaxmg.lu_solve(a, b[0], mesh=mesh, precision="mixed"))(stack)
    assert relative(x[1], np.linalg.solve(stack[1], b[0])) <= 1e-10


def test_donation(mesh):
    a = general(64, 64)
    given = put(a, mesh, "x", None)
    x, (status, _, path) = mixed(given, np.ones(64), donate=True)
    assert status == 0 and path > 0 and given.is_deleted()
    assert_solved(a, x, np.ones(64))


def test_32_bits_and_no_columns_are_solved_natively(mesh):
    for dtype in ("float32", "complex64"):
        a, b = general(24, 24, dtype), general(24, 1, dtype, 1)
        x, (status, iterations, path) = mixed(put(a, mesh, "x", None), b)
        assert (status, iterations, path) == (0, 0, 0)
        assert_solved(a, x, b)
    x, (status, _, path) = mixed(put(general(24, 24), mesh, "x", None), np.ones((24, 0)))
    assert x.shape == (24, 0) and (status, path) == (0, 0)


def test_one_factorisation(mesh):
    a = put(general(64, 64), mesh, "x", None)
    _native.reset_counters()
    mixed(a, np.ones(64), T_A=8)
    assert _native.counter("getrf") == 1


def test_plan():
    plan = jaxmg.plan("lu_solve", 4096, "float64", mesh=4, precision="mixed", platform="gpu")
    assert plan.arithmetic.startswith("float32 factor")
    assert plan.bytes_by_purpose["low_precision_factor"] > 4 * 1024 * 4096
