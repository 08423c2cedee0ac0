"""The polar decomposition: values, shapes, shardings, failures, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxmg
from derivatives import gradient_and_change
from jaxmg import _native, _polar_plan
from jaxmg._matrix_operand import prepare_matrix
from jaxmg._polar import PolarCall, Wanted, _program, resolve_polar
from matrices import DTYPES, eps, from_spectrum, general, orthonormal, wide
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import LIMIT, norm1, orthogonality, product_residual, ratio, relative
from spectra import GENERAL, RAGGED, extremely_scaled


def assert_polar(a, u, h):
    """A = U H (or H U), with orthonormal columns or rows of U and a semidefinite H."""
    a, u, h = (np.asarray(x) for x in (a, u, h))
    assert u.shape == a.shape
    right = h.shape[0] == a.shape[1]
    assert product_residual(a, u, h) <= LIMIT if right else product_residual(a.T, u.T, h.T) <= LIMIT
    assert orthogonality(u if a.shape[0] >= a.shape[1] else u.conj().T) <= LIMIT
    scale = np.max(np.abs(a), initial=0) or 1.0
    h = h.astype(wide(h.dtype)) / scale
    unit = max(a.shape) * eps(a.dtype) * norm1(a.astype(wide(a.dtype)) / scale)
    assert ratio(norm1(h - h.conj().T), unit) <= LIMIT
    assert np.min(np.linalg.eigvalsh(h), initial=0) >= -LIMIT * unit


@pytest.mark.parametrize("devices, shape, dtype", RAGGED)
def test_small_and_ragged_sizes(devices, shape, dtype):
    a = general(*shape, dtype)
    u, h, status = jaxmg.polar(a, mesh=line(devices), return_status=True)
    assert int(status) == 0
    assert h.shape == (shape[1], shape[1])
    assert_polar(a, u, h)


@pytest.mark.parametrize("shape", [(10, 3), (3, 10)])
def test_sides(shape, mesh):
    a = general(*shape, "complex128")
    u, h = jaxmg.polar(a, mesh=mesh, side="left")
    assert h.shape == (shape[0], shape[0])
    assert product_residual(a, h, u) <= LIMIT
    assert relative(jaxmg.polar(a, mesh=mesh, compute_h=False), u) < 1e-12


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype, mesh):
    for name, matrix in GENERAL.items():
        a, _ = matrix(24, 24, dtype)
        u, h, status = jaxmg.polar(put(a, mesh, "x", None), return_status=True)
        assert int(status) == 0, name
        assert_polar(a, u, h)


def with_spectrum(values):
    n = len(values)
    return (orthonormal(n, seed=1) * values) @ orthonormal(n, seed=2)


def steps(a, mesh):
    """All steps of the iteration, and its Cholesky factorisations."""
    operand, x = prepare_matrix("polar", a, mesh=mesh)
    call = PolarCall(resolve_polar(operand), operand, Wanted())
    before = _native.counter("potrf")
    out = jax.block_until_ready(_program(call, x))
    assert_polar(a, operand.leave(out.left, len(a)), operand.leave(out.right, len(a)))
    assert int(out.info[0]) == 0
    return int(out.info[4]), _native.counter("potrf") - before


# The least singular value is looked for once, or twice or three times where it is small at first;
# the null space of a singular matrix is filled, and the matrix is iterated with again, for some
# steps that depend on rounding.
@pytest.mark.parametrize(
    "condition, most, factorisations",
    [
        (2, 3, 3),
        (20, 4, 3),
        (1e3, 5, 4),
        (1e6, 7, 7),
        (1e9, 9, 9),
        (1e14, 13, 14),
        (np.inf, 20, 22),
    ],
)
def test_number_of_steps(condition, most, factorisations):
    n = 200
    found = steps(with_spectrum(np.where(np.arange(n) % 2, 1, 1 / condition)), line(2))
    assert found[0] <= most
    assert found[1] <= factorisations


planned = jax.jit(_polar_plan.plan, static_argnums=(0, 1))
raised = jax.jit(_polar_plan.raised)
first_terms = jax.jit(_polar_plan.first_terms, static_argnums=0)


def by_series(s, terms):
    return s * np.polyval([*_polar_plan.SERIES[:terms][::-1], 1], 1 - s**2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_planned_steps_make_singular_values_one(dtype):
    """The steps as planned, by scalars."""
    for n, bound in ((24, 100), (200, 178), (10**4, 1000)):
        for lowest in (0.9, 0.5, 1e-2, 1e-4, 1e-6, eps(dtype)):
            least, steps = planned(n, dtype, jnp.asarray(lowest, dtype))
            assert float(least) >= _polar_plan.best_for(bound) * (1 - 1e-2)
            s, low = np.geomspace(lowest, 1, 999), jnp.asarray(lowest)
            for _ in range(int(steps)):
                (a, b, c), low = raised(low, least)
                s = s * (a + b * s**2) / (1 + c * s**2)
            assert s.min() >= low - 1e-6
            size = float(_polar_plan.size_of_rest(low))
            s *= np.sqrt(2 / (1 + low**2))
            assert np.max(abs(1 - s**2)) <= size + 1e-6
            first = int(first_terms(dtype, size))
            s = by_series(s, first)
            assert np.max(abs(1 - s**2)) <= _polar_plan.sufficient(dtype, 4)
            assert np.max(abs(1 - by_series(s, 4))) <= eps(dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_error_with_large_weights(dtype):
    """The bound is met with a margin where the weights are the largest for this order."""
    n = 320
    for values in (np.where(np.arange(n) % 2, 1, 1e-4), np.logspace(0, -4, n)):
        a = with_spectrum(values).astype(dtype)
        u, h = jaxmg.polar(a, mesh=line(2))
        assert_polar(a, u, h)
        assert product_residual(a, np.asarray(u), np.asarray(h)) <= LIMIT / 20


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales(dtype, mesh):
    for a in extremely_scaled(general(24, 24, dtype)):
        assert_polar(a, *jaxmg.polar(put(a, mesh, "x", None)))


def test_what_is_known_exactly(mesh):
    u, h = jaxmg.polar(np.zeros((9, 9)), mesh=mesh)
    assert np.array_equal(u, np.eye(9)) and not np.any(h)
    q = orthonormal(9, "complex128")
    u, h = jaxmg.polar(2 * q, mesh=mesh)
    assert relative(u, q) < 1e-14 and relative(h, 2 * np.eye(9)) < 1e-14
    d = np.array([3.0, -2.0, 0.0, 1.0, -1e-3, 0.0, 5.0, -1.0, 0.5])
    u, h = jaxmg.polar(np.diag(d), mesh=mesh)
    assert np.allclose(u, np.diag(np.where(d < 0, -1.0, 1.0)), atol=1e-14)
    assert np.allclose(h, np.diag(abs(d)), atol=1e-14)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_rows_stay_on_their_devices(kind):
    mesh = line(2, kind=kind)
    a = general(16, 8)
    for spec in (("x", None), (None, "x")):
        u, h = jax.jit(jaxmg.polar)(put(a, mesh, *spec))
        assert_polar(a, u, h)
        assert u.addressable_shards[0].data.shape == (8, 8)
        assert h.addressable_shards[0].data.shape == (4, 8)


def test_two_axes():
    a = general(8, 8)
    assert_polar(a, *jaxmg.polar(put(a, grid(2, 2), "x", "y")))


def test_padded_rows():
    need(4)
    a = general(13, 6)
    padded = put(np.pad(a, ((0, 3), (0, 0))), line(4), "x", None)
    u, h = jaxmg.polar(padded, m=13)
    assert u.shape == (16, 6) and h.shape == (8, 6)
    assert_polar(a, u[:13], h[:6])


def test_small_matrices_are_worked_on_by_every_device(mesh):
    jaxmg.set_gather_below(16)
    try:
        a = general(16, 12, "complex128")
        before = _native.counter("potri")
        u, h = jaxmg.polar(put(a, mesh, "x", None))
        assert_polar(a, u, h)
        assert _native.counter("potri") - before >= mesh.size
        assert u.addressable_shards[0].data.shape == (16 // mesh.size, 12)
    finally:
        jaxmg.set_gather_below(None)


def test_failure(mesh):
    a = general(8, 8)
    a[3, 5] = np.nan
    u, h, status = jaxmg.polar(put(a, mesh, "x", None), return_status=True)
    assert int(status) == -1
    assert np.isnan(u).all() and np.isnan(h).all()
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.polar(put(a, mesh, "x", None), check=True)
    with pytest.raises(ValueError, match="side"):
        jaxmg.polar(a, mesh=mesh, side="up")


def test_matrix_is_kept_unless_donated(mesh):
    a = general(8, 8)
    kept = put(a, mesh, "x", None)
    jaxmg.polar(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    u, h = jaxmg.polar(given, donate=True)
    assert given.is_deleted()
    assert_polar(a, u, h)


def through_svd(a):
    """U and H from JAX's singular values, differentiable where those are distinct."""
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    return u @ vh, jnp.conj(vh).T @ (s[:, None] * vh)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(6, 6), (9, 4)])
def test_derivatives(shape, dtype, mesh):
    a, d = general(*shape, dtype), general(*shape, dtype, seed=5)
    c, e = general(*shape, dtype, seed=6), general(shape[1], shape[1], dtype, seed=7)

    def function(u, h):
        return jnp.sum(jnp.real(c * u * u)) + jnp.sum(jnp.real(e * h * h))

    ours = lambda a: function(*jaxmg.polar(a, mesh=mesh))  # noqa: E731
    theirs = lambda a: function(*through_svd(a))  # noqa: E731
    found, expected = (gradient_and_change(f, a, d) for f in (ours, theirs))
    assert relative(found[0], expected[0]) < 1e-11
    assert relative(found[1], expected[1]) < 1e-9


def test_derivatives_of_wide_matrices_and_of_u_alone(mesh):
    a = general(3, 5)
    check_grads(
        jax.jit(lambda a: jaxmg.polar(a, mesh=mesh, compute_h=False)[0]),
        (a,),
        order=1,
        modes=["fwd", "rev"],
        rtol=1e-6,
        atol=1e-6,
    )


def test_derivatives_at_a_unitary_matrix(mesh):
    """All singular values are equal there: first and second derivatives are finite and right."""
    a = orthonormal(5)
    check_grads(
        jax.jit(lambda a: jaxmg.polar(a, mesh=mesh)),
        (a,),
        order=2,
        modes=["fwd", "rev"],
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("count", [2, 9])
def test_vmap(count, mesh):
    batch = np.stack([from_spectrum(1.0 + np.arange(6) * k) for k in range(count)])
    u, h = jax.vmap(lambda a: jaxmg.polar(a, mesh=mesh))(batch)
    for k, a in enumerate(batch):
        assert_polar(a, u[k], h[k])
