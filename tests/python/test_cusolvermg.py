"""backend="cusolvermg" on GPUs: the results, statuses and derivatives of the built-in engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import _native
from matrices import DTYPES, general, hermitian, spd
from meshes import line, put
from residuals import (
    LIMIT,
    assert_solved,
    eigen_residual,
    inverse_residual,
    orthogonality,
    relative,
)


def _why_not():
    if jax.default_backend() != "gpu":
        return "cuSOLVERMg needs GPUs"
    try:
        _native.require_backend("cusolvermg", "cuda")
    except jaxmg.BackendUnavailableError as error:
        return str(error)
    return None


WHY_NOT = _why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
COUNTS = [1, 2, 3, 4, 8]
MG = {"backend": "cusolvermg"}

# --- Cholesky -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize(("n", "tile"), [(1, None), (7, 2), (64, 16), (100, 32), (1030, 128)])
def test_solution_and_logdet(dtype, devices, n, tile):
    mesh, a = line(devices), spd(n, dtype)
    for b in (general(n, 1, dtype)[:, 0], general(n, 5, dtype, seed=3)):
        x, logdet, status = jaxmg.potrs(
            a, b, tile, mesh, return_logdet=True, return_status=True, **MG
        )
        assert int(status) == 0
        assert_solved(a, x, b)
        assert logdet == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-4)


@pytest.mark.parametrize("devices", COUNTS)
def test_right_hand_sides_in_several_blocks_and_split(devices):
    mesh, n = line(devices), 96
    a, b = spd(n), general(n, 1500)
    assert_solved(a, jaxmg.potrs(a, b, 8, mesh, **MG), b)
    split = put(b, mesh, "x", None)
    x = jaxmg.potrs(put(a, mesh, "x", None), split, 8, **MG)
    assert_solved(a, x, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize(("n", "tile"), [(1, None), (7, 2), (100, 32), (513, None)])
def test_inverse(dtype, devices, n, tile):
    a = spd(n, dtype)
    x, status = jaxmg.potri(a, tile, line(devices), return_status=True, **MG)
    assert int(status) == 0
    assert inverse_residual(a, x) <= LIMIT
    assert np.allclose(x, np.conj(np.asarray(x)).T)


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle(devices, lower):
    n = 80
    a = spd(n, "complex128")
    triangle = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    half = np.where(triangle, a, np.nan)
    b = general(n, 2, "complex128")
    assert_solved(a, jaxmg.potrs(half, b, 16, line(devices), lower=lower, **MG), b)


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("k", [1, 17, 64])
def test_statuses_are_those_of_the_native_engine(devices, k):
    mesh, n = line(devices), 64
    bad = spd(n)
    bad[k - 1, k - 1] = -1
    nonfinite = spd(n)
    nonfinite[3, 40] = nonfinite[40, 3] = np.inf
    for a in (bad, nonfinite, np.tril(spd(n))):
        native = jaxmg.potrs(a, np.ones(n), 16, mesh, return_status=True)
        x, status = jaxmg.potrs(a, np.ones(n), 16, mesh, return_status=True, **MG)
        assert int(status) == int(native[1]) != 0
        assert np.isnan(x).all()
        inverse, status = jaxmg.potri(a, 16, mesh, return_status=True, **MG)
        assert int(status) == int(native[1])
        assert np.isnan(inverse).all()
        # A failed call leaves nothing behind.
        assert_solved(spd(n), jaxmg.potrs(spd(n), np.ones(n), 16, mesh, **MG), np.ones(n))


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_under_jit_grad_and_scan(devices):
    mesh, n = line(devices), 48
    a = put(spd(n), mesh, "x", None)

    def loss(a, **options):
        x, logdet = jaxmg.potrs(a, jnp.ones(n), 8, return_logdet=True, **options)
        return jnp.sum(x**2) + logdet

    got, want = (jax.jit(jax.grad(lambda a, o=o: loss(a, **o)))(a) for o in (MG, {}))
    assert relative(got, want) < 1e-10

    def step(x, _):
        return jaxmg.potrs(a, x, 8, **MG), None

    x, _ = jax.jit(lambda b: jax.lax.scan(step, b, length=5))(jnp.ones(n))
    want = np.ones(n)
    for _ in range(5):
        want = np.linalg.solve(spd(n), want)
    assert relative(x, want) < 1e-10


def test_matrix_is_kept_unless_donated(mesh):
    a = put(spd(64), mesh, "x", None)
    jaxmg.potrs(a, np.ones(64), 8, **MG)
    assert np.array_equal(a, spd(64))
    jaxmg.potri(a, 8, donate=True, **MG)
    assert a.is_deleted()


def test_other_order_of_devices():
    count = len(jax.devices())
    mesh = line(count, order=list(range(count))[::-1])
    a, b = spd(64), general(64, 3)
    assert_solved(a, jaxmg.potrs(a, b, 8, mesh, **MG), b)


def test_larger_matrix_by_the_chosen_tile(mesh):
    n = 4000
    a, b = spd(n), general(n, 2)
    assert_solved(a, jaxmg.potrs(a, b, mesh=mesh, **MG), b)


# --- LU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize(("n", "tile"), [(1, None), (7, 2), (64, 16), (100, 32), (1030, 128)])
def test_lu_solution(dtype, devices, n, tile):
    mesh, a = line(devices), general(n, n, dtype)
    for b in (general(n, 1, dtype)[:, 0], general(n, 5, dtype, seed=3)):
        x, status = jaxmg.lu_solve(a, b, tile, mesh, return_status=True, **MG)
        assert int(status) == 0
        assert_solved(a, x, b)


@pytest.mark.parametrize("devices", COUNTS)
def test_lu_right_hand_sides_in_several_blocks_and_split(devices):
    mesh, n = line(devices), 96
    a, b = general(n, n), general(n, 1500, seed=2)
    assert_solved(a, jaxmg.lu_solve(a, b, 8, mesh, **MG), b)
    split = put(b, mesh, "x", None)
    assert_solved(a, jaxmg.lu_solve(put(a, mesh, "x", None), split, 8, **MG), b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", COUNTS)
def test_lu_transposed_system(dtype, devices):
    """What a derivative solves: by the library's own solution."""
    mesh, n = line(devices), 60
    a, b = general(n, n, dtype), general(n, 3, dtype, seed=4)

    def solve(b):
        return jaxmg.lu_solve(put(a, mesh, "x", None), b, 8, **MG)

    (x,) = jax.linear_transpose(solve, jnp.asarray(b))(jnp.asarray(b))
    assert_solved(a.T, x, b)


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("k", [1, 17, 64])
def test_lu_statuses_are_those_of_the_native_engine(devices, k):
    mesh, n = line(devices), 64
    singular, nonfinite = general(n, n), general(n, n)
    singular[k - 1] = 0
    nonfinite[3, 40] = np.nan
    for a, expected in ((singular, k), (nonfinite, -1)):
        native = jaxmg.lu_solve(a, np.ones(n), 16, mesh, return_status=True)
        x, status = jaxmg.lu_solve(a, np.ones(n), 16, mesh, return_status=True, **MG)
        assert int(status) == int(native[1]) == expected
        assert np.isnan(x).all()
        # A failed call leaves nothing behind.
        good = general(n, n)
        assert_solved(good, jaxmg.lu_solve(good, np.ones(n), 16, mesh, **MG), np.ones(n))
    with pytest.raises(jaxmg.SingularMatrixError):
        jaxmg.lu_solve(singular, np.ones(n), 16, mesh, check=True, **MG)


