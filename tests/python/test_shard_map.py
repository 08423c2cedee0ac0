"""Inside the caller's shard_map, with the replication check on and off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
import reference
from matrices import general, spd
from meshes import grid, line, need, put
from residuals import assert_solved, relative

N = 16
CHECKS = pytest.mark.parametrize("check_vma", [False, True], ids=["unchecked", "checked"])


WHOLE = P()
MATRIX_AND_RIGHT = (P("x", None), P())


def mapped(function, mesh, check_vma, outs=WHOLE, ins=MATRIX_AND_RIGHT):
    call = jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=check_vma)
    return jax.jit(call)


@CHECKS
@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_solution(check_vma, ranks):
    mesh = line(ranks)
    a, b = spd(N), general(N, 2)
    assert_solved(a, mapped(jaxmg.potrs, mesh, check_vma)(a, b), b)


@CHECKS
def test_smallest(check_vma):
    x = mapped(jaxmg.potrs, line(1), check_vma)(np.array([[2.0]]), np.array([1.0]))
    assert relative(x, np.array([0.5])) < 1e-15


@CHECKS
def test_all_results(check_vma, mesh):
    def function(a, b):
        return jaxmg.potrs(a, b, return_logdet=True, return_status=True)

    a, b = spd(N, "complex128"), general(N, 2, "complex128")
    x, logdet, status = mapped(function, mesh, check_vma, (P(), P(), P()))(a, b)
    assert_solved(a, x, b)
    assert float(logdet) == pytest.approx(np.linalg.slogdet(a)[1])
    assert int(status) == 0
    a[6, 6] = -1
    x, logdet, status = mapped(function, mesh, check_vma, (P(), P(), P()))(a, b)
    assert int(status) == 7
    assert np.isnan(np.asarray(x)).all()
    assert np.isnan(float(logdet))


@CHECKS
@pytest.mark.parametrize("lower", [None, True, False])
def test_gradient_taken_outside(check_vma, lower, mesh):
    def function(a, b):
        return jaxmg.potrs(a, b, lower=lower, return_logdet=True)

    call = mapped(function, mesh, check_vma, (P(), P()))
    value = lambda f: lambda a, b: jnp.sum(jnp.sin(f(a, b)[0])) + f(a, b)[1]  # noqa: E731
    a, b = spd(N), general(N, 2)
    g = jax.jit(jax.grad(value(call), (0, 1)))(put(a, mesh, "x", None), b)
    e = jax.grad(value(lambda a, b: reference.solve_logdet(a, b, lower)), (0, 1))(a, b)
    assert max(map(relative, g, e)) < 1e-12


def test_gradient_taken_inside(mesh):
    """With the check on; without it JAX itself counts every device's copy of the value."""

    def gradient(a, b):
        return jax.grad(lambda a: jnp.sum(jnp.sin(jaxmg.potrs(a, b))))(a)

    a, b = spd(N), general(N, 2)
    g = mapped(gradient, mesh, True, P("x", None))(a, b)
    e = jax.grad(lambda a: jnp.sum(jnp.sin(reference.solve(a, b))))(a)
    assert relative(g, e) < 1e-12


@CHECKS
def test_batches_and_loops(check_vma, mesh):
    a, b = spd(N), general(N, 3)
    columns = mapped(lambda a, b: jax.vmap(jaxmg.potrs, (None, 1), 1)(a, b), mesh, check_vma)
    assert_solved(a, columns(a, b), b)

    def loop(a, b):
        return jax.lax.scan(lambda c, _: (jaxmg.potrs(a, c), None), b, None, length=2)[0]

    expected = np.linalg.solve(a, np.linalg.solve(a, b))
    assert relative(mapped(loop, mesh, check_vma)(a, b), expected) < 1e-12

    def several(a, b):
        return jax.vmap(lambda s: jaxmg.potrs(a * s, b))(jnp.array([1.0, 2.0]))

    found = mapped(several, mesh, check_vma)(a, b)
    exact = np.linalg.solve(a, b)
    assert relative(found, np.stack([exact, exact / 2])) < 1e-12


