"""QR factorisation: values, hard matrices, meshes, shardings, failures, transformations."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native, linalg
from matrices import DTYPES, general
from meshes import AUTO, EXPLICIT, grid, line, need, put
from rectangular import HARD, assert_qr
from residuals import relative

SHAPES = [(1, 1), (2, 5), (9, 9), (16, 24), (33, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 3, 8])
def test_every_shape(dtype, devices):
    mesh = line(devices)
    for m, n in SHAPES:
        a = general(m, n, dtype)
        q, r, status = jaxmg.qr(a, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert q.shape == (m, min(m, n)) and r.shape == (min(m, n), n)
        assert q.dtype == r.dtype == dtype
        assert_qr(a, q, r)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", HARD)
def test_hard_matrices(name, dtype):
    for shape, devices in (((64, 12), 8), ((30, 30), 3)):
        a = HARD[name](*shape, dtype)
        q, r = jaxmg.qr(a, mesh=line(devices))
        assert_qr(a, q, r)


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 100])
def test_tiles(tile, mesh):
    a = general(48, 20)
    assert_qr(a, *jaxmg.qr(put(a, mesh, "x", None), tile))


def test_larger(mesh):
    for shape in ((512, 256), (320, 320), (20000, 40)):
        a = general(*shape)
        assert_qr(a, *jaxmg.qr(put(a, mesh, "x", None)))


def test_no_rows_or_no_columns(mesh):
    for m, n in ((0, 3), (3, 0), (0, 0)):
        q, r = jaxmg.qr(np.zeros((m, n)), mesh=mesh)
        assert q.shape == (m, 0) and r.shape == (0, n)
        q, r = jaxmg.qr(np.zeros((m, n)), mesh=mesh, mode="complete")
        assert q.shape == (m, m) and r.shape == (m, n)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x",), ("x", None), (None, "x"), ()])
def test_shardings(kind, spec):
    mesh = line(4, kind=kind)
    a = general(32, 8)
    q, r = jaxmg.qr(put(a, mesh, *spec))
    assert_qr(a, q, r)
    assert q.addressable_shards[0].data.shape == (8, 8)
    assert r.addressable_shards[0].data.shape == (8, 8)  # small: whole on every device
    square = general(32, 32)
    q, r = jaxmg.qr(put(square, mesh, *spec))
    assert_qr(square, q, r)
    assert q.addressable_shards[0].data.shape == (8, 32)
    assert r.addressable_shards[0].data.shape == (8, 32)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x", "y"), (("x", "y"), None), ("y", None)])
def test_two_axes(kind, spec):
    a = general(24, 12)
    assert_qr(a, *jaxmg.qr(put(a, grid(2, 3, kind=kind), *spec)))


def test_devices_in_any_order():
    a = general(40, 10)
    for order in ([3, 1, 0, 2], [7, 5, 6]):
        mesh = line(0, order=order)
        assert_qr(a, *jaxmg.qr(a, mesh=mesh))
        assert_qr(a[:36], *jaxmg.qr(put(a[:36], mesh, "x", None)))


def test_published_call_form(mesh):
    a = general(32, 16)
    q, r, status = jaxmg.qr(put(a, mesh, "x", None), 4, mesh, (P("x", None),), True, True)
    assert int(status) == 0
    assert_qr(a, q, r)


def test_modes(mesh):
    for shape in ((24, 10), (10, 24), (16, 16)):
        a = general(*shape)
        q, r = jaxmg.qr(a, mesh=mesh)
        assert relative(jaxmg.qr(a, mesh=mesh, mode="r"), r) == 0
        full, upper = jaxmg.qr(a, mesh=mesh, mode="complete")
        assert full.shape == (shape[0], shape[0]) and upper.shape == shape
        assert_qr(a, full, upper)
        assert np.array_equal(full[:, : q.shape[1]], q)
    with pytest.raises(ValueError, match="mode"):
        jaxmg.qr(a, mode="raw")


@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_jax(dtype, mesh):
    for shape in ((24, 10), (10, 24), (16, 16)):
        a = general(*shape, dtype)
        ours, theirs = linalg.qr(a, mesh=mesh), jnp.linalg.qr(a)
        tolerance = 1e-3 if np.finfo(dtype).bits == 32 else 1e-12
        for found, expected in zip(ours, theirs, strict=True):
            # Signs may differ where the first element of a vector is zero to rounding.
            assert relative(np.abs(found), np.abs(expected)) < tolerance
        assert ours.Q.shape == theirs.Q.shape and ours.R.shape == theirs.R.shape
    with pytest.raises(ValueError, match="mode"):
        linalg.qr(a, "raw")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none(bad, mesh):
    a = general(24, 8)
    a[17, 5] = bad
    for placed in (put(a, mesh, "x", None), a):
        q, r, status = jaxmg.qr(placed, mesh=mesh, return_status=True)
        assert int(status) == -1
        assert np.isnan(q).all() and np.isnan(r).all()
        with pytest.raises(jaxmg.NonFiniteInputError):
            jaxmg.qr(placed, mesh=mesh, check=True)
    a[17, 5] = 0
    assert_qr(a, *jaxmg.qr(put(a, mesh, "x", None), check=True))


def test_matrix_is_kept_unless_donated(mesh):
    a = general(32, 16)
    kept = put(a, mesh, "x", None)
    jaxmg.qr(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    q, r = jaxmg.qr(given, donate=True)
    assert given.is_deleted()
    assert_qr(a, q, r)


def test_arguments(mesh):
    with pytest.raises(ValueError, match=r"\(4,\)"):
        jaxmg.qr(np.ones(4), mesh=mesh)
    with pytest.raises(ValueError, match="vmap"):
        jaxmg.qr(np.ones((2, 3, 3)), mesh=mesh)
    with pytest.raises(TypeError, match="float16"):
        jaxmg.qr(np.ones((4, 4), np.float16), mesh=mesh)
    with pytest.raises(ValueError, match="shard_map"):
        jax.shard_map(jaxmg.qr, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None))(
            np.ones((8, 8))
        )


def test_under_jit(mesh):
    a = general(32, 8)

    @jax.jit
    def f(a):
        q, r = jaxmg.qr(2 * a)
        return q @ r, q

    product, q = f(put(a, mesh, "x", None))
    assert relative(product, 2 * a) < 1e-13
    assert q.addressable_shards[0].data.shape == (32 // mesh.size, 8)


@pytest.mark.parametrize("shape", [(512, 8), (64, 64)])
def test_nothing_is_gathered(shape, mesh):
    """Communication of XLA's own: at most R, and that only if it is small."""
    need(2)
    m, n = shape
    text = jax.jit(jaxmg.qr).lower(put(general(m, n), mesh, "x", None)).compile().as_text()
    for size in re.findall(r"= f64\[([\d,]+)\]\S* all-(?:gather|reduce|to-all)", text):
        assert np.prod([int(x) for x in size.split(",")]) <= (n * n if m > 8 * n else 0), size
    assert f"f64[{m},{n}]" not in text


