"""Singular values and vectors: values, shapes, shardings, failures, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxmg
from derivatives import gradient_and_change
from matrices import DTYPES, eps, general, is_complex
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import LIMIT, orthogonality, product_residual, relative
from spectra import GENERAL, RAGGED, extremely_scaled


def assert_svd(a, u, s, vh, exact=None):
    s = np.asarray(s)
    k = min(a.shape)
    assert s.shape == (k,) and not is_complex(s.dtype)
    assert np.all(np.diff(s) <= 0) and np.all(s >= 0)
    u, vh = np.asarray(u), np.asarray(vh)
    assert product_residual(a, u[:, :k], s, vh[:k]) <= LIMIT
    assert orthogonality(u) <= LIMIT
    assert orthogonality(vh.conj().T) <= LIMIT
    if exact is not None:
        error = np.max(np.abs(s - exact), initial=0)
        assert error <= LIMIT * max(a.shape) * eps(a.dtype) * np.max(exact, initial=0)


@pytest.mark.parametrize("devices, shape, dtype", RAGGED)
def test_small_and_ragged_sizes(devices, shape, dtype):
    a = general(*shape, dtype)
    u, s, vh, status = jaxmg.gesvd(a, mesh=line(devices), return_status=True)
    k = min(shape)
    assert int(status) == 0 and u.shape == (shape[0], k) and vh.shape == (k, shape[1])
    assert_svd(a, u, s, vh)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (11, 4), (4, 11)])
def test_full_matrices(shape, mesh):
    a = general(*shape, "complex128")
    u, s, vh = jaxmg.gesvd(a, mesh=mesh, full_matrices=True)
    assert u.shape == (shape[0], shape[0]) and vh.shape == (shape[1], shape[1])
    assert_svd(a, u, s, vh)


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype, mesh):
    for name, matrix in GENERAL.items():
        a, exact = matrix(24, 24, dtype)
        u, s, vh, status = jaxmg.gesvd(put(a, mesh, "x", None), return_status=True)
        assert int(status) == 0, name
        assert_svd(a, u, s, vh, exact)


@pytest.mark.parametrize("shape", [(24, 9), (9, 24)])
def test_spectra_of_rectangular_matrices(shape, mesh):
    for name in ("geometric", "rank three", "two values", "zero", "shift"):
        a, exact = GENERAL[name](*shape, "float64")
        u, s, vh = jaxmg.gesvd(a, mesh=mesh)
        assert_svd(a, u, s, vh, exact)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales(dtype, mesh):
    for a in extremely_scaled(general(24, 24, dtype)):
        assert_svd(a, *jaxmg.gesvd(put(a, mesh, "x", None)))


def test_small_singular_values_are_not_lost_by_squaring(mesh):
    a, exact = GENERAL["geometric"](16, 16, "float64")
    s = jaxmg.gesvd(a, mesh=mesh, compute_u=False, compute_vh=False)
    assert np.max(np.abs(np.asarray(s) - exact)) <= 16 * eps("float64")


def test_some_results(mesh):
    a = general(9, 5)
    u, s, vh = jaxmg.gesvd(a, mesh=mesh)
    first, only = jaxmg.gesvd(a, mesh=mesh, compute_vh=False)
    assert relative(first, u) < 1e-13 and relative(only, s) < 1e-13
    only, last = jaxmg.gesvd(a, mesh=mesh, compute_u=False)
    assert relative(last, vh) < 1e-13 and relative(only, s) < 1e-13
    assert relative(jaxmg.gesvd(a, mesh=mesh, compute_u=False, compute_vh=False), s) < 1e-13


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_rows_stay_on_their_devices(kind):
    mesh = line(2, kind=kind)
    a = general(16, 8)
    for spec in (("x", None), (None, "x")):
        u, s, vh = jax.jit(jaxmg.gesvd)(put(a, mesh, *spec))
        assert_svd(a, u, s, vh)
        assert u.addressable_shards[0].data.shape == (8, 8)
        assert vh.addressable_shards[0].data.shape == (4, 8)


def test_two_axes():
    a = general(8, 8)
    assert_svd(a, *jaxmg.gesvd(put(a, grid(2, 2), "x", "y")))


def test_padded_rows():
    need(4)
    a = general(13, 6)
    padded = put(np.pad(a, ((0, 3), (0, 0))), line(4), "x", None)
    u, s, vh = jaxmg.gesvd(padded, m=13)
    assert u.shape == (16, 6) and vh.shape == (8, 6)
    assert_svd(a, u[:13], s, vh[:6])


def test_failure(mesh):
    a = general(8, 8)
    a[3, 5] = np.nan
    u, s, vh, status = jaxmg.gesvd(put(a, mesh, "x", None), return_status=True)
    assert int(status) == -1
    assert all(np.isnan(x).all() for x in (u, s, vh))
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.gesvd(put(a, mesh, "x", None), check=True)


def test_matrix_is_kept_unless_donated(mesh):
    a = general(8, 8)
    kept = put(a, mesh, "x", None)
    jaxmg.gesvd(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    out = jaxmg.gesvd(given, donate=True)
    assert given.is_deleted()
    assert_svd(a, *out)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(5, 5), (8, 4), (4, 8)])
def test_derivatives_as_of_jax(shape, dtype, mesh):
    a, d = general(*shape, dtype), general(*shape, dtype, seed=5)
    k = min(shape)
    c, e = general(shape[0], k, dtype, seed=6), general(k, shape[1], dtype, seed=7)

    def function(u, s, vh):
        # Does not depend on phases.
        return jnp.sum(jnp.sin(s)) + jnp.real(jnp.sum((c * u) @ (e * vh)) + jnp.sum(c * abs(u)))

    ours = lambda a: function(*jaxmg.gesvd(a, mesh=mesh))  # noqa: E731
    theirs = lambda a: function(*jnp.linalg.svd(a, full_matrices=False))  # noqa: E731
    found, expected = (gradient_and_change(f, a, d) for f in (ours, theirs))
    assert relative(found[0], expected[0]) < 1e-10
    assert relative(found[1], expected[1]) < 1e-8


def test_derivatives_of_values_alone(mesh):
    a = general(8, 5)
    check_grads(
        jax.jit(lambda a: jaxmg.gesvd(a, mesh=mesh, compute_u=False, compute_vh=False) ** 2),
        (a,),
        order=2,
        modes=["fwd", "rev"],
        rtol=1e-5,
        atol=1e-5,
    )


def test_repeated_singular_values(mesh):
    """U V^H does not depend on the choice of vectors; here all singular values are 2."""
    a = 2 * np.linalg.qr(general(5, 5))[0]

    def product(a):
        u, _, vh = jaxmg.gesvd(a, mesh=mesh)
        return u @ vh

    check_grads(jax.jit(product), (a,), order=1, modes=["fwd", "rev"], rtol=1e-6, atol=1e-6)


def test_no_derivative_of_completed_bases(mesh):
    with pytest.raises(NotImplementedError, match="full_matrices"):
        jax.grad(lambda a: jnp.sum(jaxmg.gesvd(a, mesh=mesh, full_matrices=True)[0]))(general(5, 3))


@pytest.mark.parametrize("count", [2, 9])
def test_vmap(count, mesh):
    batch = np.stack([general(6, 4, seed=k) for k in range(count)])
    u, s, vh = jax.vmap(lambda a: jaxmg.gesvd(a, mesh=mesh))(batch)
    for k, a in enumerate(batch):
        assert_svd(a, u[k], s[k], vh[k])
