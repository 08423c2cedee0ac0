"""Small problems by JAX's own solvers: the same meaning as by the engine, and no call of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _library, linalg
from matrices import general, hermitian, spd
from meshes import EXPLICIT, line, need, put
from residuals import assert_solved, eigen_residual, inverse_residual, relative

DTYPES = ["float32", "float64", "complex64", "complex128"]


@pytest.fixture(autouse=True)
def by_library(monkeypatch):
    monkeypatch.setenv("JAXMG_LIBRARY_BELOW", "64")
    monkeypatch.delenv("JAXMG_GATHER_BELOW", raising=False)


def calls(function, *arguments):
    """Whether the compiled program calls the engine."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return 'custom_call_target="jaxmg_' in text


def eps(dtype):
    return float(np.finfo(dtype).eps)


def placed(a, devices, kind=None):
    if devices == 1 or a.shape[0] % devices:
        return jnp.asarray(a)
    mesh = line(devices) if kind is None else line(devices, kind=kind)
    return put(a, mesh, "x", None)


@pytest.fixture(params=[1, 8])
def devices(request):
    need(request.param)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
def test_solutions(dtype, devices):
    for n in (1, 64):
        b = general(n, 2, dtype)
        a = placed(spd(n, dtype), devices)
        assert not calls(jaxmg.potrs, a, b)
        x, logdet, status = jaxmg.potrs(a, b, return_logdet=True, return_status=True)
        assert int(status) == 0
        assert_solved(np.asarray(a), x, b)
        assert np.allclose(logdet, np.linalg.slogdet(np.asarray(a))[1], rtol=1e-4)
        assert inverse_residual(np.asarray(a), jaxmg.potri(a)) <= 25
        a = placed(general(n, n, dtype) + 2 * np.eye(n, dtype=dtype), devices)
        assert not calls(jaxmg.lu_solve, a, b)
        x, status = jaxmg.lu_solve(a, b, return_status=True)
        assert int(status) == 0
        assert_solved(np.asarray(a), x, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenproblems(dtype, devices):
    for n in (13, 64):
        whole = hermitian(n, dtype)
        a = placed(whole, devices)
        assert not calls(jaxmg.syevd, a)
        w, v, status = jaxmg.syevd(a, return_status=True)
        assert int(status) == 0
        v, bound = np.asarray(v), 25 * n * eps(dtype)
        assert np.abs(whole @ v - v * np.asarray(w)).max() <= bound * np.abs(whole).max() * n**0.5
        assert np.abs(v.conj().T @ v - np.eye(n)).max() <= bound
        assert (np.diff(w) >= 0).all()
        alone = jaxmg.syevd(a, return_eigenvectors=False)
        assert np.allclose(alone, w, atol=bound * np.abs(whole).max() * n**0.5)
        one = jaxmg.syevd(a, return_eigenvectors=True, T_A=2)[0]
        assert np.allclose(one, w, atol=bound * np.abs(whole).max() * n**0.5)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("vectors", [True, False])
def test_extreme_eigenproblems(scale, vectors):
    a = hermitian(20, "float64")
    found = jaxmg.syevd(jnp.asarray(a * scale), return_eigenvectors=vectors)
    w = found[0] if vectors else found
    assert np.allclose(np.asarray(w) / scale, np.linalg.eigvalsh(a), atol=1e-13 * np.abs(a).sum())


def test_subsets():
    a = hermitian(20, "complex128")
    w, v = linalg.eigh(jnp.asarray(a), subset_by_index=(3, 7))
    assert w.shape == (5,) and v.shape == (20, 5)
    assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w), atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float32", (16, 16)),
        ("float64", (48, 16)),
        ("complex64", (16, 48)),
        ("complex128", (13, 5)),
        ("float64", (1, 1)),
    ],
)
def test_qr(dtype, shape, devices):
    whole = general(*shape, dtype)
    a = placed(whole, devices)
    assert not calls(jaxmg.qr, a)
    q, r, status = jaxmg.qr(a, return_status=True)
    assert int(status) == 0
    k = min(shape)
    assert q.shape == (shape[0], k) and r.shape == (k, shape[1])
    q, r = np.asarray(q), np.asarray(r)
    assert relative(q @ r, whole) <= 25 * max(shape) * eps(dtype)
    assert np.abs(q.conj().T @ q - np.eye(k)).max() <= 25 * max(shape) * eps(dtype)
    assert np.abs(np.tril(r, -1)).max() == 0
    assert calls(lambda a: jaxmg.qr(a, mode="r"), a)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_one_triangle_is_read(dtype, devices):
    a, b = spd(16, dtype), general(16, 1, dtype)
    if np.iscomplexobj(a):
        a = a + 3j * np.eye(16)  # ignored
    clean = np.where(np.eye(16) > 0, a.real, a).astype(dtype)
    for lower in (True, False):
        half = np.tril(a) if lower else np.triu(a)
        other = np.triu(np.full((16, 16), np.nan), 1)
        half = placed((half + (other if lower else other.T)).astype(dtype), devices)
        assert not calls(lambda a, lower=lower: jaxmg.potrs(a, b, lower=lower), half)
        assert_solved(clean, jaxmg.potrs(half, b, lower=lower), b)
        assert inverse_residual(clean, jaxmg.potri(half, lower=lower)) <= 25
        w, _ = jaxmg.syevd(half, lower=lower)
        assert np.allclose(w, np.linalg.eigvalsh(clean), rtol=1e-4)
    assert_solved(clean, jaxmg.potrs(placed(a, devices), b), b)