def test_vmap(mesh):
    batch = np.stack([general(12, 5, seed=k) for k in range(3)])
    q, r = jax.vmap(lambda a: jaxmg.qr(a, mesh=mesh))(batch)
    for a, qi, ri in zip(batch, q, r, strict=True):
        assert_qr(a, qi, ri)
    spread = np.stack([general(6, 5, seed=k) for k in range(10)])
    q, r = linalg.qr(spread.reshape(2, 5, 6, 5), mesh=mesh)
    for a, qi, ri in zip(spread, q.reshape(10, 6, 5), r.reshape(10, 5, 5), strict=True):
        assert_qr(a, qi, ri)


def dense_qr(a):
    """jnp.linalg.qr, whose derivative for wide matrices older versions of JAX do not have."""
    m, n = a.shape
    if m >= n:
        return jnp.linalg.qr(a)
    q, r = jnp.linalg.qr(a[:, :m])
    return q, jnp.concatenate([r, jnp.conj(q.T) @ a[:, m:]], axis=1)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (13, 5)])
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_derivatives(dtype, shape, kind):
    mesh = line(4, kind=kind)
    m, n = shape
    k = min(m, n)
    a, da = general(m, n, dtype), general(m, n, dtype, seed=9)
    c, d = general(m, k, dtype, seed=4), general(k, n, dtype, seed=5)
    split = ("x", None) if m % 4 == 0 else ()

    def loss(function):
        def value(a):
            q, r = function(a)
            return jnp.real(jnp.sum(c * q * jnp.conj(q[:1])) + jnp.sum(d * r**2))

        return value

    ours, theirs = loss(lambda a: jaxmg.qr(a, mesh=mesh)), loss(dense_qr)
    placed = put(a, mesh, *split)
    _, want = jax.jvp(theirs, (jnp.asarray(a),), (jnp.asarray(da),))
    if kind == AUTO:
        _, got = jax.jvp(ours, (placed,), (put(da, mesh, *split),))
        assert relative(got, want) < 1e-10
        want = jax.grad(theirs)(jnp.asarray(a))
        assert relative(jax.grad(ours)(placed), want) < 1e-10
        assert relative(jax.jit(jax.grad(ours))(placed), want) < 1e-10
        return
    tangents = jax.jvp(lambda a: jaxmg.qr(a), (placed,), (put(da, mesh, *split),))[1]
    expected = jax.jvp(dense_qr, (jnp.asarray(a),), (jnp.asarray(da),))[1]
    signs = np.sign(np.diagonal(jaxmg.qr(placed)[1])[:k].real) * np.sign(
        np.diagonal(jnp.linalg.qr(a)[1])[:k].real
    )
    assert relative(tangents[0] * signs, expected[0]) < 1e-10
    assert relative(tangents[1] * signs[:, None], expected[1]) < 1e-10


