"""What 32 bits are good for, and what they must not be used for in silence."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import child
import jaxmg
from jaxmg import linalg
from matrices import HARD, eps, general, ill_conditioned, spd
from meshes import put
from residuals import assert_solved, relative, solve_residual


def without_64_bits():
    return jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64()


N = 8
A, B = spd(N), general(N, 2)
ROUTINES = {
    "potrs": lambda mesh: jaxmg.potrs(A, B, mesh=mesh),
    "solve": lambda mesh: linalg.solve(A, B, assume_a="pos", mesh=mesh),
    "batch": lambda mesh: linalg.solve(A[None], B, assume_a="pos", mesh=mesh),
    "cho_factor": lambda mesh: linalg.cho_factor(A, mesh=mesh),
    "cho_factor of a batch": lambda mesh: linalg.cho_factor(A[None], mesh=mesh),
    "logdet": lambda mesh: linalg.logdet(A, mesh=mesh),
    "logdet of a batch": lambda mesh: linalg.logdet(A[None], mesh=mesh),
    "cyclic_1d": lambda mesh: jaxmg.cyclic_1d(A, 1, mesh),
}


@pytest.mark.parametrize("routine", ROUTINES)
def test_64_bits_that_are_cut_give_a_warning(routine, mesh):
    with without_64_bits():
        with pytest.warns(jaxmg.JaxMgWarning, match="a is float64 .* cut to float32"):
            out = ROUTINES[routine](mesh)
        assert out.dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxmg.JaxMgWarning)
        ROUTINES[routine](mesh)


def test_warning_once_per_array_and_none_for_what_is_not_cut(mesh):
    single = A.astype(np.float32)
    with without_64_bits(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        linalg.logdet(A, mesh=mesh)
        assert len([w for w in seen if w.category is jaxmg.JaxMgWarning]) == 1
        seen.clear()
        linalg.cho_factor(single, mesh=mesh).solve(B.astype(np.float32))
        jaxmg.potrs(np.eye(4, dtype=int), np.ones(4, int), mesh=mesh)
        assert [w for w in seen if w.category is jaxmg.JaxMgWarning] == []


def test_error_of_float32_is_within_its_own_bound(mesh):
    """Compared with float64, an ill-conditioned system differs; its residual does not."""
    a = ill_conditioned(64, "float32")
    b = general(64, 1, "float32")
    x = jaxmg.potrs(put(a, mesh, "x", None), b)
    assert_solved(a, x, b)
    condition = np.linalg.cond(a.astype(np.float64))
    exact = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    assert relative(np.asarray(x, np.float64), exact) <= 64 * eps("float32") * condition


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_gram_matrix_of_full_rank_is_positive_definite(dtype, mesh):
    """Products of low precision inside would make small eigenvalues negative."""
    x = general(1000, 50, dtype)
    gram = (x.conj().T @ x).astype(dtype)
    gram = (gram + gram.conj().T) / 2
    for jitter in (0.0, 1e-3):
        a = gram + np.asarray(jitter, dtype) * np.eye(50, dtype=dtype)
        solution, status = jaxmg.potrs(a, np.ones(50, dtype), mesh=mesh, return_status=True)
        assert int(status) == 0
        assert_solved(a, solution, np.ones(50, dtype))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", ["spd", *HARD])
def test_default_is_nearly_as_accurate_as_highest(name, dtype, mesh):
    """On GPUs the default takes tensor cores; on CPUs both are native."""
    n = 384
    a, b = (HARD | {"spd": spd})[name](n, dtype), general(n, 2, dtype)
    for solve in (jaxmg.potrs, jaxmg.lu_solve):
        found = {}
        for precision in ("default", "highest"):
            x = solve(put(a, mesh, "x", None), b, T_A=32, precision=precision)
            found[precision] = solve_residual(a, x, b)
        assert found["default"] <= min(8 * found["highest"] + 1e-4, 25)


def test_refinement_by_hand(mesh):
    """A float32 solve and corrections in float64 give float64 accuracy."""
    a, b = spd(96), general(96, 2)
    placed = put(a, mesh, "x", None)
    factor = linalg.cho_factor(placed.astype(jnp.float32))
    x = factor.solve(b.astype(np.float32)).astype(jnp.float64)
    for _ in range(3):
        r = b - placed @ x
        x = x + factor.solve(r.astype(jnp.float32))
    assert relative(x, np.linalg.solve(a, b)) < 1e-14


def test_program_without_64_bits_from_the_start():
    child.run(
        """
import warnings
warnings.simplefilter("error")
for dtype in ("float32", "complex64"):
    a, b = spd(33, dtype), general(33, 2, dtype)
    x, logdet, status = jaxmg.potrs(a, b, mesh=line(4), return_logdet=True, return_status=True)
    assert (x.dtype, logdet.dtype, int(status)) == (dtype, np.float32, 0)
    assert_solved(a, x, b)
    g = jax.grad(lambda a: jaxmg.linalg.logdet(a, mesh=line(4)))(a)
    assert relative(g, np.linalg.inv(a).T.astype(dtype)) < 1e-4
    a[7, 7] = -1
    assert int(jaxmg.potrs(a, b, mesh=line(4), return_status=True)[1]) == 8
assert not jax.config.jax_enable_x64
""",
        x64=False,
    )