def test_failures_have_the_status_of_the_engine(devices):
    b = np.ones(16)

    def both(function, a):
        """With the library and with a tile, which is the engine's."""
        out = []
        for tile in (None, 2):
            *results, status = function(placed(a, devices), tile)
            assert all(np.isnan(x).all() for x in results)
            out.append(int(status))
        assert out[0] == out[1]
        return out[0]

    def solve(a, tile):
        return jaxmg.potrs(a, b, tile, return_logdet=True, return_status=True)

    def invert(a, tile):
        return jaxmg.potri(a, tile, return_status=True)

    def lu(a, tile):
        return jaxmg.lu_solve(a, b, tile, return_status=True)

    def eigen(a, tile):
        return jaxmg.syevd(a, tile, return_status=True)

    def values(a, tile):
        return jaxmg.syevd(a, tile, return_eigenvectors=False, return_status=True)

    def factor(a, tile):
        return jaxmg.qr(a, tile, return_status=True)

    bad = spd(16)
    bad[6, 6] = -1
    assert both(solve, bad) == both(invert, bad) == 7
    one = spd(16)
    one[3, :] = one[3, 3]
    half = np.tril(0.25 * general(16, 16), -1) + 10 * np.eye(16)  # its diagonal rules
    for function in (solve, invert, eigen, values):
        assert both(function, one) == -2
        assert both(function, half) == -2
    nan = spd(16)
    nan[4, 2] = nan[2, 4] = np.nan
    for function in (solve, invert, eigen, values, lu, factor):
        assert both(function, nan) == -1
    nan[4, 2] = nan[2, 4] = np.inf
    for function in (solve, invert, eigen, values, lu, factor):
        assert both(function, nan) == -1
    for lower in (None, True, False):  # where imaginary parts do not count otherwise
        nan = spd(16, "complex128")
        nan[2, 2] += 1j * np.nan
        for tile in (None, 2):
            _, status = jaxmg.potrs(placed(nan, devices), b, tile, lower=lower, return_status=True)
            assert int(status) == -1
            *_, status = jaxmg.syevd(placed(nan, devices), tile, lower=lower, return_status=True)
            assert int(status) == -1
    singular = general(16, 16)
    singular[5] = 0
    *results, status = lu(placed(singular, devices), None)
    assert int(status) == 6 and np.isnan(results[0]).all()
    with pytest.raises(jaxmg.errors.NotPositiveDefiniteError) as failure:
        jaxmg.potrs(placed(bad, devices), b, check=True)
    assert failure.value.index == 7
    with pytest.raises(jaxmg.errors.SingularMatrixError):
        jaxmg.lu_solve(placed(singular, devices), b, check=True)


