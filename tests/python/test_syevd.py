"""Eigenvalues and eigenvectors: values, shardings, failures, derivatives, call forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

import jaxmg
from jaxmg import _native
from jaxmg._layout import entries
from matrices import DTYPES, from_spectrum, hermitian, is_complex
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import LIMIT, eigen_residual, orthogonality, relative
from spectra import HERMITIAN, scale_limits


def assert_decomposed(a, w, v):
    w = np.asarray(w)
    assert w.shape == a.shape[:1] and not is_complex(w.dtype)
    assert np.all(np.diff(w) >= 0)
    assert eigen_residual(a, w, v) <= LIMIT
    assert orthogonality(v) <= LIMIT


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_and_ragged_sizes(dtype):
    for n in (*range(10), 33):
        mesh = line(8 - (5 * n + DTYPES.index(dtype)) % 8)
        a = hermitian(n, dtype)
        w, v, status = jaxmg.syevd(a, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert_decomposed(a, w, v)
        values = jaxmg.syevd(a, mesh=mesh, return_eigenvectors=False)
        assert values.shape == (n,)
        assert relative(values, w) <= LIMIT * max(n, 1) * np.finfo(w.dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype, mesh):
    n = 24
    for name, matrix in HERMITIAN.items():
        a, exact = matrix(n, dtype)
        w, v, status = jaxmg.syevd(put(a, mesh, "x", None), return_status=True)
        assert int(status) == 0, name
        assert_decomposed(a, w, v)
        error = np.max(np.abs(np.asarray(w) - np.sort(exact)), initial=0)
        assert error <= LIMIT * n * np.finfo(w.dtype).eps * np.max(np.abs(exact), initial=0), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales(dtype, mesh):
    for factor in scale_limits(dtype):
        a = (hermitian(17, dtype) * factor).astype(dtype)
        assert_decomposed(a, *jaxmg.syevd(a, mesh=mesh))


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x",), ("x", None), (None, "x"), ()])
def test_rows_stay_on_their_devices(kind, spec):
    mesh = line(2, kind=kind)
    a = hermitian(16)
    for wrap in (lambda f: f, jax.jit):
        w, v = wrap(jaxmg.syevd)(put(a, mesh, *spec))
        assert_decomposed(a, w, v)
        assert {s.device for s in v.addressable_shards} == set(mesh.devices.flat)
        assert v.addressable_shards[0].data.shape == (8, 16)


def test_two_axes_and_a_part_of_the_devices():
    a = hermitian(12, "complex128")
    assert_decomposed(a, *jaxmg.syevd(put(a, grid(2, 2), "x", "y")))
    assert_decomposed(a, *jaxmg.syevd(put(a, line(2, order=[5, 2]), "x", None)))


def test_padded_rows():
    need(8)
    a = hermitian(13)
    padded = put(np.pad(a, ((0, 3), (0, 0))), line(8), "x", None)
    w, v = jaxmg.syevd(padded, n=13)
    assert v.shape == (16, 13) and v.addressable_shards[0].data.shape == (2, 13)
    assert_decomposed(a, w, v[:13])


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle(lower, mesh):
    a = hermitian(16, "complex128")
    part = np.tril(np.ones((16, 16))) if lower else np.triu(np.ones((16, 16)))
    half = np.where(part.astype(bool), a, np.nan)
    assert_decomposed(a, *jaxmg.syevd(put(half, mesh, "x", None), lower=lower))


def test_failure(mesh):
    a = hermitian(16)
    a[3, 5] = a[5, 3] = np.inf
    w, v, status = jaxmg.syevd(put(a, mesh, "x", None), return_status=True)
    assert int(status) == -1
    assert np.isnan(w).all() and np.isnan(v).all()
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.syevd(put(a, mesh, "x", None), check=True)
    assert_decomposed(hermitian(16), *jaxmg.syevd(put(hermitian(16), mesh, "x", None), check=True))


def test_arguments(mesh):
    with pytest.raises(ValueError, match="square"):
        jaxmg.syevd(np.ones((3, 4)), mesh=mesh)
    with pytest.raises(ValueError, match="lower"):
        jaxmg.syevd(np.eye(3), mesh=mesh, lower="L")
    with pytest.raises(TypeError, match="float16"):
        jaxmg.syevd(np.eye(3, dtype=np.float16), mesh=mesh)
    with pytest.raises(ValueError, match="backend"):
        jaxmg.syevd(np.eye(3), mesh=mesh, backend="other")


def test_matrix_is_kept_unless_donated(mesh):
    a = hermitian(16)
    kept = put(a, mesh, "x", None)
    jaxmg.syevd(kept)
    assert np.array_equal(kept, a)
    given = put(a, mesh, "x", None)
    w, v = jaxmg.syevd(given, donate=True)
    assert given.is_deleted()
    assert_decomposed(a, w, v)


# --- derivatives -----------------------------------------------------------------------------


def symmetric(a):
    return (a + jnp.conj(a).T) / 2


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_as_of_jax(dtype, mesh):
    n = 8
    a, c = hermitian(n, dtype), np.random.default_rng(3).standard_normal((n, n))

    def function(w, v):
        # Does not depend on phases.
        return jnp.sum(jnp.sin(w)) + jnp.sum(c * jnp.abs(v) ** 2 * w)

    ours = lambda a: function(*jaxmg.syevd(a))  # noqa: E731
    theirs = lambda a: function(*jnp.linalg.eigh(symmetric(a)))  # noqa: E731
    placed, plain = put(a, mesh, "x", None), jnp.asarray(a)
    gradient = jax.jit(jax.grad(ours))(placed)
    assert relative(gradient, jax.jit(jax.grad(theirs))(plain)) < 1e-11
    assert gradient.addressable_shards[0].data.shape == (n // mesh.devices.size, n)
    direction = hermitian(n, dtype, seed=9)
    moved = put(direction, mesh, "x", None)
    got = jax.jvp(ours, (placed,), (moved,))[1]
    assert relative(got, jax.jvp(theirs, (plain,), (jnp.asarray(direction),))[1]) < 1e-11

    second = jax.jit(lambda f, x, d: jax.jvp(jax.grad(f), (x,), (d,))[1], static_argnums=0)
    got = second(ours, placed, moved)
    assert relative(got, second(theirs, plain, jnp.asarray(direction))) < 1e-9


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_of_values_alone(dtype, mesh):
    n = 8
    a = hermitian(n, dtype)
    ours = lambda a: jnp.sum(jnp.arange(n) * jaxmg.syevd(a, return_eigenvectors=False) ** 2)  # noqa: E731
    theirs = lambda a: jnp.sum(jnp.arange(n) * jnp.linalg.eigvalsh(symmetric(a)) ** 2)  # noqa: E731
    placed, plain = put(a, mesh, "x", None), jnp.asarray(a)
    assert relative(jax.jit(jax.grad(ours))(placed), jax.jit(jax.grad(theirs))(plain)) < 1e-12
    direction = hermitian(n, dtype, seed=9)
    second = jax.jit(lambda f, x, d: jax.jvp(jax.grad(f), (x,), (d,))[1], static_argnums=0)
    got = second(ours, placed, put(direction, mesh, "x", None))
    assert relative(got, second(theirs, plain, jnp.asarray(direction))) < 1e-10


@pytest.mark.parametrize("lower", [True, False])
def test_derivatives_with_one_triangle(lower, mesh):
    a = hermitian(8)
    c = np.random.default_rng(5).standard_normal((8, 8))

    def function(a):
        w, v = jaxmg.syevd(a, lower=lower)
        return jnp.sum(w**3) + jnp.sum(c * v**2)

    gradient = jax.grad(function)(put(a, mesh, "x", None))
    whole = jax.grad(
        lambda a: jnp.sum(jaxmg.syevd(a)[0] ** 3) + jnp.sum(c * jaxmg.syevd(a)[1] ** 2)
    )
    full = np.asarray(whole(put(a, mesh, "x", None)))
    part = np.tril(full, -1) if lower else np.triu(full, 1)
    assert relative(gradient, 2 * part + np.diag(np.diag(full))) < 1e-11


def test_finite_differences(mesh):
    a = from_spectrum(np.array([-2.0, -1.0, 0.5, 1.5, 4.0, 7.0]))

    def function(a):
        w, v = jaxmg.syevd(symmetric(a), mesh=mesh)
        return jnp.sum(w**2 * v[0] ** 2) + w[2]

    check_grads(jax.jit(function), (a,), order=2, modes=["fwd", "rev"], rtol=1e-5, atol=1e-5)


def test_repeated_eigenvalues(mesh):
    """Functions that are invariant have the derivative that they have."""
    top = lambda a: jaxmg.syevd(a, mesh=mesh)[1][0, -1] ** 2  # noqa: E731
    gradient = np.asarray(jax.grad(top)(jnp.diag(jnp.array([4.0, 1.0, 1.0]))))
    assert np.isfinite(gradient).all()
    x = np.array([1.0, 2.0, 3.0])
    a = np.outer(x, x)
    squares = lambda a: jnp.sum(jaxmg.syevd(a, mesh=mesh, return_eigenvectors=False) ** 2)  # noqa: E731
    assert relative(jax.grad(squares)(a), 2 * a) < 1e-14

    c = hermitian(9)

    def projector(a):
        """trace(C P) with the projector P on the lower, sixfold eigenvalue."""
        v = jaxmg.syevd(a, mesh=mesh)[1][:, :6]
        return jnp.sum(v * (c @ v))

    a = from_spectrum(np.array([1.0] * 6 + [2.0, 2.0, 5.0]))
    d = hermitian(9, seed=4)
    gradient = np.asarray(jax.grad(projector)(a))
    w, v = np.linalg.eigh(a)
    m, rotated = v.T @ d @ v, v.T @ c @ v
    exact = sum(2 * rotated[i, j] * m[i, j] / (w[i] - w[j]) for i in range(6) for j in range(6, 9))
    assert abs(np.sum(gradient * d) - exact) < 1e-11


def test_large_eigenvalues(mesh):
    a = 1e20 * hermitian(6)
    gradient = jax.grad(lambda a: jnp.sum(jaxmg.syevd(a, mesh=mesh)[1][0] ** 4))(a)
    exact = jax.grad(lambda a: jnp.sum(jaxmg.syevd(a, mesh=mesh)[1][0] ** 4))(hermitian(6))
    assert relative(1e20 * gradient, exact) < 1e-10


def test_one_decomposition_for_value_and_gradient(mesh):
    def function(a):
        w, v = jaxmg.syevd(a)
        return jnp.sum(w * v[0] ** 2)

    f = jax.jit(jax.value_and_grad(function))
    a = put(hermitian(16), mesh, "x", None)
    jax.block_until_ready(f(a))
    before = _native.counter("syevd")
    jax.block_until_ready(f(a))
    assert _native.counter("syevd") == before + 1


def test_vmap(mesh):
    batch = np.stack([hermitian(8, seed=k) for k in range(3)])
    w, v = jax.vmap(lambda a: jaxmg.syevd(a, mesh=mesh))(batch)
    for k, a in enumerate(batch):
        assert_decomposed(a, w[k], v[k])
    gradient = jax.vmap(jax.grad(lambda a: jnp.sum(jaxmg.syevd(a, mesh=mesh)[0] ** 2)))(batch)
    assert relative(gradient, 2 * batch) < 1e-12


# --- inside shard_map ------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [True, False])
def test_inside_shard_map(checked):
    mesh = line(2)
    a = hermitian(16, "complex128")

    def body(block):
        w, v, status = jaxmg.syevd_shardmap_ctx(block, 4)
        only, _ = jaxmg.syevd_shardmap_ctx(block, 4, False)
        return w, v, status, only

    call = jax.jit(
        jax.shard_map(
            body,
            mesh=mesh,
            in_specs=P("x", None),
            out_specs=(P(), P("x", None), P(None), P()),
            check_vma=checked,
        )
    )
    w, v, status, only = call(put(a, mesh, "x", None))
    assert status.shape == (1,) and int(status[0]) == 0
    assert_decomposed(a, w, v)
    assert relative(only, w) < 1e-13


@pytest.mark.parametrize("checked", [True, False])
def test_derivatives_inside_shard_map(checked):
    mesh = line(2)
    n = 8
    a, c = hermitian(n), np.random.default_rng(3).standard_normal((n, n))

    def function(a):
        def body(block, c):
            w, v, _ = jaxmg.syevd_shardmap_ctx(block)
            return jax.lax.psum(jnp.sum(c * v**2 * w), "x") + jnp.sum(jnp.sin(w))

        return jax.shard_map(
            body, mesh=mesh, in_specs=P("x", None), out_specs=P(), check_vma=checked
        )(a, c)

    def reference(a):
        w, v = jnp.linalg.eigh(symmetric(a))
        return jnp.sum(c * v**2 * w) + jnp.sum(jnp.sin(w))

    gradient = jax.jit(jax.grad(function))(put(a, mesh, "x", None))
    assert relative(gradient, jax.grad(reference)(jnp.asarray(a))) < 1e-11


def test_memory_is_asked_before(monkeypatch, mesh):
    from jaxmg import _device_memory, _spectral_memory

    monkeypatch.setattr(_spectral_memory, "NEGLIGIBLE", {"cuda": 0, "cpu": 0})
    for call in (jaxmg.syevd, jaxmg.gesvd, jaxmg.polar):
        free = 1
        for largest in (0, 1):  # where nothing fits, and where something does
            monkeypatch.setattr(
                _device_memory, "device_bytes", lambda platform, f=free: (f, "a test")
            )
            with pytest.raises(jaxmg.InsufficientMemoryError) as caught:
                call(np.eye(400), mesh=mesh)
            assert caught.value.free == free < caught.value.needed
            assert min(caught.value.largest_n, 1) == largest and caught.value.largest_n < 400
            free = caught.value.needed * 9 // 10


def test_precision_is_a_choice_for_float32_on_gpus_alone():
    a = hermitian(40, "float32")
    w, v = jaxmg.syevd(a, mesh=line(4))
    for precision in ("highest", "default"):
        again = jaxmg.syevd(a, mesh=line(4), precision=precision)
        assert np.array_equal(w, again[0]) and np.array_equal(v, again[1])
    with pytest.raises(ValueError, match="mixed"):
        jaxmg.syevd(a, mesh=line(4), precision="mixed")
    with pytest.raises(ValueError, match="precision"):
        jaxmg.syevd(a, mesh=line(4), precision="half")
    names = {
        dtype: {
            e["buffer"]
            for e in entries(
                "syevd", 4096, dtype, 2, "cuda", columns=4096, vectors=True, precision=1
            )["entries"]
        }
        for dtype in ("float32", "float64")
    }
    assert "split_even" in names["float32"] and "split_even" not in names["float64"]