@pytest.mark.parametrize("devices", COUNTS)
def test_lu_under_jit_and_grad(devices):
    mesh, n = line(devices), 48
    a = put(general(n, n) + 4 * np.eye(n), mesh, "x", None)

    def loss(a, **options):
        return jnp.sum(jaxmg.lu_solve(a, jnp.ones(n), 8, **options) ** 2)

    got, want = (jax.jit(jax.grad(lambda a, o=o: loss(a, **o)))(a) for o in (MG, {}))
    assert relative(got, want) < 1e-10


def test_lu_larger_matrix_by_the_chosen_tile(mesh):
    n = 4000
    a, b = general(n, n), general(n, 2)
    assert_solved(a, jaxmg.lu_solve(a, b, mesh=mesh, **MG), b)


# --- eigenvalues --------------------------------------------------------------------------------


def assert_decomposed(a, w, v):
    assert np.all(np.diff(np.asarray(w)) >= 0)
    assert eigen_residual(a, w, v) <= LIMIT
    assert orthogonality(v) <= LIMIT


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize(("n", "tile"), [(1, None), (7, 2), (64, 16), (100, 32), (1030, 128)])
def test_eigenvectors(dtype, devices, n, tile):
    mesh, a = line(devices), hermitian(n, dtype)
    w, v, status = jaxmg.syevd(a, tile, mesh, return_status=True, **MG)
    assert int(status) == 0
    assert_decomposed(a, w, v)
    native = jaxmg.syevd(a, mesh=mesh, return_eigenvectors=False)
    assert relative(w, native) <= LIMIT * n * np.finfo(w.dtype).eps
    values = jaxmg.syevd(a, tile, mesh, return_eigenvectors=False, **MG)
    assert relative(values, w) <= LIMIT * n * np.finfo(w.dtype).eps


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("lower", [True, False])
def test_eigenvectors_of_one_triangle_and_scales(devices, lower):
    n = 40
    triangle = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    for scale in (1.0, 1e150, 1e-150):
        a = hermitian(n, "complex128") * scale
        half = np.where(triangle, a, np.nan)
        assert_decomposed(a, *jaxmg.syevd(half, 8, line(devices), lower=lower, **MG))


