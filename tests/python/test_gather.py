"""Small matrices: gathered to every device and solved there; everything else as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _gather, _model, _profile, linalg
from matrices import general, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, inverse_residual, relative

DTYPES = ["float32", "float64", "complex64", "complex128"]


@pytest.fixture(autouse=True)
def gathering():
    jaxmg.set_gather_below(100)
    yield
    jaxmg.set_gather_below(None)


def gathers(function, *arguments):
    """Shapes that the compiled program collects from all devices."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    found = [x for x in text.splitlines() if "all-gather(" in x or "all-gather-start(" in x]
    return [x.split("=")[1].split("all-gather")[0].strip() for x in found]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [2, 8])
def test_solutions(dtype, devices):
    mesh = line(devices)
    for n in (1, 13, 64):
        a, b = spd(n, dtype), general(n, 2, dtype)
        x, logdet, status = jaxmg.potrs(a, b, mesh=mesh, return_logdet=True, return_status=True)
        assert int(status) == 0
        assert_solved(a, x, b)
        assert np.allclose(logdet, np.linalg.slogdet(a)[1], rtol=1e-4)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_shardings_are_those_of_other_sizes(kind):
    mesh = line(4, kind=kind)
    a, b = spd(16), general(16, 2)
    for spec in (("x", None), (None, "x")):
        for right in (put(b, mesh, "x", None), put(b, mesh), put(b[:, 0], mesh, "x")):
            placed = put(a, mesh, *spec)
            x, y = jaxmg.potrs(placed, right), jaxmg.potrs(placed, right, T_A=2)
            assert_solved(a, x, np.asarray(right))
            assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
            assert x.sharding.is_equivalent_to(right.sharding, x.ndim)
    inverse = jaxmg.potri(put(a, mesh, "x", None))
    assert inverse_residual(a, inverse) <= 25
    assert inverse.addressable_shards[0].data.shape == (4, 16)


def test_what_is_gathered_and_what_is_not():
    need(8)
    mesh = line(8)
    small, large = put(spd(64), mesh, "x", None), put(spd(128), mesh, "x", None)
    b = np.ones(128)
    assert any("[64,64]" in x for x in gathers(lambda a: jaxmg.potrs(a, b[:64]), small))
    for function, a in (
        (lambda a: jaxmg.potrs(a, b[:64], 4), small),
        (lambda a: jaxmg.potrs(a, b), large),
        (lambda a: linalg.cho_factor(a).solve(b), large),
    ):
        assert not any("[64,64]" in x or "[128,128]" in x for x in gathers(function, a))
    jaxmg.set_gather_below(0)
    assert gathers(lambda a: jaxmg.potrs(a, b[:64]), small) == []


def test_equal_calls_see_a_changed_setting():
    mesh = line(2)
    a, b = put(spd(16), mesh, "x", None), put(np.ones(16), mesh)
    first = jaxmg.potrs(a, b)
    jaxmg.set_gather_below(0)
    second = jaxmg.potrs(a, b)
    assert_solved(spd(16), first, np.ones(16))
    assert_solved(spd(16), second, np.ones(16))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_lu(dtype, mesh):
    need(2)
    for n in (1, 13, 64):
        a, b = general(n, n, dtype) + 2 * np.eye(n, dtype=dtype), general(n, 2, dtype)
        x, status = jaxmg.lu_solve(a, b, mesh=mesh, return_status=True)
        assert int(status) == 0
        assert_solved(a, x, b)
    placed = put(a, mesh, "x", None)
    assert any("[64,64]" in x for x in gathers(lambda a: jaxmg.lu_solve(a, b), placed))
    assert not any("[64,64]" in x for x in gathers(lambda a: jaxmg.lu_solve(a, b, 4), placed))

    def slope(tile):
        return jax.grad(lambda a: jnp.real(jnp.sum(jaxmg.lu_solve(a, b, tile))))(placed)

    got, want = slope(None), slope(4)
    assert relative(got, want) < 1e-3
    assert got.sharding.is_equivalent_to(want.sharding, 2)
    assert jaxmg.plan("lu_solve", 64, dtype, mesh=4).path == "gathered"
    singular = np.ones((16, 16), dtype)
    x, status = jaxmg.lu_solve(put(singular, mesh, "x", None), b[:16], return_status=True)
    assert int(status) > 0 and np.isnan(x).all()


def test_two_axes():
    a, b = spd(13), general(13, 1)
    assert_solved(a, jaxmg.potrs(a, b, mesh=grid(2, 3), in_specs=P("x", "y")), b)


def test_failures(mesh):
    need(2)
    a = spd(16)
    a[6, 6] = -1
    x, status = jaxmg.potrs(put(a, mesh, "x", None), np.ones(16), return_status=True)
    assert int(status) == 7 and np.isnan(x).all()
    with pytest.raises(jaxmg.NotHermitianError):
        jaxmg.potrs(put(np.triu(spd(16)), mesh, "x", None), np.ones(16), check=True)
    half = np.where(np.tri(16, dtype=bool), spd(16), np.nan)
    assert_solved(spd(16), jaxmg.potrs(put(half, mesh, "x", None), np.ones(16), lower=True),
                  np.ones(16))  # fmt: skip
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.potrs(put(half, mesh, "x", None), np.ones(16), check=True)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(dtype, mesh):
    need(2)
    a, b = put(spd(16, dtype), mesh, "x", None), general(16, 1, dtype)[:, 0]

    def f(a, b, tile=None):
        x, logdet = jaxmg.potrs(a, b, tile, return_logdet=True)
        return jnp.real(jnp.vdot(b, x)) + logdet

    got = jax.jit(jax.value_and_grad(f, (0, 1)))(a, b)
    want = jax.jit(jax.value_and_grad(lambda a, b: f(a, b, 2), (0, 1)))(a, b)
    assert np.allclose(got[0], want[0])
    for one, other in zip(got[1], want[1], strict=True):
        assert relative(one, other) < 1e-12
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)