def derived(name, tile, a):
    """A number that does not depend on phases."""
    b = general(16, 2, "complex128")
    if name == "syevd":
        w, v = jaxmg.syevd(a, tile)
        x = jnp.abs(v) ** 2 * w
    elif name == "values":
        x = jaxmg.syevd(a, tile, return_eigenvectors=False) ** 3
    elif name == "qr":
        q, r = jaxmg.qr(a, tile)
        x = jnp.concatenate([jnp.abs(q) ** 2, jnp.abs(r) ** 2])
    else:
        x = jaxmg.potri(a, tile) if name == "potri" else getattr(jaxmg, name)(a, b, tile)
    return jnp.sum(jnp.cos(jnp.abs(x)))


@pytest.mark.parametrize("kind", [None, EXPLICIT])
@pytest.mark.parametrize("name", ["potrs", "potri", "lu_solve", "syevd", "values", "qr"])
def test_derivatives_are_those_of_the_engine(name, kind):
    make = general if name in ("lu_solve", "qr") else lambda n, _, dtype: spd(n, dtype)
    a = placed(make(16, 16, "complex128"), 4, kind)
    got, want = (jax.jit(jax.grad(functools.partial(derived, name, t)))(a) for t in (None, 4))
    assert relative(got, want) < 1e-10
    assert got.sharding.is_equivalent_to(want.sharding, 2)


def test_batches(devices):
    a = np.stack([spd(16, seed=s) for s in range(3)])
    b = np.stack([general(16, 1) for _ in range(3)])
    for x, y, z in zip(a, jax.vmap(jaxmg.potrs)(a, b), b, strict=True):
        assert_solved(x, y, z)
    for x, y, z in zip(a, jax.vmap(jaxmg.lu_solve)(a, b), b, strict=True):
        assert_solved(x, y, z)
    for x, w in zip(a, jax.vmap(lambda a: jaxmg.syevd(a)[0])(a), strict=True):
        assert np.allclose(w, np.linalg.eigvalsh(x))
    for x, q, r in zip(a, *jax.vmap(jaxmg.qr)(a), strict=True):
        assert relative(np.asarray(q) @ np.asarray(r), x) < 1e-12


@pytest.mark.parametrize("kind", [None, EXPLICIT])
def test_shardings_are_those_of_other_sizes(kind):
    a, g, b = placed(spd(16), 4, kind), placed(general(16, 16), 4, kind), general(16, 2)
    for function, x in (
        (lambda a, t: jaxmg.potrs(a, b, t), a),
        (lambda a, t: jaxmg.potri(a, t), a),
        (lambda a, t: jaxmg.lu_solve(a, b, t), g),
        (lambda a, t: jaxmg.syevd(a, t), a),
        (lambda a, t: jaxmg.qr(a, t), g),
    ):
        got, want = jax.tree.leaves(function(x, None)), jax.tree.leaves(function(x, 4))
        for one, other in zip(got, want, strict=True):
            assert one.sharding.is_equivalent_to(other.sharding, one.ndim)


def test_matrices_that_are_given_away():
    a, b = spd(16), general(16, 2)
    for devices in (1, 4):
        for function in (
            lambda a: jaxmg.potrs(a, b, donate=True),
            lambda a: jaxmg.lu_solve(a, b, donate=True),
        ):
            given = placed(a.copy(), devices)
            assert_solved(a, function(given), b)
            assert given.is_deleted()
        assert inverse_residual(a, jaxmg.potri(placed(a.copy(), devices), donate=True)) <= 25
        w = jaxmg.syevd(placed(a.copy(), devices), donate=True)[0]
        assert np.allclose(w, np.linalg.eigvalsh(a))
        q, r = jaxmg.qr(placed(a.copy(), devices), donate=True)
        assert relative(np.asarray(q) @ np.asarray(r), a) < 1e-12


