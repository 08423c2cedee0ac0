"""Programs written for package 1.4.1. This file is not to be edited: they go on running."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import general, spd
from meshes import EXPLICIT, grid, line
from residuals import assert_solved, inverse_residual

N, T_A = 48, 3
DTYPES = ["float32", "float64", "complex64", "complex128"]
here = lambda name: pytest.mark.skipif(  # noqa: E731
    not hasattr(jaxmg, name), reason=f"jaxmg.{name} is not part of this release"
)
MESHES = {
    "grid": lambda: (grid(4, 2), P("x", "y")),
    "explicit grid": lambda: (grid(4, 2, kind=EXPLICIT), P("x", "y")),
    "rows of a grid": lambda: (grid(4, 2), P("x", None)),
    "columns of a grid": lambda: (grid(4, 2), P(None, "y")),
    "line": lambda: (line(8), P("x", None)),
    "explicit line": lambda: (line(8, kind=EXPLICIT), P("x", None)),
    "columns of a line": lambda: (line(8), P(None, "x")),
}


@pytest.fixture(params=MESHES)
def placement(request):
    return MESHES[request.param]()


def system(placement, dtype="float64", nrhs=1):
    mesh, spec = placement
    a, b = spd(N, dtype), general(N, nrhs, dtype)
    placed = jax.device_put(a, NamedSharding(mesh, spec))
    return a, b, placed, jax.device_put(b, NamedSharding(mesh, P(None, None)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_potrs(dtype, placement):
    mesh, spec = placement
    a, b, placed, right = system(placement, dtype, 2)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, donate=False), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, spec, donate=False), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, (spec,), donate=False), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, (spec, P(None, None))), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh=mesh, matrix_specs=spec), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh=mesh, in_specs=spec, pad=True), b)
    x, status = jaxmg.potrs(placed, right, T_A, return_status=True)
    assert_solved(a, x, b)
    assert int(status) == 0
    assert_solved(a, jaxmg.potrs(placed, right, T_A, donate=True), b)


def test_potrs_with_the_mesh_of_the_context(placement):
    mesh, _ = placement
    a, b, placed, right = system(placement)
    with jax.set_mesh(mesh):
        assert_solved(a, jaxmg.potrs(placed, right, T_A), b)
        assert_solved(a, jax.jit(lambda a, b: jaxmg.potrs(a, b, T_A))(placed, right), b)


@pytest.mark.parametrize("vector", [False, True])
def test_potrs_shardmap_ctx(vector, placement):
    """On global arrays, in the caller's jit and outside: (work, x, status)."""
    mesh, spec = placement
    a, b, placed, right = system(placement)
    if vector:
        b, right = b[:, 0], right[:, 0]
    for call in (
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A),
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A=T_A),
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A, mesh, spec),
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A, mesh=mesh, matrix_specs=spec),
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A, mesh, in_specs=(spec,), pad=True),
    ):
        for function in (call, jax.jit(call)):
            a_work, x, status = function(placed, right)
            assert a_work.shape == a.shape
            assert_solved(a, x, b)
            assert not np.any(np.asarray(status))


def test_donation_in_the_callers_jit(placement):
    a, b, placed, right = system(placement)
    solve = jax.jit(lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A), donate_argnums=(0,))
    _, x, _ = solve(placed, right)
    assert_solved(a, x, b)
    if placement[0].axis_names == ("x",) and placement[1] == P("x", None):
        assert placed.is_deleted()  # otherwise rows have to be moved, and JAX may keep A


def test_results_of_a_failure_are_nan(placement):
    mesh, spec = placement
    a = np.eye(N)
    a[5, 5] = -1
    placed = jax.device_put(a, NamedSharding(mesh, spec))
    _, x, status = jaxmg.potrs_shardmap_ctx(placed, np.ones((N, 1)), T_A)
    assert np.isnan(np.asarray(x)).all()
    assert np.any(np.asarray(status) != 0)


@here("potri")
@pytest.mark.parametrize("dtype", DTYPES)
def test_potri(dtype, placement):
    mesh, spec = placement
    a, _, placed, _ = system(placement, dtype)
    for inverse in (
        jaxmg.potri(placed, T_A, donate=False),
        jaxmg.potri(placed, T_A, mesh, spec),
        jaxmg.potri(placed, T_A, mesh=mesh, matrix_specs=(spec,)),
        jaxmg.potri(placed, T_A, mesh=mesh, in_specs=spec, pad=True),
        jaxmg.potri(placed, T_A, return_status=True)[0],
        jaxmg.potri(placed, T_A, donate=True),
    ):
        assert inverse_residual(a, inverse) <= 25


@here("syevd")
def test_syevd(placement):
    mesh, spec = placement
    a, _, placed, _ = system(placement)
    for w, v in (
        jaxmg.syevd(placed, T_A, donate=False),
        jaxmg.syevd(placed, T_A, mesh, spec),
        jaxmg.syevd(placed, T_A, return_status=True)[:2],
    ):
        assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w))


@here("syevd_shardmap_ctx")
def test_syevd_shardmap_ctx(placement):
    a, _, placed, _ = system(placement)
    _, w, v, status = jaxmg.syevd_shardmap_ctx(placed, T_A=T_A)
    assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w))
    assert not np.any(np.asarray(status))


def test_warning_class():
    assert issubclass(jaxmg.JaxMgWarning, Warning)
