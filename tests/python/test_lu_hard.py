"""Backward errors on matrices that are hard for elimination."""

import jax
import numpy as np
import pytest
import scipy.linalg

import jaxmg
from jaxmg import linalg
from matrices import DTYPES, eps, general, is_complex, orthonormal, wide
from meshes import line, put
from residuals import LIMIT, assert_solved, inverse_residual, solve_residual

N = 40
EIGHT = 8


def spectrum(n, dtype):
    """Singular values from 1 to 1e-14, evenly spaced in the logarithm."""
    return orthonormal(n, dtype, 1) * np.logspace(0, -14, n) @ orthonormal(n, dtype, 2)


def graded(n, dtype):
    return np.logspace(0, -6, n)[:, None] * general(n, n, wide(dtype)) * np.logspace(-6, 0, n)


def hilbert(n, dtype):
    return 1 / (1 + np.arange(n)[:, None] + np.arange(n))


def kahan(n, dtype):
    s = 0.9
    a = np.triu(np.full((n, n), -np.sqrt(1 - s * s)), 1) + np.eye(n)
    return s ** np.arange(n)[:, None] * a


def vandermonde(n, dtype):
    x = np.linspace(-1, 1, n)
    return np.vander(np.exp(1j * np.pi * x) if is_complex(dtype) else x)


def rank_deficient(n, dtype):
    return general(n, 3, wide(dtype)) @ general(3, n, wide(dtype), 1) + 1e-3 * np.eye(n)


def permuted_identity(n, dtype):
    return np.roll(np.eye(n), 7, axis=0)


def badly_scaled(n, dtype):
    powers = np.round(20 * (np.random.default_rng(3).random((2, n)) - 0.5))
    return 2.0 ** powers[0][:, None] * general(n, n, wide(dtype)) * 2.0 ** powers[1]


HARD = [
    spectrum,
    graded,
    hilbert,
    kahan,
    vandermonde,
    rank_deficient,
    permuted_identity,
    badly_scaled,
]


def make(kind, dtype):
    return kind(N, dtype).astype(dtype), general(N, 2, dtype, 9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solutions(dtype, mesh):
    """One program for all of them; the residuals are of order 1 as a rule."""
    found = []
    for kind in HARD:
        a, b = make(kind, dtype)
        factor = linalg.lu_factor(put(a, mesh, "x", None))
        for trans, form in ((0, a), (1, a.T), (2, a.conj().T)):
            x = np.asarray(factor.solve(b, trans))
            assert_solved(form, x, b)
            found.append(solve_residual(form, x, b))
    assert np.median(found) < 1


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kind", HARD, ids=lambda f: f.__name__)
def test_on_other_meshes(kind, ranks):
    a, b = make(kind, "float64")
    assert_solved(a, jaxmg.lu_solve(a, b, 7, line(ranks)), b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales_at_the_ends_of_the_range(dtype, mesh):
    big = 1e15 if eps(dtype) > 1e-10 else 1e150
    for scale in (big, 1 / big):
        a, b = (scale * general(N, N, wide(dtype))).astype(dtype), general(N, 2, dtype)
        factor = linalg.lu_factor(put(a, mesh, "x", None))
        # In 64 bits the norms in the formula would overflow: the scale is taken out again.
        x = np.asarray(factor.solve(b)).astype(wide(dtype)) * scale
        assert solve_residual((a / scale).astype(dtype), x.astype(dtype), b) <= LIMIT
        assert int(factor.status) == 0
        expected = np.linalg.slogdet(general(N, N, wide(dtype)))
        assert abs(complex(factor.slogdet()[0]) - expected[0]) < 1e4 * eps(dtype)
        log = expected[1] + N * np.log(scale)
        assert float(factor.slogdet()[1]) == pytest.approx(log, rel=1e3 * eps(dtype))


def wilkinson(n):
    """Rows grow to 2^(n-1) under partial pivoting."""
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    return a


@pytest.mark.parametrize("transpose", [False, True])
def test_growth(transpose, mesh):
    """No worse than what LAPACK makes of the matrix or of its transpose."""
    for n in (12, 24, 40):
        a, b = wilkinson(n), general(n, 2)
        a = a.T if transpose else a
        best = [
            scipy.linalg.lu_solve(scipy.linalg.lu_factor(form), b, trans=trans)
            for form, trans in ((a, 0), (a.T, 1))
        ]
        bound = max([LIMIT, *(4 * solve_residual(a, x, b) for x in best)])
        assert solve_residual(a, jaxmg.lu_solve(a, b, mesh=mesh), b) <= bound
        assert solve_residual(a, jaxmg.lu_solve(a, b, 3, line(2)), b) <= bound


def test_exactly_singular(mesh):
    cases = {"zero column": general(N, N), "zero row": general(N, N), "repeated": general(N, N)}
    cases["zero column"][:, 11] = 0
    cases["zero row"][11] = 0
    cases["repeated"][11] = cases["repeated"][3] = np.eye(N)[0]
    cases["zeros"], cases["ones"] = np.zeros((N, N)), np.ones((N, N))
    for a in cases.values():
        x, status = jaxmg.lu_solve(put(a, mesh, "x", None), np.ones(N), return_status=True)
        assert 1 <= int(status) <= N
        assert np.isnan(x).all()
        assert float(linalg.det(a, mesh=mesh)) == 0


def test_repeated_columns(mesh):
    """Singular, but for rounding errors: told, or solved as well as any matrix close to it."""
    a = general(N, N)
    a[:, 30] = a[:, 2]
    b = general(N, 1)
    x, status = jaxmg.lu_solve(put(a, mesh, "x", None), b, return_status=True)
    if int(status) == 0:
        assert_solved(a, x, b)
    else:
        assert np.isnan(x).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverses(dtype, mesh):
    for kind in (graded, kahan, permuted_identity, badly_scaled):
        a, _ = make(kind, dtype)
        x = linalg.inv(put(a, mesh, "x", None))
        # Columns of X are solutions, each to its own scale.
        assert inverse_residual(a, x) <= LIMIT


def test_same_answer_on_any_number_of_devices():
    a, b = general(N, N), general(N, 2)
    expected = np.linalg.solve(a, b)
    bound = np.linalg.cond(a) * eps("float64") * 100
    for ranks in range(1, EIGHT + 1):
        x = np.asarray(jaxmg.lu_solve(a, b, mesh=line(ranks)))
        assert np.max(np.abs(x - expected)) <= bound * np.max(np.abs(expected))


def test_a_larger_matrix(mesh):
    n = 1100
    a, b = general(n, n), general(n, 3)
    x = jax.jit(jaxmg.lu_solve)(put(np.concatenate([a, np.zeros((4, n))])[:n], mesh), b)
    assert_solved(a, x, b)
