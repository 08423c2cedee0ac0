"""Programs written for package 0.0.9. This file is not to be edited: they go on running."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import general, spd
from meshes import line
from residuals import assert_solved, inverse_residual

N, T_A = 48, 3
DTYPES = ["float32", "float64", "complex64", "complex128"]
SPECS = [
    (P("x", None), P(None, None)),
    [P("x", None), P(None, None)],
    (P("x", None),),
    P("x", None),
]
MATRIX_SPECS = [P("x", None), (P("x", None),), [P("x", None)]]
here = lambda name: pytest.mark.skipif(  # noqa: E731
    not hasattr(jaxmg, name), reason=f"jaxmg.{name} is not part of this release"
)


def system(mesh, dtype="float64", nrhs=1):
    a, b = spd(N, dtype), general(N, nrhs, dtype)
    placed = jax.device_put(a, NamedSharding(mesh, P("x", None)))
    return a, b, placed, jax.device_put(b, NamedSharding(mesh, P(None, None)))


@pytest.fixture(params=[1, 2, 8])
def mesh(request):
    return line(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specs", SPECS, ids=str)
def test_potrs(specs, dtype, mesh):
    a, b, placed, right = system(mesh, dtype, 2)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, specs), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A=T_A, mesh=mesh, in_specs=specs), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, specs, False), b)
    assert_solved(a, jaxmg.potrs(placed, right, T_A, mesh, specs, False, True), b)
    for out in (
        jaxmg.potrs(placed, right, T_A, mesh, specs, True),
        jaxmg.potrs(placed, right, T_A, mesh, specs, return_status=True, pad=True),
    ):
        x, status = out
        assert_solved(a, x, b)
        assert int(status) == 0


def test_potrs_under_jit(mesh):
    a, b, placed, right = system(mesh)
    solve = jax.jit(lambda a, b: jaxmg.potrs(a, b, T_A, mesh, (P("x", None), P(None, None))))
    assert_solved(a, solve(placed, right), b)


def test_potrs_of_shards_that_are_padded_already(mesh):
    """pad=False: calculate_padding(rows, T_A) rows at the end of each shard."""
    tile = 5
    a, b, placed, right = system(mesh)
    padding = jaxmg.calculate_padding(N // mesh.size, tile)
    pad = jax.jit(
        jax.shard_map(
            lambda block: jaxmg.pad_rows(block, padding),
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=P("x", None),
        )
    )
    specs = (P("x", None), P(None, None))
    x, status = jaxmg.potrs(pad(placed), right, tile, mesh, specs, True, False)
    assert_solved(a, x, b)
    assert int(status) == 0


def test_status_of_a_failure(mesh):
    a = np.eye(N)
    a[6, 6] = -1
    placed = jax.device_put(a, NamedSharding(mesh, P("x", None)))
    b = jax.device_put(np.ones((N, 1)), NamedSharding(mesh, P(None, None)))
    _, status = jaxmg.potrs(placed, b, T_A, mesh, (P("x", None), P(None, None)), return_status=True)
    assert int(status) != 0


@pytest.mark.parametrize("call", [(T_A,), (T_A, True)], ids=str)
def test_potrs_shardmap_ctx(call, mesh):
    a, b, placed, right = system(mesh)
    specs = (P("x", None), P(None, None))

    def body(a, b):
        x, status = jaxmg.potrs_shardmap_ctx(a, b, *call)
        return x, status

    program = jax.jit(
        jax.shard_map(
            body,
            mesh=mesh,
            in_specs=specs,
            out_specs=(P(None, None), P(None)),
            check_vma=False,
        )
    )
    x, status = program(placed, right)
    assert_solved(a, x, b)
    assert int(status[0]) == 0


def test_potrs_shardmap_ctx_by_name(mesh):
    a, b, placed, right = system(mesh)
    program = jax.shard_map(
        lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, T_A=T_A, pad=True),
        mesh=mesh,
        in_specs=(P("x", None), P(None, None)),
        out_specs=(P(None, None), P(None)),
        check_vma=False,
    )
    assert_solved(a, jax.jit(program)(placed, right)[0], b)


@here("potri")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specs", MATRIX_SPECS, ids=str)
def test_potri(specs, dtype, mesh):
    a, _, placed, _ = system(mesh, dtype)
    assert inverse_residual(a, jaxmg.potri(placed, T_A, mesh, specs)) <= 25
    assert inverse_residual(a, jaxmg.potri(placed, T_A=T_A, mesh=mesh, in_specs=specs)) <= 25
    for out in (
        jaxmg.potri(placed, T_A, mesh, specs, True),
        jaxmg.potri(placed, T_A, mesh, specs, True, True),
        jaxmg.potri(placed, T_A, mesh, specs, return_status=True, pad=True),
    ):
        inverse, status = out
        assert inverse_residual(a, inverse) <= 25
        assert int(status) == 0


@here("potri_shardmap_ctx")
@pytest.mark.parametrize("call", [(T_A,), (T_A, True)], ids=str)
def test_potri_shardmap_ctx(call, mesh):
    a, _, placed, _ = system(mesh, "complex128")
    program = jax.jit(
        jax.shard_map(
            lambda a: jaxmg.potri_shardmap_ctx(a, *call),
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=(P("x", None), P(None)),
            check_vma=False,
        )
    )
    triangle, status = program(placed)
    assert inverse_residual(a, jaxmg.potri_symmetrize(triangle)) <= 25
    assert int(status[0]) == 0


@here("potri_symmetrize")
def test_potri_symmetrize(mesh):
    a, _, placed, _ = system(mesh, "complex128")
    assert np.allclose(jaxmg.potri_symmetrize(jnp.triu(placed)), a)


@here("syevd")
@pytest.mark.parametrize("specs", MATRIX_SPECS, ids=str)
def test_syevd(specs, mesh):
    a, _, placed, _ = system(mesh)
    exact = np.linalg.eigvalsh(a)
    w, v = jaxmg.syevd(placed, T_A, mesh, specs)
    assert np.allclose(w, exact)
    assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w))
    w, v, status = jaxmg.syevd(placed, T_A, mesh, specs, True, True, True)
    assert int(status) == 0
    w = jaxmg.syevd(placed, T_A, mesh, specs, return_eigenvectors=False)
    assert np.allclose(w, exact)
    w, status = jaxmg.syevd(placed, T_A, mesh, specs, False, return_status=True)
    assert np.allclose(w, exact)


@here("syevd_shardmap_ctx")
def test_syevd_shardmap_ctx(mesh):
    a, _, placed, _ = system(mesh)
    program = jax.shard_map(
        lambda a: jaxmg.syevd_shardmap_ctx(a, T_A, True, True),
        mesh=mesh,
        in_specs=P("x", None),
        out_specs=(P(None), P("x", None), P(None)),
        check_vma=False,
    )
    w, v, _ = jax.jit(program)(placed)
    assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w))


@pytest.mark.parametrize("specs", MATRIX_SPECS, ids=str)
def test_layout_helpers(specs, mesh):
    a, _, placed, _ = system(mesh)
    cyclic = jaxmg.cyclic_1d(placed, T_A, mesh, specs)
    jaxmg.verify_cyclic(a, cyclic, T_A)
    cyclic = jaxmg.cyclic_1d(placed, T_A=T_A, mesh=mesh, in_specs=specs, pad=True)
    assert np.allclose(jaxmg.uncyclic_1d(cyclic, T_A, mesh, specs), a)
    padding = jaxmg.calculate_padding(10, 4)
    assert padding == 2
    assert jaxmg.unpad_rows(jaxmg.pad_rows(a, padding), padding).shape == a.shape


def test_plot_block_to_cyclic():
    pytest.importorskip("matplotlib").use("Agg")
    jaxmg.plot_block_to_cyclic(24, 2, 4)
    jaxmg.plot_block_to_cyclic(24, 2, 4, N_rows=8)


def test_snippets_of_the_article(mesh):
    _, _, placed, right = system(mesh)
    a = np.asarray(placed)
    assert_solved(a, jaxmg.potrs(placed, right), np.asarray(right))
    x = jaxmg.potrs(placed.astype("float32"), right.astype("float32"))
    assert_solved(a.astype("float32"), x, np.asarray(right).astype("float32"))
    w, target, b = (jnp.asarray(general(N, k, seed=k)) for k in (16, 1, 2))
    out = jaxmg.potrs(w.T @ w + 0.1 * jnp.eye(16), w.T @ target) + b[:16, :1]
    assert out.shape == (16, 1)
