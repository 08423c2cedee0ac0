"""The inverse: values, shardings, failures, derivatives, memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native
from matrices import spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import LIMIT, inverse_residual, relative

DTYPES = ["float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_inverse(dtype, devices):
    mesh = line(devices)
    for n in (0, 1, 2, 7, 8, 33):
        a = spd(n, dtype)
        x, status = jaxmg.potri(a, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert x.shape == a.shape
        assert inverse_residual(a, x) <= LIMIT
        assert np.allclose(x, np.conj(np.asarray(x)).T)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x",), ("x", None), (None, "x")])
def test_rows_stay_on_their_devices(kind, spec):
    mesh = line(2, kind=kind)
    a = spd(16)
    x = jaxmg.potri(put(a, mesh, *spec))
    assert inverse_residual(a, x) <= LIMIT
    assert {s.device for s in x.addressable_shards} == set(mesh.devices.flat)
    if spec[0] == "x":
        assert x.addressable_shards[0].data.shape == (8, 16)


def test_two_axes():
    a = spd(12)
    assert inverse_residual(a, jaxmg.potri(put(a, grid(2, 2), "x", "y"))) <= LIMIT


def test_published_call_form(mesh):
    a = spd(16)
    x = jaxmg.potri(put(a, mesh, "x", None), 4, mesh, (P("x", None),), False, True)
    assert inverse_residual(a, x) <= LIMIT


def test_one_triangle(mesh):
    a = spd(16)
    half = np.where(np.tri(16, dtype=bool), a, np.nan)
    assert inverse_residual(a, jaxmg.potri(put(half, mesh, "x", None), lower=True)) <= LIMIT


def test_failure(mesh):
    a = np.eye(16)
    a[6, 6] = -1
    x, status = jaxmg.potri(put(a, mesh, "x", None), return_status=True)
    assert int(status) == 7
    assert np.isnan(x).all()
    with pytest.raises(jaxmg.NotPositiveDefiniteError) as caught:
        jaxmg.potri(put(a, mesh, "x", None), check=True)
    assert caught.value.index == 7
    assert inverse_residual(spd(16), jaxmg.potri(put(spd(16), mesh, "x", None))) <= LIMIT


def test_matrix_is_kept_unless_donated(mesh):
    a = spd(16)
    kept = put(a, mesh, "x", None)
    jaxmg.potri(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    x = jaxmg.potri(given, donate=True)
    assert given.is_deleted()
    assert inverse_residual(a, x) <= LIMIT


def test_a_donated_matrix_that_must_be_moved_is_gone_too(mesh):
    a = spd(16)
    given = jax.device_put(a, jax.devices()[0])
    x = jaxmg.potri(given, mesh=mesh, donate=True)
    assert given.is_deleted()
    assert inverse_residual(a, x) <= LIMIT


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(dtype, mesh):
    n = 16
    a, c = spd(n, dtype), np.random.default_rng(3).standard_normal((n, n))

    def ours(a):
        return jnp.sum(c * jnp.real(jaxmg.potri(a)))

    def theirs(a):
        return jnp.sum(c * jnp.real(jnp.linalg.inv((a + jnp.conj(a).T) / 2)))

    placed = put(a, mesh, "x", None)
    assert relative(jax.grad(ours)(placed), jax.jit(jax.grad(theirs))(a)) < 1e-12
    direction = spd(n, dtype, seed=9)
    (_, got), (_, want) = (
        jax.jvp(f, (x,), (d,))
        for f, x, d in (
            (ours, placed, put(direction, mesh, "x", None)),
            (theirs, jnp.asarray(a), jnp.asarray(direction)),
        )
    )
    assert relative(got, want) < 1e-12


def test_one_factorisation_for_value_and_gradient(mesh):
    a = put(spd(16), mesh, "x", None)
    f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jaxmg.potri(a) ** 2)))
    jax.block_until_ready(f(a))
    before = _native.counter("potrf")
    jax.block_until_ready(f(a))
    assert _native.counter("potrf") == before + 1


def test_vmap(mesh):
    batch = np.stack([spd(8, seed=k) for k in range(3)])
    x = jax.vmap(lambda a: jaxmg.potri(a, mesh=mesh))(batch)
    for a, inverse in zip(batch, x, strict=True):
        assert inverse_residual(a, inverse) <= LIMIT


@pytest.mark.parametrize("checked", [True, False])
def test_inside_shard_map(checked):
    need(2)
    mesh = line(2)
    a = spd(16)

    def body(block):
        x, status = jaxmg.potri_shardmap_ctx(block, 4)
        return jaxmg.potri_symmetrize(x) if x.shape[0] == x.shape[1] else x, status

    call = jax.shard_map(
        body, mesh=mesh, in_specs=P("x", None), out_specs=(P("x", None), P(None)), check_vma=checked
    )
    x, status = call(put(a, mesh, "x", None))
    assert status.shape == (1,) and int(status[0]) == 0
    assert inverse_residual(a, x) <= LIMIT


MESHES = {
    "line": lambda: (line(8), P("x", None)),
    "explicit line": lambda: (line(8, kind=EXPLICIT), P("x", None)),
    "columns": lambda: (line(8), P(None, "x")),
    "grid": lambda: (grid(4, 2), P("x", "y")),
    "explicit grid": lambda: (grid(4, 2, kind=EXPLICIT), P("x", "y")),
}


@pytest.mark.parametrize("placement", MESHES)
def test_context_form_on_global_arrays(placement):
    """The call forms of package 1.4.1, in the caller's jit and outside of one."""
    mesh, spec = MESHES[placement]()
    a = spd(48)
    placed = put(a, mesh, *spec)
    for call in (
        lambda a: jaxmg.potri_shardmap_ctx(a, 3),
        lambda a: jaxmg.potri_shardmap_ctx(a, T_A=3),
        lambda a: jaxmg.potri_shardmap_ctx(a, 3, mesh, spec),
        lambda a: jaxmg.potri_shardmap_ctx(a, 3, mesh, matrix_specs=(spec,)),
        lambda a: jaxmg.potri_shardmap_ctx(a, 3, mesh=mesh, in_specs=spec, pad=True),
    ):
        for function in (call, jax.jit(call)):
            inverse, status = function(placed)
            assert inverse_residual(a, inverse) <= 25
            assert status.shape == (1,) and int(status[0]) == 0
    inverse, status = jax.jit(lambda a: jaxmg.potri_shardmap_ctx(a, 3))(-placed)
    assert np.isnan(np.asarray(inverse)).all() and int(status[0]) == 1
