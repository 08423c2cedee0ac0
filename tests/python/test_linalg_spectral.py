"""jaxmg.linalg: eigenvalues, singular values and what follows from them, as in JAX and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

from jaxmg import linalg
from matrices import from_spectrum, general, hermitian, spd
from meshes import line, put
from residuals import LIMIT, eigen_residual, orthogonality, product_residual, relative


def test_eigh(mesh):
    a = hermitian(12, "complex128")
    result = linalg.eigh(put(np.pad(a, ((0, 0), (0, 0))), line(4), "x", None))
    assert relative(result.eigenvalues, np.linalg.eigvalsh(a)) < 1e-14
    assert eigen_residual(a, *result) <= LIMIT
    assert relative(linalg.eigvalsh(a, mesh=mesh), np.linalg.eigvalsh(a)) < 1e-14


def test_triangles(mesh):
    a = general(8, 8)
    for UPLO in "LU":
        exact = np.linalg.eigvalsh(a, UPLO)
        assert relative(linalg.eigvalsh(a, UPLO, mesh=mesh), exact) < 1e-13
        assert relative(linalg.eigh(a, UPLO, mesh=mesh)[0], exact) < 1e-13
    average = np.linalg.eigvalsh((a + a.T) / 2)
    assert relative(linalg.eigh(a, mesh=mesh)[0], average) < 1e-13
    with pytest.raises(ValueError, match="UPLO"):
        linalg.eigh(a, "lower", mesh=mesh)


def test_subset_by_index(mesh):
    a = hermitian(12)
    exact = scipy.linalg.eigh(a, subset_by_index=(3, 6))
    w, v = linalg.eigh(put(a, line(4), "x", None), subset_by_index=(3, 6))
    assert relative(w, exact[0]) < 1e-13 and v.shape == (12, 4)
    assert eigen_residual(a, w, v) <= LIMIT and orthogonality(v) <= LIMIT
    only = linalg.eigvalsh(a, subset_by_index=(3, 6), mesh=mesh)
    assert relative(only, exact[0]) < 1e-13
    for wrong in ((3, 12), (-1, 2), (4, 3), 5):
        with pytest.raises(ValueError, match="subset_by_index"):
            linalg.eigh(a, subset_by_index=wrong, mesh=mesh)


def test_derivative_of_a_subset(mesh):
    a = hermitian(6)

    def function(a):
        w, v = linalg.eigh(a, subset_by_index=(1, 2), mesh=mesh)
        return jnp.sum(w * v[0] ** 2)

    def reference(a):
        w, v = jnp.linalg.eigh(a)
        return jnp.sum(w[1:3] * v[0, 1:3] ** 2)

    assert relative(jax.jit(jax.grad(function))(a), jax.jit(jax.grad(reference))(a)) < 1e-12


def test_subset_by_value(mesh):
    a = from_spectrum(np.arange(8.0))
    w, v = linalg.eigh(a, subset_by_value=(1.5, 5.0 + 1e-9), mesh=mesh)
    assert relative(w, np.array([2.0, 3.0, 4.0, 5.0])) < 1e-14 and v.shape == (8, 4)
    assert eigen_residual(a, w, v) <= LIMIT
    select = jax.jit(lambda a, low: linalg.eigh(a, subset_by_value=(low, 9.0), max_count=5))
    w, v, found = select(put(a, mesh, "x", None), 5.5)
    assert int(found) == 2 and relative(w[:2], np.array([6.0, 7.0])) < 1e-14
    assert np.isnan(w[2:]).all() and np.isnan(v[:, 2:]).all() and v.shape == (8, 5)
    assert eigen_residual(a, w[:2], v[:, :2]) <= LIMIT
    assert int(select(put(a, mesh, "x", None), -1.0).found) == 8
    assert int(select(put(a, mesh, "x", None), 10.0).found) == 0
    with pytest.raises(ValueError, match="max_count"):
        jax.jit(lambda a: linalg.eigh(a, subset_by_value=(0.0, 1.0)))(a)
    with pytest.raises(ValueError, match="both"):
        linalg.eigh(a, subset_by_value=(0.0, 1.0), subset_by_index=(0, 1), mesh=mesh)


@pytest.mark.parametrize("type", [1, 2, 3])
@pytest.mark.parametrize("n, dtype", [(16, "complex128"), (7, "float64")])
def test_generalised_problem(n, dtype, type, mesh):
    a, b = hermitian(n, dtype), spd(n, dtype)
    exact = scipy.linalg.eigh(a, b, type=type)
    w, v = linalg.eigh(a, b=b, type=type, mesh=mesh)
    assert relative(w, exact[0]) < 1e-12
    v = np.asarray(v)
    left, right = {1: (a @ v, b @ v), 2: (a @ b @ v, v), 3: (b @ a @ v, v)}[type]
    assert relative(left, right * w) < 1e-12
    metric = b if type < 3 else np.linalg.inv(b)
    assert relative(v.conj().T @ metric @ v, np.eye(n)) < 1e-12
    assert relative(linalg.eigvalsh(a, "L", b=b, type=type, mesh=mesh), exact[0]) < 1e-12


def test_generalised_problem_of_an_indefinite_b(mesh):
    b = spd(8)
    b[3, 3] = -1
    w, v = linalg.eigh(hermitian(8), b=b, mesh=mesh)
    assert np.isnan(w).all() and np.isnan(v).all()
    with pytest.raises(ValueError, match="type"):
        linalg.eigh(hermitian(8), b=spd(8), type=4, mesh=mesh)
    with pytest.raises(ValueError, match="one size"):
        linalg.eigh(hermitian(8), b=spd(9), mesh=mesh)


@pytest.mark.parametrize("n", [8, 5])
def test_derivatives_of_the_generalised_problem(n, mesh):
    a, b, c = hermitian(n), spd(n), general(n, n, seed=3)

    def function(w, v):
        return jnp.sum(jnp.sin(w)) + jnp.sum(c * v**2)

    def reference(a, b):
        lower = jnp.linalg.cholesky(b)
        half = jax.scipy.linalg.solve_triangular(lower, (a + a.T) / 2, lower=True)
        w, y = jnp.linalg.eigh(jax.scipy.linalg.solve_triangular(lower, half.T, lower=True))
        return function(w, jax.scipy.linalg.solve_triangular(lower.T, y))

    ours = jax.jit(jax.grad(lambda a, b: function(*linalg.eigh(a, b=b, mesh=mesh)), (0, 1)))
    theirs = jax.jit(jax.grad(reference, (0, 1)))
    for got, want in zip(ours(a, b), theirs(a, b), strict=True):
        assert relative(got, (want + want.T) / 2) < 1e-10


def test_batches(mesh):
    batch = np.stack([[hermitian(5, seed=k + 3 * j) for k in range(3)] for j in range(2)])
    w, v = linalg.eigh(batch, mesh=mesh)
    assert w.shape == (2, 3, 5) and v.shape == (2, 3, 5, 5)
    assert relative(w, np.linalg.eigvalsh(batch)) < 1e-13
    assert relative(v @ (w[..., None] * np.swapaxes(v, -1, -2)), batch) < 1e-13
    s = linalg.svdvals(batch, mesh=mesh)
    assert relative(s, np.linalg.svd(batch, compute_uv=False)) < 1e-13
    assert relative(linalg.pinv(batch, mesh=mesh), np.linalg.pinv(batch)) < 1e-11
    u, p = linalg.polar(batch[0], mesh=mesh)
    assert relative(u @ p, batch[0]) < 1e-13


def test_svd(mesh):
    a = general(9, 5, "complex128")
    exact = np.linalg.svd(a, compute_uv=False)
    u, s, vh = linalg.svd(a, full_matrices=False, mesh=mesh)
    assert relative(s, exact) < 1e-13 and product_residual(a, u, s, vh) <= LIMIT
    assert relative(linalg.svd(a, compute_uv=False, mesh=mesh), exact) < 1e-13
    u, s, vh = linalg.svd(a, False, subset_by_index=(0, 2), mesh=mesh)
    assert u.shape == (9, 2) and vh.shape == (2, 5) and relative(s, exact[:2]) < 1e-13


def test_svd_is_full_by_default(mesh):
    result = linalg.svd(general(9, 5), mesh=mesh)
    assert result.U.shape == (9, 9) and result.Vh.shape == (5, 5)
    assert orthogonality(result.U) <= LIMIT


@pytest.mark.parametrize("shape", [(8, 8), (9, 4), (4, 9)])
def test_pinv(shape, mesh):
    a = general(*shape, "complex128")
    x = linalg.pinv(a, mesh=mesh)
    assert relative(x, np.linalg.pinv(a)) < 1e-12


def on_diagonal(shape, values):
    """Of a shape that is compiled anyway."""
    a = np.zeros(shape)
    np.fill_diagonal(a, [*values, *np.zeros(min(shape) - len(values))])
    return a


def test_pinv_of_lower_rank(mesh):
    a = general(8, 3) @ general(3, 6, seed=4)
    assert relative(linalg.pinv(a, mesh=mesh), np.linalg.pinv(a, rcond=1e-12)) < 1e-12
    assert not np.any(linalg.pinv(np.zeros((8, 6)), mesh=mesh))
    cut = linalg.pinv(on_diagonal((8, 6), [1.0, 1e-3]), rtol=1e-2, mesh=mesh)
    assert relative(cut, on_diagonal((6, 8), [1.0])) < 1e-15
    with pytest.raises(ValueError, match="rcond"):
        linalg.pinv(a, 1e-3, rcond=1e-3, mesh=mesh)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_derivatives_of_pinv(shape, mesh):
    a, c = general(*shape, "complex128"), general(shape[1], shape[0], seed=3)
    ours = lambda a: jnp.sum(c * jnp.abs(linalg.pinv(a, mesh=mesh)) ** 2)  # noqa: E731
    theirs = lambda a: jnp.sum(c * jnp.abs(jnp.linalg.pinv(a)) ** 2)  # noqa: E731
    assert relative(jax.jit(jax.grad(ours))(a), jax.jit(jax.grad(theirs))(a)) < 1e-10


def test_derivative_of_the_inverse_of_a_unitary_matrix(mesh):
    a = np.linalg.qr(general(5, 5))[0]
    check_grads(jax.jit(lambda a: linalg.pinv(a, mesh=mesh)), (a,), order=2, rtol=1e-6, atol=1e-6)


def test_rank(mesh):
    assert int(linalg.matrix_rank(general(9, 3) @ general(3, 7), mesh=mesh)) == 3
    assert int(linalg.matrix_rank(np.zeros((9, 7)), mesh=mesh)) == 0
    known = on_diagonal((9, 7), [1.0, 1e-3, 1e-9])
    assert int(linalg.matrix_rank(known, rtol=1e-6, mesh=mesh)) == 2
    assert int(linalg.matrix_rank(np.ones(3))) == 1


@pytest.mark.parametrize("p", [None, -2, 1, "fro"])
def test_cond(p, mesh):
    a = general(6, 6)
    assert relative(linalg.cond(a, p, mesh=mesh), np.linalg.cond(a, p)) < 1e-11
    # A singular value of zero may come out as rounding.
    singular = float(linalg.cond(on_diagonal((6, 6), [1.0] * 5), p, mesh=mesh))
    assert singular < 1e-15 if p == -2 else singular > 1e15


@pytest.mark.parametrize("ord", [None, 1, -1, 2, -2, "nuc", "fro", np.inf, -np.inf])
def test_norm(ord, mesh):
    a = general(6, 6)
    assert relative(linalg.norm(a, ord, mesh=mesh), np.linalg.norm(a, ord)) < 1e-13
    kept = linalg.norm(a, ord, axis=(0, 1), keepdims=True, mesh=mesh)
    assert relative(kept, np.linalg.norm(a, ord, axis=(0, 1), keepdims=True)) < 1e-13


def test_norm_of_other_axes(mesh):
    a = np.stack([general(5, 5, seed=k) for k in range(3)], axis=1)
    got = linalg.norm(a, "nuc", axis=(2, 0), mesh=mesh)
    assert relative(got, np.linalg.norm(a, "nuc", axis=(2, 0))) < 1e-13
    assert relative(linalg.norm(a[0, 0], 3), np.linalg.norm(a[0, 0], 3)) < 1e-14


def test_polar(mesh):
    a = general(5, 7)
    for side in ("right", "left"):
        u, p = linalg.polar(a, side, mesh=mesh)
        exact = scipy.linalg.polar(a, side)
        assert relative(u, exact[0]) < 1e-12 and relative(p, exact[1]) < 1e-12
    with pytest.raises(ValueError, match="method"):
        linalg.polar(a, method="other", mesh=mesh)
