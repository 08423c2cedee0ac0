"""The LU factor object, and what SciPy and JAX have for general matrices."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import _native, errors, linalg
from matrices import DTYPES, eps, from_spectrum, general, hermitian, spd
from meshes import AUTO, EXPLICIT, grid, line, put
from residuals import LIMIT, assert_solved, inverse_residual, relative

N = 16
FORMS = {0: lambda a: a, "T": lambda a: a.T, 2: lambda a: a.conj().T}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_factor(dtype, ranks):
    for n in (7, 20) if ranks == 3 else (20,):
        a, b = general(n, n, dtype), general(n, 2, dtype, 4)
        factor = linalg.lu_factor(a, mesh=line(ranks), T_A=2)
        assert factor.shape == (n, n)
        assert factor.dtype == dtype
        assert int(factor.status) == 0
        for trans, form in FORMS.items():
            assert_solved(form(a), factor.solve(b, trans), b)
        assert_solved(a.T, linalg.lu_solve(tuple(factor), b[:, 0], 1), b[:, 0])
        sign, log = np.linalg.slogdet(a.astype(np.result_type(dtype, np.float64)))
        assert relative(factor.slogdet().sign, sign) < 1e3 * n * eps(dtype)
        assert factor.slogdet().logabsdet.dtype == np.finfo(dtype).dtype
        assert float(factor.slogdet()[1]) == pytest.approx(log, abs=1e3 * n * eps(dtype))
        assert relative(factor.det(), np.linalg.det(a)) < 1e3 * n * eps(dtype)
        assert inverse_residual(a, factor.inv()) <= LIMIT


def test_nothing(mesh):
    factor = linalg.lu_factor(np.zeros((0, 0)), mesh=mesh)
    assert factor.solve(np.zeros((0, 3))).shape == (0, 3)
    assert [float(x) for x in factor.slogdet()] == [1, 0]
    assert factor.inv().shape == (0, 0)
    assert float(factor.rcond()) == 1
    assert float(linalg.det(np.zeros((0, 0)))) == 1


def test_names_of_transpositions(mesh):
    a, b = general(N, N, "complex128"), general(N, 2, "complex128")
    factor = linalg.lu_factor(a, mesh=mesh)
    for names, form in (((0, "N"), a), ((1, "T"), a.T), ((2, "H", "C"), a.conj().T)):
        for name in names:
            assert_solved(form, linalg.lu_solve(factor, b, trans=name), b)
    for wrong in (3, "X", True, None, [1]):
        with pytest.raises(ValueError, match="trans"):
            factor.solve(b, wrong)
    with pytest.raises(TypeError, match="lu_and_piv"):
        linalg.lu_solve((a, np.arange(N)), b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_factor_on_a_grid(kind):
    mesh = grid(4, 2, kind=kind)
    a, b = general(N, N), general(N, 2)
    for spec in (("x", None), ("x", "y"), ()):
        factor = linalg.lu_factor(put(a, mesh, *spec))
        for trans, form in FORMS.items():
            assert_solved(form(a), factor.solve(b, trans), b)
            x = factor.solve(put(b, mesh, ("x", "y"), None), trans)
            assert_solved(form(a), x, b)
        assert inverse_residual(a, factor.inv()) <= LIMIT
        assert relative(factor.slogdet(), np.linalg.slogdet(a)) < 1e-12


def test_rows_of_right_hand_sides_and_inverses_stay(mesh):
    a, b = general(N, N), general(N, 2)
    placed, right = put(a, mesh, "x", None), put(b, mesh, "x", None)
    factor = linalg.lu_factor(placed)
    for trans, form in FORMS.items():
        x = factor.solve(right, trans)
        assert_solved(form(a), x, b)
        assert x.sharding.is_equivalent_to(right.sharding, 2)
    assert factor.inv().sharding.is_equivalent_to(placed.sharding, 2)


def test_one_factorisation_and_many_solutions(mesh):
    a, b = put(general(N, N), mesh, "x"), general(N, 1)
    jax.block_until_ready(linalg.lu_factor(a).solve(b))
    _native.reset_counters()
    factor = linalg.lu_factor(a)
    for k in range(100):
        jax.block_until_ready(factor.solve(b, k % 2))
    assert (_native.counter("getrf"), _native.counter("getrs")) == (1, 100)


def test_factor_passes_through_transformations(mesh):
    a, b = general(N, N), general(N, 2)
    placed = put(a, mesh, "x", None)
    factor = linalg.lu_factor(placed)
    assert_solved(a.T, jax.jit(lambda f, b: f.solve(b, 1))(factor, b), b)
    inside = jax.jit(lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b))
    assert_solved(a, inside(placed, b), b)
    last, _ = jax.lax.scan(lambda c, _: (factor.solve(c), None), b, None, length=2)
    assert relative(last, np.linalg.solve(a, np.linalg.solve(a, b))) < 1e-9
    assert_solved(a, jax.vmap(factor.solve, 1, 1)(b), b)
    leaves, tree = jax.tree.flatten(factor)
    assert_solved(a, jax.tree.unflatten(tree, leaves).solve(b), b)
    assert_solved(a, jax.jit(linalg.lu_factor)(placed).solve(b), b)


def test_overwritten_matrix(mesh):
    a, b = general(N, N), general(N, 2)
    placed = put(a, mesh, "x", None)
    expected = float(linalg.lu_factor(placed).rcond())
    factor = linalg.lu_factor(placed, overwrite_a=True)
    assert placed.is_deleted()
    assert factor.a is None
    assert_solved(a, factor.solve(b), b)
    gradient = jax.grad(lambda b: jnp.sum(factor.solve(b)))(b)
    assert relative(gradient, np.linalg.solve(a.T, np.ones((N, 2)))) < 1e-10
    assert float(factor.rcond()) == pytest.approx(expected)
    assert relative(factor.det(), np.linalg.det(a)) < 1e-11
    with pytest.raises(ValueError, match="overwrite_a"):
        factor.inv()


def test_failed_factor(mesh):
    a = general(N, N)
    a[9] = 0
    factor = linalg.lu_factor(a, mesh=mesh)
    assert int(factor.status) == 10
    for trans in FORMS:
        assert np.isnan(np.asarray(factor.solve(np.ones(N), trans))).all()
    assert [float(x) for x in factor.slogdet()] == [0, -np.inf]
    assert float(factor.det()) == 0
    assert np.isnan(np.asarray(factor.inv())).all()
    assert float(factor.rcond()) == 0
    a[9, 9] = np.nan
    factor = linalg.lu_factor(a, mesh=mesh)
    assert int(factor.status) == errors.NON_FINITE
    assert np.isnan([float(x) for x in (*factor.slogdet(), factor.det(), factor.rcond())]).all()


# --- determinants ----------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8])
def test_signs_of_all_permutations(ranks):
    """Of four equations, in one call: a batch would be spread over the devices."""
    mesh = line(ranks)
    matrices = np.stack([np.eye(4)[list(p)] for p in itertools.permutations(range(4))])
    signs = jax.jit(lambda m: jax.lax.map(lambda a: linalg.det(a, mesh=mesh), m))(matrices)
    assert np.array_equal(np.asarray(signs), np.round(np.linalg.det(matrices)))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [5, 13, 30])
def test_signs_with_ragged_tiles(n, dtype):
    a = general(n, n, dtype)
    if dtype == "complex128":
        a *= np.exp(0.3j)
    expected = np.linalg.slogdet(a)
    for ranks, tile in ((1, 3), (2, 2), (3, 1), (3, 3), (8, 2)):
        factor = linalg.lu_factor(a, mesh=line(ranks), T_A=tile)
        assert relative(factor.slogdet().sign, expected[0]) < 1e-11
        assert relative(factor.slogdet().logabsdet, expected[1]) < 1e-11


def test_determinants_that_overflow(mesh):
    a = 1e200 * general(N, N)
    sign, log = linalg.slogdet(a, mesh=mesh)
    expected = np.linalg.slogdet(general(N, N))
    assert float(sign) == expected[0]
    assert float(log) == pytest.approx(expected[1] + N * np.log(1e200))
    assert np.isinf(float(linalg.det(a, mesh=mesh)))


# --- condition -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_condition_within_a_factor_of_three(dtype, mesh):
    for seed, n in enumerate((1, 2, 12)):
        a = general(n, n, dtype, seed)
        true = 1 / np.linalg.cond(a.astype(np.result_type(dtype, np.float64)), 1)
        found = float(linalg.lu_factor(a, mesh=mesh).rcond())
        assert 0.99 * true <= found <= 3 * true


def test_ill_conditioned_matrices_are_told_of(mesh):
    bad = from_spectrum(np.logspace(0, -17, N))
    with pytest.warns(jaxmg.JaxMgWarning, match="ill-conditioned"):
        linalg.lu_factor(bad, mesh=mesh).rcond(warn=True)
    with pytest.warns(jaxmg.JaxMgWarning, match="ill-conditioned"):
        linalg.solve(bad, np.ones(N), mesh=mesh, warn_ill_conditioned=True)
    a = general(N, N)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxmg.JaxMgWarning)
        x = linalg.solve(a, np.ones(N), mesh=mesh, warn_ill_conditioned=True)
    assert_solved(a, x, np.ones(N))


# --- solve -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_kinds_of_matrices(dtype, mesh):
    b = general(N, 2, dtype)
    symmetric = general(N, N, dtype) + general(N, N, dtype).T
    for a, kinds in (
        (general(N, N, dtype), ("gen", "general")),
        (spd(N, dtype), ("pos", "positive definite", "her", "gen")),
        (hermitian(N, dtype), ("her", "hermitian")),
        (symmetric, ("sym", "symmetric")),
    ):
        for kind in kinds:
            assert_solved(a, linalg.solve(a, b, assume_a=kind, mesh=mesh), b)
            if kind in ("pos", "her", "sym"):
                low = np.where(np.tri(N, dtype=bool), a, np.nan)
                for half, lower in ((low, True), (np.where(np.isnan(low), a, np.nan), False)):
                    half = np.where(np.eye(N, dtype=bool), a, half)
                    x = linalg.solve(half, b, lower, assume_a=kind, mesh=mesh)
                    assert_solved(a, x, b)
    with pytest.raises(ValueError, match="assume_a"):
        linalg.solve(np.eye(2), np.ones(2), assume_a="banded")


BATCHES = [
    ((4, N, N), (4, N, 2)),
    ((4, N, N), (N, 2)),
    ((9, N, N), (N,)),
    ((N, N), (4, N, 2)),
    ((1, N, N), (4, N, 2)),
    ((2, 1, N, N), (3, N, 2)),
]


@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
def test_batches_broadcast_as_in_numpy(left, right, mesh):
    count = int(np.prod(left[:-2]))
    a = np.stack([general(N, N, seed=k) for k in range(count)]).reshape(left)
    vector = len(right) == 1
    columns = (*right, 1) if vector else right
    count = int(np.prod(columns[:-2]))
    b = np.stack([general(N, columns[-1], seed=k) for k in range(count)]).reshape(columns)
    expected = np.linalg.solve(a, b)
    if vector:
        b, expected = b[..., 0], expected[..., 0]
    assert relative(linalg.solve(a, b, mesh=mesh), expected) < 1e-9
    factor = linalg.lu_factor(a, mesh=mesh)
    assert factor.shape == left
    assert relative(factor.solve(b), expected) < 1e-9
    assert relative(linalg.slogdet(a, mesh=mesh), np.linalg.slogdet(a)) < 1e-11
    assert relative(linalg.inv(a, mesh=mesh), np.linalg.inv(a)) < 1e-9


def test_shapes_and_types_that_are_refused(mesh):
    for call in (linalg.lu_factor, linalg.inv, linalg.det, linalg.slogdet):
        with pytest.raises(ValueError, match="a has shape"):
            call(np.ones((2, 3)))
    with pytest.raises(ValueError, match="b has shape"):
        linalg.solve(np.eye(2)[None], np.ones((3, 2)))
    factor = linalg.lu_factor(general(8, 8, "float32"), mesh=mesh)
    with pytest.raises(TypeError, match="float64"):
        factor.solve(np.ones(8))