@CHECKS
def test_groups_of_devices_solve_their_own(check_vma):
    """Rows over x; each position along y has its own right-hand side."""
    mesh = grid(4, 2)
    a, bs = spd(N), general(N, 2)

    def function(a, b):
        return jaxmg.potrs(a, b, in_specs=P("x", None))

    x = mapped(function, mesh, check_vma, P(None, "y"), (P("x", None), P(None, "y")))(a, bs)
    assert_solved(a, x, bs)
    if check_vma:  # then types tell over which axes the rows are split
        x = mapped(jaxmg.potrs, mesh, True, P(None, "y"), (P("x", None), P(None, "y")))(a, bs)
        assert_solved(a, x, bs)


def test_each_device_has_its_own_matrix(mesh):
    need(8)
    matrices = np.stack([spd(N, seed=s) for s in range(8)])
    call = mapped(
        lambda a, b: jaxmg.potrs(a[0], b)[None], mesh, False, P("x"), (P("x", None, None), P())
    )
    x = call(matrices, np.ones(N))
    assert relative(x, np.linalg.solve(matrices, np.ones((8, N, 1)))[..., 0]) < 1e-12


def test_size_that_does_not_divide(mesh):
    need(8)
    a, b = spd(13), general(13, 2)
    padded = np.zeros((16, 13))
    padded[:13] = a
    assert_solved(a, mapped(jaxmg.potrs, mesh, False)(padded, b), b)


def test_blocks_that_do_not_fit(mesh):
    need(8)
    with pytest.raises(ValueError, match="rows of a matrix of size 12"):
        mapped(jaxmg.potrs, mesh, False)(np.ones((24, 12)), np.ones(12))
    square = grid(2, 2)
    with pytest.raises(ValueError, match="in_specs"):
        mapped(jaxmg.potrs, square, False)(spd(N), np.ones(N))


@CHECKS
@pytest.mark.parametrize(
    "function",
    [jaxmg.potrs, jaxmg.lu_solve, lambda a, b: jaxmg.syevd(a)[0]],
    ids=["potrs", "lu_solve", "syevd"],
)
def test_axes_left_automatic_are_refused_with_a_way_out(check_vma, function):
    mesh = grid(4, 2)
    a, b = spd(N), general(N, 2)
    specs = {"in_specs": (P("x", None), P()), "out_specs": P(), "check_vma": check_vma}
    with pytest.raises(ValueError, match=r"\['y'\] automatic: leave axis_names out"):
        jax.jit(jax.shard_map(function, mesh=mesh, axis_names={"x"}, **specs))(a, b)
    # As the message says: without axis_names, or outside.
    inside = jax.jit(jax.shard_map(function, mesh=mesh, **specs))(a, b)
    outside = jax.jit(function)(put(a, mesh, "x", None), b)
    assert relative(inside, outside) < 1e-12


# --- the *_shardmap_ctx forms ----------------------------------------------------------------


def test_context_form_inside(mesh):
    a, b = spd(N), general(N, 2)
    outs = (P(None, None), P(None))
    for arguments in ((4,), (4, True), (4, False), ()):
        call = mapped(
            lambda a, b, args=arguments: jaxmg.potrs_shardmap_ctx(a, b, *args),
            mesh,
            False,
            outs,
            (P("x", None), P(None, None)),
        )
        x, status = call(a, b)
        assert_solved(a, x, b)
        assert status.shape == (1,)
        assert np.asarray(status).tolist() == [0]


def test_context_form_inside_with_padded_blocks(mesh):
    need(8)
    a, b = spd(N), general(N, 2)
    padded = np.zeros((24, N))
    for rank in range(8):
        padded[3 * rank : 3 * rank + 2] = a[2 * rank : 2 * rank + 2]
    call = mapped(
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, 3, False), mesh, False, (P(), P(None))
    )
    assert_solved(a, call(padded, b)[0], b)


@pytest.mark.parametrize("logdet", [False, True])
def test_context_form_outside(logdet, mesh):
    a, b = spd(N), general(N, 2)

    def function(a, b):
        return jaxmg.potrs_shardmap_ctx(a, b, 4, mesh, P("x", None), return_logdet=logdet)

    placed = put(a, mesh, "x", None)
    work, x, *value, status = jax.jit(function, donate_argnums=(0,))(placed, b)
    assert placed.is_deleted()
    assert work.shape == a.shape
    assert_solved(a, x, b)
    assert len(value) == logdet
    if logdet:
        assert float(value[0]) == pytest.approx(np.linalg.slogdet(a)[1])
    assert np.asarray(status).tolist() == [0]
