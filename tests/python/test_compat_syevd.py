"""Calls of syevd as programs for the packages 0.0.9 and 1.4.1 make them."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import hermitian
from meshes import grid, line
from residuals import LIMIT, eigen_residual, orthogonality, relative

N, T_A = 24, 3
DTYPES = ["float32", "float64", "complex64", "complex128"]


def system(mesh, spec, dtype="float64"):
    a = hermitian(N, dtype)
    return a, jax.device_put(a, NamedSharding(mesh, spec))


def assert_decomposed(a, w, v):
    assert eigen_residual(a, w, v) <= LIMIT and orthogonality(v) <= LIMIT
    assert np.all(np.diff(np.asarray(w)) >= 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_0_0_9(dtype):
    mesh = line(8)
    a, placed = system(mesh, P("x", None), dtype)
    specs = (P("x", None),)
    w, v = jaxmg.syevd(placed, T_A, mesh, specs)
    assert_decomposed(a, w, v)
    w, v = jaxmg.syevd(placed, T_A=T_A, mesh=mesh, in_specs=specs, return_eigenvectors=True)
    assert_decomposed(a, w, v)
    w, v, status = jaxmg.syevd(placed, T_A, mesh, specs, True, True, True)
    assert int(status) == 0
    assert_decomposed(a, w, v)
    only, status = jaxmg.syevd(placed, T_A, mesh, specs, False, True)
    assert int(status) == 0 and relative(only, w) < 100 * np.finfo(w.dtype).eps
    only = jaxmg.syevd(placed, T_A, mesh, specs, return_eigenvectors=False, pad=True)
    assert relative(only, w) < 100 * np.finfo(w.dtype).eps


def test_0_0_9_shards_that_are_padded_already():
    mesh, tile = line(8), 4
    a, placed = system(mesh, P("x", None))
    padding = jaxmg.calculate_padding(N // 8, tile)
    pad = jax.jit(
        jax.shard_map(
            lambda block: jaxmg.pad_rows(block, padding),
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=P("x", None),
        )
    )
    w, v, status = jaxmg.syevd(pad(placed), tile, mesh, (P("x", None),), True, True, False)
    assert int(status) == 0
    assert_decomposed(a, w, v)


@pytest.mark.parametrize("call", [(T_A,), (T_A, True), (T_A, True, True)], ids=str)
def test_0_0_9_inside_shard_map(call):
    mesh = line(2)
    a, placed = system(mesh, P("x", None), "complex128")
    program = jax.jit(
        jax.shard_map(
            lambda a: jaxmg.syevd_shardmap_ctx(a, *call),
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=(P(None), P("x", None), P(None)),
            check_vma=False,
        )
    )
    w, v, status = program(placed)
    assert_decomposed(a, w, v)
    assert status.shape == (1,) and int(status[0]) == 0


def test_0_0_9_values_alone_inside_shard_map():
    mesh = line(2)
    a, placed = system(mesh, P("x", None))
    program = jax.shard_map(
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A, False, True),
        mesh=mesh,
        in_specs=P("x", None),
        out_specs=(P(None), P(None)),
        check_vma=False,
    )
    w, status = jax.jit(program)(placed)
    assert relative(w, np.linalg.eigvalsh(a)) < 1e-13 and int(status[0]) == 0


@pytest.mark.parametrize(
    "place", [lambda: (grid(4, 2), P("x", "y")), lambda: (line(8), P(None, "x"))]
)
def test_1_4_1(place):
    mesh, spec = place()
    a, placed = system(mesh, spec)
    for w, v in (
        jaxmg.syevd(placed, T_A, mesh, spec),
        jaxmg.syevd(placed, T_A, mesh=mesh, matrix_specs=(spec,)),
        jaxmg.syevd(placed, T_A, mesh=mesh, in_specs=spec, pad=True),
        jaxmg.syevd(placed, T_A, return_status=True)[:2],
        jaxmg.syevd(placed, T_A, donate=True),
    ):
        assert_decomposed(a, w, v)


def test_1_4_1_on_global_arrays():
    """(work, w, V, status), in the caller's jit and outside."""
    mesh, spec = grid(4, 2), P("x", "y")
    a, placed = system(mesh, spec)
    for call in (
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A),
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A=T_A),
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A, mesh, spec),
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A, mesh=mesh, in_specs=(spec,), pad=True),
    ):
        for function in (call, jax.jit(call)):
            work, w, v, status = function(placed)
            assert work.shape == a.shape and not np.any(np.asarray(status))
            assert_decomposed(a, w, v)
    solve = jax.jit(lambda a: jaxmg.syevd_shardmap_ctx(a, T_A), donate_argnums=(0,))
    _, w, v, _ = solve(placed)
    assert_decomposed(a, w, v)