def test_derivative_of_r_alone(mesh):
    a = general(24, 6)
    ours = jax.grad(lambda a: jnp.sum(jaxmg.qr(a, mesh=mesh, mode="r") ** 3**2))
    theirs = jax.jit(jax.grad(lambda a: jnp.sum(jnp.linalg.qr(a, mode="r") ** 3**2)))
    assert relative(ours(put(a, mesh, "x", None)), theirs(a)) < 1e-10


def test_second_derivatives(mesh):
    a, da = general(8, 3), general(8, 3, seed=2)

    def value(function, a):
        q, r = function(a)
        return jnp.sum(0.3 * r**2) + jnp.sum(q[:, 0] ** 3 * q[0, 0])

    def second(function):
        slope = jax.grad(functools.partial(value, function))
        return jax.jvp(slope, (jnp.asarray(a),), (jnp.asarray(da),))[1]

    assert relative(second(lambda a: jaxmg.qr(a, mesh=mesh)), second(jnp.linalg.qr)) < 1e-9


def test_no_derivative_of_arbitrary_columns(mesh):
    with pytest.raises(NotImplementedError, match="complete"):
        jax.grad(lambda a: jnp.sum(jaxmg.qr(a, mesh=mesh, mode="complete")[0]))(general(8, 3))


def test_one_factorisation_for_value_and_gradient(mesh):
    a = put(general(32, 8), mesh, "x", None)
    f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jaxmg.qr(a)[1] ** 2)))
    jax.block_until_ready(f(a))
    before = _native.counter("geqrf")
    jax.block_until_ready(f(a))
    assert _native.counter("geqrf") == before + 1


def test_plan():
    tall = jaxmg.plan("qr", 100_000, "float64", columns=64, mesh=4)
    assert tall.tile <= 64 and tall.flops > 2 * 100_000 * 64**2
    assert tall.bytes_needed < 8 * 100_000 * 64 * 2  # A in place and panels, for one device
    assert tall.bytes_needed_with_copy > tall.bytes_needed
    assert 0 < tall.seconds.total < jaxmg.plan("qr", 100_000, "float64", mesh=4).seconds.total
    assert jaxmg.plan("least_squares", 1000, "complex64", nrhs=3, mesh=2).fits
    with pytest.raises(ValueError, match="columns"):
        jaxmg.plan("potrs", 100, "float64", columns=10, mesh=1)
