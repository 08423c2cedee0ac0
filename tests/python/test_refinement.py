"""Iterative refinement by itself, with factors of NumPy's in place of the engine's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmg import _refinement as refinement
from matrices import clustered, eps, from_spectrum, general, orthonormal, spd

N = 48


def system(a, hermitian, low="float32", disturb=0.0):
    """A x = b with the inverse of a low-precision A as the factor's stand-in."""
    inverse = np.linalg.inv(a).astype(low) + disturb
    goal = np.sqrt(len(a)) * eps("float64")
    norm = np.abs(a).sum(1).max()

    def error(x, r):
        size = goal * norm * jnp.max(jnp.abs(x), 0)
        return jnp.where(jnp.max(jnp.abs(r), 0) == 0, 0.0, jnp.max(jnp.abs(r), 0) / size)

    return refinement.System(
        product=lambda x: jnp.asarray(a) @ x,
        precondition=lambda r: (jnp.matmul(inverse, r.astype(low), precision="highest")).astype(
            r.dtype
        ),
        error=error,
        hermitian=hermitian,
    )


def solve(a, b, hermitian, usable=True, **options):
    run = jax.jit(lambda b, u: refinement.refine(system(a, hermitian, **options), b, u))
    return run(jnp.asarray(b), jnp.asarray(usable))


def backward(a, x, b):
    x = np.asarray(x)
    size = np.abs(a).sum(1).max() * np.abs(x).max(0)
    return (np.abs(b - a @ x).max(0) / (np.sqrt(len(a)) * eps("float64") * size)).max()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("hermitian", [True, False])
def test_classical_refinement(dtype, hermitian):
    low = {"float64": "float32", "complex128": "complex64"}[dtype]
    a = spd(N, dtype) if hermitian else general(N, N, dtype) + 5 * np.eye(N)
    b = general(N, 3, dtype, seed=1)
    out = solve(a, b, hermitian, low=low)
    assert bool(out.converged) and int(out.path) == refinement.CLASSICAL
    assert 1 <= int(out.iterations) <= 4
    assert backward(a, out.x, b) <= 1.5


def low_product(inverse, r):
    """inverse @ r in float32, all of its digits."""
    return jnp.matmul(inverse, r.astype("float32"), precision="highest").astype(r.dtype)


@pytest.mark.parametrize("hermitian", [True, False])
def test_krylov_where_classical_refinement_stalls(hermitian):
    # A factor that is wrong in a few directions: the iteration matrix has eigenvalues beyond 1,
    # but all others are near 0.
    q = orthonormal(N)
    values = np.ones(N)
    values[:4] = [1e-3, 4e-3, 1e-2, 5.0]
    a = from_spectrum(np.logspace(0, 1, N))
    wrong = (q * values) @ q.T
    right = np.linalg.cholesky(a) if hermitian else a
    factor = right @ wrong @ right.T if hermitian else a @ wrong
    inverse = np.linalg.inv(factor).astype(np.float32)
    one = system(a, hermitian)
    bad = refinement.System(one.product, lambda r: low_product(inverse, r), one.error, hermitian)
    b = general(N, 2, seed=2)
    out = jax.jit(lambda b: refinement.refine(bad, b, jnp.asarray(True)))(b)
    assert bool(out.converged) and int(out.path) == refinement.KRYLOV
    assert backward(a, out.x, b) <= 1.5


@pytest.mark.parametrize("hermitian", [True, False])
def test_no_convergence_is_told(hermitian):
    a = from_spectrum(np.logspace(0, -13, N))
    noise = general(N, N, seed=3).astype(np.float32) * 1e3
    noise = noise @ noise.T if hermitian else noise
    out = solve(a, general(N, 2, seed=1), hermitian, disturb=noise)
    assert not bool(out.converged)
    assert int(out.iterations) <= refinement.STEPS + refinement.KRYLOV_STEPS + refinement.CYCLE


def test_columns_go_on_by_themselves():
    a = clustered(N)
    b = general(N, 4, seed=5)
    b[:, 1] = 0
    b[:, 2] = a[:, 0]
    b[:, 3] *= 1e-200
    scaled = b / np.where(np.abs(b).max(0) > 0, np.abs(b).max(0), 1)
    out = solve(a, scaled, True)
    assert bool(out.converged)
    x = np.asarray(out.x)
    assert (x[:, 1] == 0).all()
    assert np.allclose(a @ x, scaled, atol=1e-12)


def test_nothing_is_tried_without_a_factor():
    out = solve(spd(N), general(N, 2), True, usable=False)
    assert not bool(out.converged) and int(out.iterations) == 0


def test_a_space_that_ends_early():
    # A space of dimension 1 holds the solution: later directions are zero.
    b = general(N, 2, seed=7)
    out = solve(2 * np.eye(N), b, False)
    assert bool(out.converged) and np.allclose(out.x, b / 2)
    zero = jnp.zeros((1, 4, 3)).at[0, 0, 0].set(2.0)
    y = refinement._least_squares(zero, jnp.asarray([[4.0, 0, 0, 0]]))
    assert np.allclose(y, [[2.0, 0, 0]])