def test_what_is_left_to_the_engine(monkeypatch):
    mesh = line(4)
    a, b = put(spd(16), mesh, "x", None), np.ones(16)
    large = put(spd(68), mesh, "x", None)
    for function, x in (
        (lambda a: jaxmg.potrs(a, b, 4), a),
        (lambda a: jaxmg.potrs(a, np.ones(68)), large),
        (lambda a: jaxmg.syevd(a, 4), a),
        (lambda a: jaxmg.syevd(a), large),
        (lambda a: jaxmg.qr(a, 4), a),
        (lambda a: jaxmg.qr(a), large),
        (lambda a: jaxmg.qr(a[:, :8], mode="complete"), a),
        (lambda a: linalg.cho_factor(a).solve(b), a),
        (lambda a: linalg.lu_factor(a).solve(b), a),
        (lambda a: linalg.qr_factor(a).solve(b), a),
        (lambda a: jaxmg.potrs(a, b, precision="mixed"), a),
    ):
        assert calls(function, x)
    inside = jax.shard_map(
        lambda a: jaxmg.potrs(a, b),
        mesh=mesh,
        in_specs=P("x", None),
        out_specs=P(),
        check_vma=False,
    )
    assert calls(inside, a)
    assert not calls(jaxmg.potrs, a, b)
    jaxmg.set_gather_below(0)
    try:
        assert all(calls(f, a) for f in (lambda a: jaxmg.potrs(a, b), jaxmg.syevd, jaxmg.qr))
    finally:
        jaxmg.set_gather_below(None)
    monkeypatch.setenv("JAXMG_LIBRARY_BELOW", "0")
    assert all(calls(f, a) for f in (lambda a: jaxmg.potrs(a, b), jaxmg.syevd, jaxmg.qr))
    monkeypatch.setenv("JAXMG_LIBRARY_BELOW", "some")
    with pytest.raises(ValueError, match="JAXMG_LIBRARY_BELOW"):
        jaxmg.potrs(a, b)


def test_uneven_shards():
    mesh = line(4)
    for n in (3, 13):
        a, g, b = spd(n, "complex64"), general(n, n, "complex64"), general(n, 2, "complex64")
        specs = {"mesh": mesh, "in_specs": P("x", None)}
        assert not calls(lambda a, b=b, specs=specs: jaxmg.potrs(a, b, **specs), a)
        assert_solved(a, jaxmg.potrs(a, b, **specs), b)
        assert_solved(g, jaxmg.lu_solve(g, b, **specs), b)
        w, v = jaxmg.syevd(a, **specs)
        assert eigen_residual(a, w, v) <= 25
    for shape in ((13, 5), (5, 13), (3, 2), (2, 7)):
        a = general(*shape)
        q, r = jaxmg.qr(a, **specs)
        assert not calls(lambda a, specs=specs: jaxmg.qr(a, **specs), a)
        assert relative(np.asarray(q) @ np.asarray(r), a) < 1e-12


def test_the_plan_says_so():
    for routine in ("potrs", "syevd", "qr"):
        plan = jaxmg.plan(routine, 64, "float64", mesh=4)
        assert plan.path == "gathered" and plan.gather_below >= 64
        assert jaxmg.plan(routine, 64, "float64", mesh=4, T_A=8).path == "distributed"
        assert jaxmg.plan(routine, 64, "float64", mesh=1).path == "one device"
        assert jaxmg.plan(routine, 20000, "float64", mesh=4).path == "distributed"


def test_another_size_holds_for_any_number_of_devices(monkeypatch):
    monkeypatch.setenv("JAXMG_LIBRARY_BELOW", "4096")
    for routine in ("potrs", "lu_solve", "syevd", "qr"):
        assert jaxmg.plan(routine, 4096, "float64", mesh=4).path == "gathered"


def test_the_selftest_is_one_of_the_engine(monkeypatch):
    def never(*_):
        raise AssertionError("a small problem was left to others")

    monkeypatch.setattr(_library, "below", never)
    assert jaxmg.selftest(line(4))