@pytest.mark.parametrize("devices", COUNTS)
def test_eigenvectors_of_repeated_and_diagonal_spectra(devices):
    mesh = line(devices)
    for a in (np.eye(50), np.zeros((50, 50)), np.diag(np.arange(50.0)), np.ones((50, 50))):
        assert_decomposed(a, *jaxmg.syevd(a, 8, mesh, **MG))


@pytest.mark.parametrize("devices", COUNTS)
def test_eigenvalue_statuses_are_those_of_the_native_engine(devices):
    mesh, n = line(devices), 64
    nonfinite = hermitian(n)
    nonfinite[3, 40] = nonfinite[40, 3] = np.inf
    for a in (nonfinite, np.tril(spd(n))):
        native = jaxmg.syevd(a, mesh=mesh, return_status=True)
        w, v, status = jaxmg.syevd(a, 16, mesh, return_status=True, **MG)
        assert int(status) == int(native[2]) < 0
        assert np.isnan(w).all()
        assert np.isnan(v).all()
        assert_decomposed(hermitian(n), *jaxmg.syevd(hermitian(n), 16, mesh, **MG))


@pytest.mark.parametrize("devices", COUNTS)
def test_eigenvalues_under_jit_and_grad(devices):
    mesh, n = line(devices), 48
    a = put(hermitian(n), mesh, "x", None)
    weights = jnp.arange(1.0, n + 1)

    def loss(a, **options):
        return jnp.sum(weights * jaxmg.syevd(a, return_eigenvectors=False, **options))

    got, want = (jax.jit(jax.grad(lambda a, o=o: loss(a, **o)))(a) for o in (MG, {}))
    assert relative(got, want) < 1e-10


def test_eigenvectors_are_split_as_the_matrix_is_and_it_is_kept_unless_donated(mesh):
    n = 8 * len(jax.devices())
    a = put(hermitian(n), mesh, "x", None)
    _, v = jaxmg.syevd(a, 4, **MG)
    assert np.array_equal(a, hermitian(n))
    assert v.addressable_shards[0].data.shape == (8, n)
    assert_decomposed(hermitian(n), *jaxmg.syevd(a, 4, donate=True, **MG))
    assert a.is_deleted()


def test_larger_eigenproblem_by_the_chosen_tile(mesh):
    a = hermitian(2000)
    assert_decomposed(a, *jaxmg.syevd(a, mesh=mesh, **MG))
