"""The spectral decomposition as an object: solutions, determinants, functions, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxmg import _native, linalg
from matrices import DTYPES, eps, from_spectrum, general, hermitian
from meshes import AUTO, EXPLICIT, line, put
from residuals import LIMIT, assert_solved, eigen_residual, inverse_residual, relative

N = 16


def indefinite(dtype="float64", n=N):
    """Eigenvalues on both sides of zero, none near it, one of them repeated."""
    return from_spectrum(np.where(np.arange(n) % 3 == 0, -2.0, 1.0 + np.arange(n)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "n"), [(1, 5), (3, 16), (8, 16)])
def test_solutions_and_determinants(dtype, count, n):
    a, b = indefinite(dtype, n), general(n, 3, dtype)
    factor = linalg.eigh_factor(a, mesh=line(count))
    assert factor.shape == (n, n) and factor.dtype == dtype and int(factor.status) == 0
    assert eigen_residual(a, *factor) <= LIMIT
    assert_solved(a, factor.solve(b), b)
    assert factor.solve(b[:, 0]).shape == (n,) and factor.solve(b[:, :0]).shape == (n, 0)
    assert inverse_residual(a, factor.inv()) <= LIMIT
    sign, value = np.linalg.slogdet(a)
    assert float(factor.slogdet().sign) == pytest.approx(np.real(sign))
    assert float(factor.slogdet().logabsdet) == pytest.approx(value, rel=100 * n * eps(dtype))
    assert np.isnan(factor.logdet()) == (np.real(sign) < 0)
    square = factor.apply(lambda w: w * w, b)
    assert relative(square, a @ (a @ b)) <= 100 * n * eps(dtype)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_placed_by_rows_and_through_jit(kind):
    mesh = line(2, kind=kind)
    a, b = indefinite(), general(N, 2)
    placed = put(a, mesh, "x", None)
    factor = jax.jit(linalg.eigh_factor)(placed)
    assert factor.v.addressable_shards[0].data.shape == (N // 2, N)
    for right in (put(b, mesh), put(b, mesh, "x", None)):
        assert_solved(a, factor.solve(right), b)
        assert_solved(a, jax.jit(lambda f, b: f.solve(b))(factor, right), b)
    w, _ = factor
    assert relative(w, np.linalg.eigvalsh(a)) < 1e-13


@pytest.mark.parametrize("lower", [None, True, False])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_with_a_repeated_eigenvalue(lower, dtype, mesh):
    a, b = indefinite(dtype), general(N, 2, dtype)

    def ours(a, b):
        factor = linalg.eigh_factor(a, lower=lower)
        return jnp.sum(jnp.abs(factor.solve(b)) ** 2) + factor.slogdet().logabsdet

    def theirs(a, b):
        if lower is None:
            a = (a + jnp.conj(a).T) / 2
        else:
            strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
            a = strict + jnp.conj(strict).T + jnp.diag(jnp.real(jnp.diag(a)))
        x = jnp.linalg.solve(a, b)
        return jnp.sum(jnp.abs(x) ** 2) + jnp.linalg.slogdet(a)[1]

    placed = put(a, mesh, "x", None)
    found = jax.jit(jax.grad(ours, (0, 1)))(placed, b)
    for got, expected in zip(found, jax.jit(jax.grad(theirs, (0, 1)))(a, b), strict=True):
        assert relative(got, expected) < 1e-11
    moved = put(hermitian(N, dtype, seed=4), mesh, "x", None), general(N, 2, dtype, seed=5)
    got = jax.jvp(ours, (placed, b), moved)[1]
    expected = jax.jvp(theirs, (a, b), tuple(np.asarray(x) for x in moved))[1]
    assert float(got) == pytest.approx(float(expected), rel=1e-11)


def test_derivative_of_a_function_of_the_matrix(mesh):
    a, b = from_spectrum(1.0 + np.arange(8)), general(8, 1)[:, 0]
    root = lambda a: b @ linalg.eigh_factor(a, mesh=mesh).apply(jnp.sqrt, b)  # noqa: E731
    change = hermitian(8, seed=3)
    got = jax.jvp(root, (a,), (change,))[1]
    step = 1e-5
    values = [float(root(a + s * step * change)) for s in (1, -1)]
    assert float(got) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-7)


def test_failures_and_arguments(mesh):
    bad = indefinite()
    bad[2, 3] = bad[3, 2] = np.nan
    factor = linalg.eigh_factor(put(bad, mesh, "x", None))
    assert int(factor.status) == -1
    assert np.isnan(factor.solve(np.ones(N))).all() and np.isnan(factor.slogdet().sign)
    good = linalg.eigh_factor(indefinite(), mesh=mesh)
    with pytest.raises(ValueError, match=r"solve: b has shape \(3,\)"):
        good.solve(np.ones(3))
    with pytest.raises(TypeError, match="complex128"):
        good.apply(jnp.sqrt, np.ones(N, complex))
    with pytest.raises(ValueError, match="eigh_factor: a has shape"):
        linalg.eigh_factor(np.ones((3, 4)), mesh=mesh)
    with pytest.raises(ValueError, match="not available inside shard_map"):
        jax.shard_map(
            lambda a: linalg.eigh_factor(a).w,
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=P(),
            check_vma=False,
        )(indefinite())
    empty = linalg.eigh_factor(np.zeros((0, 0)), mesh=mesh)
    assert empty.solve(np.zeros((0, 2))).shape == (0, 2)
    assert float(empty.logdet()) == 0


def test_one_decomposition_serves_all(mesh):
    a, b = put(indefinite(), mesh, "x", None), np.ones(N)

    @jax.jit
    def everything(a):
        factor = linalg.eigh_factor(a)
        value, pull = jax.vjp(lambda f: f.slogdet().logabsdet, factor)
        return factor.solve(b), factor.inv(), value, pull(1.0)

    jax.block_until_ready(everything(a))
    before = _native.counter("syevd")
    jax.block_until_ready(everything(a))
    assert _native.counter("syevd") == before + 1
