"""`lu_solve` with right-hand sides that are eliminated together with the matrix."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native, _one_call
from jaxmg._layout import Layout, resolve_plan
from matrices import DTYPES, general
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, relative

N = 16
TOLERANCE = 1e-11
REAL_AND_COMPLEX = pytest.mark.parametrize("dtype", ["float64", "complex128"])


@pytest.fixture(autouse=True)
def together(monkeypatch):
    monkeypatch.setenv(_one_call.VARIABLE, "1")


def calls(function, *arrays):
    """The result, and the calls that it took: in one, factorisations and solutions."""
    jax.block_until_ready(function(*arrays))
    _native.reset_counters()
    out = jax.block_until_ready(function(*arrays))
    return out, tuple(_native.counter(name) for name in ("gesv", "getrf", "getrs"))


def matrix(n, dtype="float64", seed=0):
    return general(n, n, dtype, seed) + np.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 16, 33])
def test_sizes(n, dtype, mesh):
    a, b = matrix(n, dtype), general(n, 3, dtype)
    x, status = jaxmg.lu_solve(a, b, mesh=mesh, return_status=True)
    assert x.dtype == dtype
    assert_solved(a, x, b)
    assert int(status) == 0


@pytest.mark.parametrize("ranks", range(1, 9))
def test_numbers_of_devices(ranks):
    for n in (1, 7, 40):
        a, b = matrix(n), general(n, 2)
        assert_solved(a, jaxmg.lu_solve(a, b, mesh=line(ranks)), b)


@pytest.mark.parametrize("nrhs", [None, 0, 1, 17, 64, 65])
def test_numbers_of_right_hand_sides(nrhs, mesh):
    need(2)  # alone there is nobody to wait for
    a = matrix(24)
    b = general(24, nrhs or 1)
    b = b[:, 0] if nrhs is None else b[:, :nrhs]
    x, made = calls(jax.jit(jaxmg.lu_solve), put(a, mesh, "x", None), b)
    assert x.shape == b.shape
    if nrhs == 0:
        assert made == (0, 0, 0)
    else:
        assert made == ((0, 1, 1) if nrhs == 65 else (1, 0, 0))
        assert_solved(a, x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (None, "x"), (("x", "y"), None)], ids=str)
def test_specs(spec, kind):
    mesh = grid(4, 2, kind=kind)
    a, b = matrix(N), general(N, 2)
    placed = put(a, mesh, *spec)
    for function in (jaxmg.lu_solve, jax.jit(jaxmg.lu_solve)):
        x, made = calls(function, placed, b)
        assert made[1:] == (0, 0)
        assert_solved(a, x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_right_hand_sides_that_are_split(kind):
    mesh = line(8, kind=kind)
    a, b = matrix(N), general(N, 2)
    right = put(b, mesh, "x", None)
    x, made = calls(jaxmg.lu_solve, put(a, mesh, "x", None), right)
    assert made == (1, 0, 0)
    assert_solved(a, x, b)
    assert x.sharding.is_equivalent_to(right.sharding, 2)
    a, b = matrix(13), general(13, 2)
    specs = (P("x", None), P("x", None))
    assert_solved(a, jaxmg.lu_solve(a, b, mesh=line(8), in_specs=specs), b)


def test_singular(mesh):
    bad = matrix(N)
    bad[11] = 0
    for function in (jaxmg.lu_solve, jax.jit(jaxmg.lu_solve, static_argnames="return_status")):
        x, status = function(put(bad, mesh, "x", None), general(N, 2), return_status=True)
        assert int(status) == 12
        assert np.isnan(x).all()
    bad[3, 4] = np.nan
    assert int(jaxmg.lu_solve(bad, np.ones(N), mesh=mesh, return_status=True)[1]) < 0


def value_of(function):
    return lambda a, b: jnp.real(jnp.sum(jnp.sin(function(a, b))))


@REAL_AND_COMPLEX
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)], ids=str)
def test_gradient(argnums, dtype, mesh):
    a, b = matrix(N, dtype), general(N, 2, dtype)
    mine = jax.jit(jax.value_and_grad(value_of(jaxmg.lu_solve), argnums))
    expected = jax.jit(jax.value_and_grad(value_of(jnp.linalg.solve), argnums))(a, b)
    found, made = calls(mine, put(a, mesh, "x", None), b)
    assert made[:2] == (0, 1)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert relative(one, other) < TOLERANCE


@REAL_AND_COMPLEX
def test_forward_second_and_transposed(dtype, mesh):
    a, b, da = matrix(N, dtype), general(N, 2, dtype), general(N, N, dtype, seed=3)
    placed, moved = put(a, mesh, "x", None), put(da, mesh, "x", None)
    forward = jax.jit(lambda *xs: jax.jvp(jaxmg.lu_solve, xs[:2], xs[2:]))
    found, made = calls(forward, placed, b, moved, b)
    assert made[:2] == (0, 1)
    assert relative(found[1], jax.jvp(jnp.linalg.solve, (a, b), (da, b))[1]) < TOLERANCE

    def along(function, first, second):
        return lambda t: jnp.real(jnp.sum(jnp.sin(function(first + t * second, b))))

    hessian = jax.jit(jax.hessian(along(jaxmg.lu_solve, placed, moved)))(0.1)
    assert relative(hessian, jax.hessian(along(jnp.linalg.solve, a, da))(0.1)) < 1e-9
    for right in (b, put(b, mesh, "x", None)):
        (found,) = jax.linear_transpose(lambda b: jaxmg.lu_solve(placed, b), right)(right)
        assert relative(found, np.linalg.solve(a.T, b)) < TOLERANCE


def test_batches(mesh):
    need(2)  # alone there is nobody to wait for
    a, bs = matrix(N), np.stack([general(N, 3, seed=i) for i in range(4)])
    placed = put(a, mesh, "x", None)
    x, made = calls(jax.jit(jax.vmap(jaxmg.lu_solve, (None, 0))), placed, bs)
    assert made == (1, 0, 0)
    assert relative(x, np.linalg.solve(a, bs)) < TOLERANCE
    matrices = np.stack([matrix(N, seed=i) for i in range(3)])
    x = jax.jit(jax.vmap(jaxmg.lu_solve, (0, None)))(matrices, bs[0])
    assert relative(x, np.linalg.solve(matrices, bs[0])) < TOLERANCE


def test_one_device_of_a_mesh(mesh):
    """Compiled for one device although the type of the matrix shows eight."""
    a, b = matrix(N), general(N, 2)
    placed = put(a, mesh, "x", None)
    x = jax.jit(lambda b: jaxmg.lu_solve(placed + jnp.eye(N), b))(b)
    assert_solved(a + np.eye(N), x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_donation(kind):
    a, b = matrix(64), general(64, 2)
    mesh = line(8, kind=kind)
    placed = jax.jit(lambda x: x + 0)(put(a, mesh, "x", None))
    right = put(b, mesh)
    assert_solved(a, jaxmg.lu_solve(placed, right), b)
    assert (np.asarray(placed) == a).all()
    x = jaxmg.lu_solve(placed, right, donate=True)
    assert placed.is_deleted()
    assert_solved(a, x, b)
    assert (np.asarray(right) == b).all()


def test_where_it_pays(mesh, monkeypatch):
    need(2)
    monkeypatch.delenv(_one_call.VARIABLE)
    gpus = Layout("dist", mesh, ("x",), (), "cuda")
    r = resolve_plan(gpus, 20000, "float64", routine="getrf")
    assert _one_call.pays(r, 1)
    assert not _one_call.pays(r, 65)
    cpus = dataclasses.replace(gpus, platform="cpu")
    assert not _one_call.pays(dataclasses.replace(r, layout=cpus), 1)
    # Not where numbers are split: the factors are scaled afterwards.
    for dtype in ("float32", "complex64"):
        split = resolve_plan(gpus, 20000, dtype, routine="getrf", precision=1)
        assert not _one_call.pays(split, 1)
        assert _one_call.pays(resolve_plan(gpus, 20000, dtype, routine="getrf"), 1)