def test_vmap(mesh):
    need(2)
    batch, b = np.stack([spd(16, seed=k) for k in range(3)]), general(16, 2)
    x = jax.vmap(lambda a: jaxmg.potrs(a, b, mesh=mesh))(batch)
    for one, solution in zip(batch, x, strict=True):
        assert_solved(one, solution, b)
    a = put(spd(16), mesh, "x", None)
    assert_solved(spd(16), jax.vmap(lambda v: jaxmg.potrs(a, v), 1, 1)(b), b)


def test_factor_object(mesh):
    need(2)
    a, b = spd(16), general(16, 2)
    factor = linalg.cho_factor(put(a, mesh, "x", None))
    assert_solved(a, jax.jit(lambda f: f.solve(b))(factor), b)
    lower, order = factor.factor()
    assert np.allclose(np.asarray(lower) @ np.asarray(lower).T, a[order][:, order])
    assert np.allclose(factor.inv() @ a, np.eye(16))
    assert np.allclose(factor.logdet(), np.linalg.slogdet(a)[1])


def test_mixed_precision_and_donation(mesh):
    need(2)
    a, b = spd(16), general(16, 2)
    given = put(a, mesh, "x", None)
    x, info = jaxmg.potrs(given, b, precision="mixed", return_info=True, donate=True)
    assert given.is_deleted() and int(info.path) == 1
    assert_solved(a, x, b)
    kept = put(a, mesh, "x", None)
    jaxmg.potrs(kept, b)
    assert np.array_equal(kept, a)


def test_setting(monkeypatch):
    with pytest.raises(ValueError, match="n: got"):
        jaxmg.set_gather_below(-1)
    jaxmg.set_gather_below(None)
    monkeypatch.setenv(_gather.VARIABLE, "77")
    assert jaxmg.plan("potrs", 77, "float64", mesh=4).path == "gathered"
    assert jaxmg.plan("potrs", 78, "float64", mesh=4).path == "distributed"
    monkeypatch.setenv(_gather.VARIABLE, "few")
    with pytest.raises(ValueError, match=_gather.VARIABLE):
        _gather.setting()


def test_plan():
    plan = jaxmg.plan("potrs", 64, "float64", mesh=4)
    assert plan.path == "gathered" and plan.gather_below == 100
    assert plan.bytes_by_purpose["matrix"] == 64 * 64 * 8
    assert plan.bytes_by_purpose["copy_of_matrix"] == 64 * 64 * 2
    assert "gathered on 4 devices" in str(plan)
    assert jaxmg.plan("potrs", 64, "float64", mesh=4, T_A=8).path == "distributed"
    assert jaxmg.plan("potrs", 64, "float64", mesh=1).path == "one device"
    assert jaxmg.plan("potrf", 64, "float64", mesh=4).path == "distributed"


def test_sizes_that_the_model_gathers():
    # As measured: n = 8192 on two H200 takes 12 ms by both, and 9.4 ms on one of them.
    for dtype, split in (
        ("float32", True),
        ("float64", False),
        ("complex64", True),
        ("complex128", False),
    ):
        found = _model.gather_below(dtype, 2, _profile.H200, split=split, most=_gather.MOST["cuda"])
        assert found == 8192
    assert _model.gather_below("float64", 1, _profile.H200, split=False, most=8192) == 0
    assert _model.gather_below("float64", 8, _profile.CPU, split=False, most=1024) <= 512


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_general_matrices(dtype, kind):
    mesh = line(4, kind=kind)
    a, b = general(16, 16, dtype), general(16, 2, dtype)
    for right in (put(b, mesh, "x", None), put(b, mesh)):
        placed = put(a, mesh, "x", None)
        x, status = jaxmg.lu_solve(placed, right, return_status=True)
        assert int(status) == 0
        assert_solved(a, x, b)
        assert x.sharding.is_equivalent_to(right.sharding, x.ndim)
    assert len(gathers(jaxmg.lu_solve, placed, right)) == 1
    a[3] = 0
    x, status = jaxmg.lu_solve(put(a, mesh, "x", None), b, return_status=True)
    assert int(status) == 4
    assert np.isnan(x).all()
