"""All that JAX does to a function can be done to these; see also test_autodiff and test_vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import child
import jaxmg
import reference
from jaxmg import _native
from matrices import general, hermitian, kernel, spd
from meshes import EXPLICIT, grid, line, put
from residuals import assert_solved, relative
from test_autodiff import gaussian_process, value_of_both

N = 16
TOLERANCE = 1e-11
REAL_AND_COMPLEX = pytest.mark.parametrize("dtype", ["float64", "complex128"])


def both(a, b, **options):
    return jaxmg.potrs(a, b, return_logdet=True, **options)


OBJECTIVE = value_of_both(both)
EXPECTED = jax.jit(value_of_both(reference.solve_logdet))


def operands(mesh, dtype="float64"):
    a, b = spd(N, dtype), general(N, 2, dtype)
    return a, b, put(a, mesh, "x", None), put(b, mesh)


# --- derivatives -----------------------------------------------------------------------------


def line_of_matrices(function, a, c, b):
    """A function of three numbers through A, as a vector: a case for Jacobians."""

    def f(t):
        x, logdet = function(a + t[0] * c + t[1] * jnp.eye(N), b * t[2])
        return jnp.concatenate([jnp.sin(jnp.real(x)).ravel()[:5], logdet[None]])

    return f


@pytest.mark.parametrize(
    "jacobian", [jax.jacfwd, jax.jacrev, jax.hessian], ids=lambda f: f.__name__
)
@REAL_AND_COMPLEX
def test_jacobians(jacobian, dtype, mesh):
    a, b, placed, right = operands(mesh, dtype)
    c, t = hermitian(N, dtype, 3), jnp.array([0.1, 0.2, 1.3])
    found = jax.jit(jacobian(line_of_matrices(both, placed, put(c, mesh, "x", None), right)))(t)
    expected = jax.jit(jacobian(line_of_matrices(reference.solve_logdet, a, c, b)))(t)
    assert relative(found, expected) < TOLERANCE


@REAL_AND_COMPLEX
def test_reverse_mode_by_hand(dtype, mesh):
    a, b, placed, right = operands(mesh, dtype)
    cotangents = general(N, 2, dtype, 7), jnp.asarray(0.7)
    for wrap in (lambda f: f, jax.jit):
        found = wrap(lambda a, b: jax.vjp(both, a, b)[1](cotangents))(placed, right)
        expected = jax.vjp(reference.solve_logdet, a, b)[1](cotangents)
        assert max(map(relative, found, expected)) < TOLERANCE
        assert found[0].sharding.is_equivalent_to(placed.sharding, 2)


@REAL_AND_COMPLEX
def test_linearize(dtype, mesh):
    a, b, placed, right = operands(mesh, dtype)
    da, db = hermitian(N, dtype, 3), general(N, 2, dtype, 4)
    value, push = jax.linearize(both, placed, right)
    expected, slope = jax.jvp(reference.solve_logdet, (a, b), (da, db))
    assert max(map(relative, value, expected)) < TOLERANCE
    assert max(map(relative, push(put(da, mesh, "x", None), put(db, mesh)), slope)) < TOLERANCE


def test_one_factorisation_for_value_forward_and_reverse(mesh):
    a, b, placed, right = operands(mesh)

    @jax.jit
    def everything(a, b):
        value, push = jax.linearize(OBJECTIVE, a, b)
        return value, push(a, b), jax.linear_transpose(push, a, b)(1.0)

    jax.block_until_ready(everything(placed, right))
    _native.reset_counters()
    value, slope, gradient = jax.block_until_ready(everything(placed, right))
    assert _native.counter("potrf") == 1
    assert float(value) == pytest.approx(float(EXPECTED(a, b)))
    assert max(map(relative, gradient, jax.grad(EXPECTED, (0, 1))(a, b))) < TOLERANCE
    assert float(slope) == pytest.approx(float(jax.jvp(EXPECTED, (a, b), (a, b))[1]))


@pytest.mark.parametrize("policy", [None, "nothing_saveable", "everything_saveable"])
def test_checkpoint(policy, mesh):
    a, b, placed, right = operands(mesh)
    options = {} if policy is None else {"policy": getattr(jax.checkpoint_policies, policy)}
    found = jax.jit(jax.grad(jax.checkpoint(OBJECTIVE, **options), (0, 1)))(placed, right)
    assert max(map(relative, found, jax.grad(EXPECTED, (0, 1))(a, b))) < TOLERANCE


def test_marginal_likelihood_of_a_gaussian_process(mesh):
    theta = jnp.array([0.1, -0.2, 0.3, -1.0])
    mine = gaussian_process(lambda a, b: both(a, b, mesh=mesh))
    theirs = gaussian_process(reference.solve_logdet)
    value, gradient = jax.jit(jax.value_and_grad(mine))(theta)
    expected, slope = jax.jit(jax.value_and_grad(theirs))(theta)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert relative(gradient, slope) < TOLERANCE


@pytest.mark.parametrize("kind", ["indefinite", "nan", "not Hermitian"])
def test_derivatives_of_a_failing_matrix_are_nan(kind, mesh):
    a, b, _, right = operands(mesh)
    a = {"indefinite": a - 100 * np.eye(N), "nan": a * np.nan, "not Hermitian": np.tril(a)}[kind]
    placed = put(a, mesh, "x", None)
    value, gradients = jax.jit(jax.value_and_grad(OBJECTIVE, (0, 1)))(placed, right)
    assert np.isnan(float(value))
    for g in gradients:
        assert np.isnan(np.asarray(g)).all()
    _, slope = jax.jit(lambda a, b: jax.jvp(both, (a, b), (a, b)))(placed, right)
    assert all(np.isnan(np.asarray(x)).all() for x in slope)
    assert_solved(spd(N), jaxmg.potrs(put(spd(N), mesh, "x"), b), b)


def test_derivatives_of_an_ill_conditioned_matrix(mesh):
    a, b = kernel(N, jitter=1e-10), general(N, 2)
    condition = np.linalg.cond(a)
    g = jax.jit(jax.grad(OBJECTIVE))(put(a, mesh, "x", None), put(b, mesh))
    # Two solves: an error of condition * eps in each.
    assert relative(g, jax.grad(EXPECTED)(a, b)) < 100 * condition * np.finfo(float).eps


# --- batches and loops -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
def test_batches_of_any_size_and_mix(axes, count, mesh):
    a = np.stack([spd(N, seed=s) for s in range(count)]) if axes[0] == 0 else spd(N)
    b = np.stack([general(N, 2, seed=s) for s in range(count)]) if axes[1] == 0 else general(N, 2)
    f = lambda a, b: both(a, b, mesh=mesh)  # noqa: E731
    x, logdet = jax.jit(jax.vmap(f, axes))(a, b)
    expected = jax.vmap(reference.solve_logdet, axes)(a, b)
    assert relative(x, expected[0]) < TOLERANCE
    assert relative(logdet, expected[1]) < TOLERANCE
    each = jax.jit(jax.vmap(jax.grad(value_of_both(f), (0, 1)), axes))(a, b)
    other = jax.vmap(jax.grad(EXPECTED, (0, 1)), axes)(a, b)
    assert max(map(relative, each, other)) < TOLERANCE


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
def test_batch_of_nothing(axes, mesh):
    a = np.zeros((0, N, N)) if axes[0] == 0 else spd(N)
    b = np.zeros((0, N, 2)) if axes[1] == 0 else general(N, 2)
    x, logdet = jax.jit(jax.vmap(lambda a, b: both(a, b, mesh=mesh), axes))(a, b)
    assert x.shape == (0, N, 2)
    assert logdet.shape == (0,)


def test_map_and_scan_with_carries(mesh):
    matrices = np.stack([spd(N, seed=s) for s in range(4)])
    b = general(N, 2)
    placed = put(matrices, mesh, None, "x", None)
    x = jax.jit(lambda m, b: lax.map(lambda a: jaxmg.potrs(a, b), m))(placed, b)
    assert relative(x, np.linalg.solve(matrices, b)) < TOLERANCE

    def step(carry, a):
        x, total = carry
        x, logdet = both(a, x)
        return (x, total + logdet), logdet

    (last, total), each = jax.jit(lambda m, b: lax.scan(step, (b, 0.0), m))(placed, b)
    expected = b
    for a in matrices:
        expected = np.linalg.solve(a, expected)
    assert relative(last, expected) < TOLERANCE
    assert relative(each, np.linalg.slogdet(matrices)[1]) < TOLERANCE
    assert float(total) == pytest.approx(float(np.sum(np.asarray(each))))


def test_batch_spread_over_explicit_axes_needs_no_other_device():
    mesh = line(8, kind=EXPLICIT)
    matrices = np.stack([spd(N, seed=s) for s in range(8)])
    rights = np.stack([general(N, 2, seed=s) for s in range(8)])
    placed, right = put(matrices, mesh, "x"), put(rights, mesh, "x")
    solve = jax.jit(jax.vmap(jaxmg.potrs))
    text = solve.lower(placed, right).compile().as_text()
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in text
    x = solve(placed, right)
    assert relative(x, np.linalg.solve(matrices, rights)) < TOLERANCE
    assert x.sharding.is_equivalent_to(right.sharding, 3)
    two_axes = grid(4, 2, kind=EXPLICIT)
    x = solve(put(matrices, two_axes, "x", "y"), put(rights, two_axes, "x"))
    assert relative(x, np.linalg.solve(matrices, rights)) < TOLERANCE


# --- looking at functions, and JAX's modes ----------------------------------------------------


def test_abstract_evaluation_runs_nothing(mesh):
    _, _, placed, right = operands(mesh)
    _native.reset_counters()
    x, logdet = jax.eval_shape(both, placed, right)
    assert (x.shape, x.dtype, logdet.shape) == ((N, 2), np.float64, ())
    text = str(jax.make_jaxpr(both)(placed, right))
    assert "jaxmg_potrf" in text
    assert "jaxmg_logdet" in text
    closed = jax.make_jaxpr(jax.grad(OBJECTIVE))(placed, right)
    assert closed.out_avals[0].shape == (N, N)
    assert _native.counter("potrf") == 0


def test_debug_print_around_calls(mesh, capfd):
    a, b, placed, right = operands(mesh)

    @jax.jit
    def solve(a, b):
        jax.debug.print("before {s}", s=b.sum())
        x, status = jaxmg.potrs(a, b, return_status=True)
        jax.debug.print("status {s}", s=status)
        return x

    assert_solved(a, solve(placed, right), b)
    jax.effects_barrier()
    printed = capfd.readouterr().out
    assert "before" in printed
    assert "status 0" in printed


def test_without_jit(mesh):
    a, b, placed, right = operands(mesh)
    with jax.disable_jit():
        x, logdet = both(placed, right)
        gradient = jax.grad(OBJECTIVE)(placed, right)
        columns = jax.vmap(jaxmg.potrs, (None, 1), 1)(placed, right)
        inside = jax.jit(jaxmg.potrs)(placed, right)
    for found in (x, columns, inside):
        assert_solved(a, found, b)
    assert float(logdet) == pytest.approx(np.linalg.slogdet(a)[1])
    assert relative(gradient, jax.grad(EXPECTED)(a, b)) < TOLERANCE


def test_search_for_nan(mesh):
    a, b, placed, right = operands(mesh)
    with jax.debug_nans(True):
        assert_solved(a, jaxmg.potrs(placed, right), b)
        assert_solved(a, jax.jit(jaxmg.potrs)(placed, right), b)
        jax.block_until_ready(jax.jit(jax.grad(OBJECTIVE))(placed, right))
        uneven = jaxmg.potrs(spd(13), general(13, 2), mesh=mesh)
        assert_solved(spd(13), uneven, general(13, 2))
        with pytest.raises(FloatingPointError):
            jaxmg.potrs(put(-a, mesh, "x", None), right)
    assert_solved(a, jaxmg.potrs(placed, right), b)


def test_nothing_is_transferred_without_being_asked_for(mesh):
    a, b, placed, right = operands(mesh)
    with jax.transfer_guard("disallow"):
        x, logdet, status = both(placed, right, return_status=True)
        inside = jax.jit(jaxmg.potrs)(placed, right)
        again = jaxmg.potrs(placed, right)
        gradient = jax.jit(jax.grad(OBJECTIVE))(placed, right)
        factor = jaxmg.linalg.cho_factor(placed)
        solved = factor.solve(right)
    for found in (x, inside, again, solved):
        assert_solved(a, found, b)
    assert int(status) == 0
    assert np.isfinite(float(logdet))
    assert relative(gradient, jax.grad(EXPECTED)(a, b)) < TOLERANCE


def test_no_tracer_leaks(mesh):
    a, b, placed, right = operands(mesh)
    with jax.checking_leaks():
        x = jax.jit(lambda a, b: both(a, b)[0])(placed, right)
        jax.block_until_ready(jax.jit(jax.grad(OBJECTIVE))(placed, right))
        jax.block_until_ready(jax.jit(jax.vmap(jaxmg.potrs, (None, 1)))(placed, right))
    assert_solved(a, x, b)


@pytest.mark.parametrize("x64", [False, True])
def test_width_of_numbers_is_the_users(x64):
    program = """
assert jax.config.jax_enable_x64 == WIDE
mesh = line(4)
a, b = spd(16, "float32"), general(16, 2, "float32")
x, logdet, status = jaxmg.potrs(put(a, mesh, "x"), b, return_logdet=True, return_status=True)
assert (x.dtype, logdet.dtype, status.dtype) == ("float32", "float32", "int32")
assert_solved(a, x, b)
g = jax.jit(jax.grad(lambda a: jaxmg.potrs(a, b).sum()))(put(a, mesh, "x"))
assert g.dtype == "float32"
c = jaxmg.potrs(jnp.asarray(4 * np.eye(4, dtype=int)), jnp.ones(4, int), mesh=mesh)
assert c.dtype == ("float64" if WIDE else "float32")
assert (np.asarray(c) == 0.25).all()
assert jax.config.jax_enable_x64 == WIDE
"""
    child.run(program.replace("WIDE", str(x64)), x64=x64)
