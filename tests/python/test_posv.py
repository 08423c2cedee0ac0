"""Right-hand sides that are eliminated together with the matrix give what they give without it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.sharding import PartitionSpec as P

import jaxmg
import reference
from jaxmg import _native, _one_call
from jaxmg._layout import Layout, resolve_plan
from matrices import DTYPES, general, hermitian, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, relative

N = 16
TOLERANCE = 1e-12
REAL_AND_COMPLEX = pytest.mark.parametrize("dtype", ["float64", "complex128"])


@pytest.fixture(autouse=True)
def together(monkeypatch):
    monkeypatch.setenv(_one_call.VARIABLE, "1")


def calls(function, *arrays):
    """The result, and the calls that it took: in one, factorisations and solutions."""
    jax.block_until_ready(function(*arrays))
    _native.reset_counters()
    out = jax.block_until_ready(function(*arrays))
    return out, tuple(_native.counter(name) for name in ("posv", "potrf", "potrs"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 16, 33])
def test_sizes(n, dtype, mesh):
    a, b = spd(n, dtype), general(n, 3, dtype)
    x, logdet, status = jaxmg.potrs(a, b, mesh=mesh, return_logdet=True, return_status=True)
    assert x.dtype == dtype
    assert_solved(a, x, b)
    assert relative(logdet, reference.logdet(a)) < (1e-4 if dtype.endswith(("2", "64")) else 1e-12)
    assert int(status) == 0


@pytest.mark.parametrize("ranks", range(1, 9))
def test_numbers_of_devices(ranks):
    for n in (1, 7, 40):
        a, b = spd(n), general(n, 2)
        assert_solved(a, jaxmg.potrs(a, b, mesh=line(ranks)), b)


@pytest.mark.parametrize("nrhs", [None, 0, 1, 2, 17, 64, 65, 600])
def test_numbers_of_right_hand_sides(nrhs, mesh):
    need(2)  # alone there is nobody to wait for
    a = spd(24)
    b = general(24, nrhs or 1)
    b = b[:, 0] if nrhs is None else b[:, :nrhs]
    placed = put(a, mesh, "x", None)
    x, made = calls(jax.jit(jaxmg.potrs), placed, b)
    assert x.shape == b.shape
    if nrhs == 0:
        assert made == (0, 0, 0)
    else:
        assert made == ((0, 1, 1) if nrhs in (65, 600) else (1, 0, 0))
    if nrhs != 0:
        assert_solved(a, x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (None, "x"), (("x", "y"), None)], ids=str)
def test_specs(spec, kind):
    mesh = grid(4, 2, kind=kind)
    a, b = spd(N), general(N, 2)
    placed = put(a, mesh, *spec)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        x, made = calls(function, placed, b)
        assert made[1:] == (0, 0)
        assert_solved(a, x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_right_hand_sides_that_are_split(kind):
    mesh = line(8, kind=kind)
    a, b = spd(N), general(N, 2)
    placed, right = put(a, mesh, "x", None), put(b, mesh, "x", None)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        x, made = calls(function, placed, right)
        assert made == (1, 0, 0)
        assert_solved(a, x, b)
        if kind == EXPLICIT or function is jaxmg.potrs:  # Auto axes are not seen under jit
            assert x.sharding.is_equivalent_to(right.sharding, 2)
    a, b = spd(13), general(13, 2)
    specs = (P("x", None), P("x", None))
    assert_solved(a, jaxmg.potrs(a, b, mesh=line(8), in_specs=specs), b)


def test_tiles_and_triangles(mesh):
    a, b = spd(13), general(13, 2)
    for tile in (1, 2, 13):
        assert_solved(a, jaxmg.potrs(a, b, tile, line(3)), b)
    for lower in (True, False):
        half = np.where(np.tri(13, dtype=bool) if lower else np.tri(13, dtype=bool).T, a, np.nan)
        assert_solved(a, jaxmg.potrs(half, b, mesh=mesh, lower=lower), b)


def test_failing_minor(mesh):
    for place in (0, 5, 15):
        bad = spd(N)
        bad[place, place] = -1
        placed = put(bad, mesh, "x", None)
        for function in (jaxmg.potrs, jax.jit(jaxmg.potrs, static_argnames="return_status")):
            x, status = function(placed, general(N, 2), return_status=True)
            assert int(status) == place + 1
            assert np.isnan(x).all()
        with pytest.raises(jaxmg.NotPositiveDefiniteError):
            jaxmg.potrs(placed, np.ones(N), check=True)
    x, logdet = jaxmg.potrs(placed, np.ones(N), return_logdet=True)
    assert np.isnan(x).all()
    assert np.isnan(logdet)


def test_not_hermitian_and_not_finite(mesh):
    a = spd(N)
    a[2, 9] += 1
    assert int(jaxmg.potrs(a, np.ones(N), mesh=mesh, return_status=True)[1]) < 0
    a[2, 9] = np.nan
    assert int(jaxmg.potrs(a, np.ones(N), mesh=mesh, return_status=True)[1]) < 0


def solve_logdet(a, b, **options):
    return jaxmg.potrs(a, b, return_logdet=True, **options)


def value_of(function):
    def value(a, b):
        x, logdet = function(a, b)
        return jnp.real(jnp.sum(jnp.sin(x))) + 0.3 * logdet

    return value


@REAL_AND_COMPLEX
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)], ids=str)
def test_gradient(argnums, dtype, mesh):
    a, b = spd(N, dtype), general(N, 2, dtype)
    mine = jax.value_and_grad(value_of(solve_logdet), argnums)
    expected = jax.jit(jax.value_and_grad(value_of(reference.solve_logdet), argnums))(a, b)
    placed = put(a, mesh, "x", None)
    for wrap in (lambda f: f, jax.jit):
        found, made = calls(wrap(mine), placed, b)
        assert made[:2] == (0, 1)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        for one, other in pairs:
            assert relative(one, other) < TOLERANCE


@REAL_AND_COMPLEX
def test_forward_and_second_derivatives(dtype, mesh):
    a, b, da = spd(N, dtype), general(N, 2, dtype), hermitian(N, dtype, seed=3)
    placed, moved = put(a, mesh, "x", None), put(da, mesh, "x", None)
    found, made = calls(jax.jit(lambda *xs: jax.jvp(jaxmg.potrs, xs[:2], xs[2:])), placed, b, da, b)
    assert made[:2] == (0, 1)
    assert relative(found[1], jax.jvp(reference.solve, (a, b), (da, b))[1]) < TOLERANCE

    def along(function, first, second):
        return lambda t: jnp.real(jnp.sum(jnp.sin(function(first + t * second, b))))

    hessian = jax.jit(jax.hessian(along(jaxmg.potrs, placed, moved)))(0.1)
    expected = jax.jit(jax.hessian(along(reference.solve, a, da)))(0.1)
    assert relative(hessian, expected) < 1e-11


@REAL_AND_COMPLEX
def test_transposed_in_the_right_hand_side(dtype, mesh):
    a, b = spd(N, dtype), general(N, 2, dtype)
    placed = put(a, mesh, "x", None)

    def transposed(a, b):
        (found,) = jax.linear_transpose(lambda b: jaxmg.potrs(a, b), b)(b)
        return found

    assert relative(transposed(placed, b), np.linalg.solve(a.T, b)) < TOLERANCE
    rows = put(b, mesh, "x", None)
    assert relative(jax.jit(transposed)(placed, rows), np.linalg.solve(a.T, b)) < TOLERANCE
    # A program like any other.
    mine = jax.grad(lambda b: jnp.real(jnp.sum(jnp.sin(transposed(placed, b)))))
    theirs = jax.grad(lambda b: jnp.real(jnp.sum(jnp.sin(jnp.linalg.solve(a.T, b)))))
    assert relative(mine(b), theirs(b)) < TOLERANCE


def test_batches(mesh):
    need(2)  # alone there is nobody to wait for
    a, bs = spd(N), np.stack([general(N, 3, seed=i) for i in range(4)])
    placed = put(a, mesh, "x", None)
    for wrap in (lambda f: f, jax.jit):
        x, made = calls(wrap(jax.vmap(jaxmg.potrs, (None, 0))), placed, bs)
        assert made == (1, 0, 0)
        assert relative(x, np.linalg.solve(a, bs)) < TOLERANCE
    # More of them than can be eliminated together.
    many = np.stack([general(N, 3, seed=i) for i in range(40)])
    x = jax.vmap(jaxmg.potrs, (None, 0))(placed, many)
    assert relative(x, np.linalg.solve(a, many)) < TOLERANCE
    # One matrix has one determinant.
    x, logdet = jax.vmap(solve_logdet, (None, 0), (0, None))(placed, bs)
    assert relative(logdet, reference.logdet(a)) < TOLERANCE
    for count in (3, 9):
        matrices = np.stack([spd(N, seed=i) for i in range(count)])
        x = jax.jit(jax.vmap(jaxmg.potrs, (0, None)))(matrices, bs[0])
        assert relative(x, np.linalg.solve(matrices, bs[0])) < TOLERANCE
    value = lambda b: jnp.sum(jnp.sin(jaxmg.potrs(placed, b)))  # noqa: E731
    theirs = lambda b: jnp.sum(jnp.sin(reference.solve(a, b)))  # noqa: E731
    found, made = calls(jax.jit(jax.vmap(jax.grad(value))), bs)
    assert made[:2] == (0, 1)
    assert relative(found, jax.vmap(jax.grad(theirs))(bs)) < TOLERANCE


def test_loops_and_other_meshes_of_a_program(mesh):
    a, b = spd(N), general(N, 2)
    placed = put(a, mesh, "x", None)
    loop = jax.jit(lambda a, b: lax.fori_loop(0, 3, lambda _, x: jaxmg.potrs(a, x), b))
    expected = b
    for _ in range(3):
        expected = np.linalg.solve(a, expected)
    assert relative(loop(placed, b), expected) < 1e-11
    # Compiled for one device although the type of the matrix shows eight.
    x = jax.jit(lambda b: jaxmg.potrs(placed + jnp.eye(N), b))(b)
    assert_solved(a + np.eye(N), x, b)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_donation(kind):
    a, b = spd(64), general(64, 2)
    mesh = line(8, kind=kind)
    placed = jax.jit(lambda x: x + 0)(put(a, mesh, "x", None))
    right = put(b, mesh)
    assert_solved(a, jaxmg.potrs(placed, right), b)
    assert (np.asarray(placed) == a).all()
    assert (np.asarray(right) == b).all()
    x = jaxmg.potrs(placed, right, donate=True)
    assert placed.is_deleted()
    assert_solved(a, x, b)
    assert (np.asarray(right) == b).all()


def test_checkify(mesh):
    bad = np.eye(N)
    bad[6, 6] = -1
    checked = jax.jit(checkify.checkify(lambda a: jaxmg.potrs(a, jnp.ones(N), check=True)))
    assert "status 7" in (checked(put(bad, mesh, "x", None))[0].get() or "")
    assert checked(put(np.eye(N), mesh, "x", None))[0].get() is None


def test_the_environment_decides_call_by_call(mesh, monkeypatch):
    need(2)  # alone there is nobody to wait for
    a, b = put(spd(N), mesh, "x", None), general(N, 1)
    one, two = (1, 0, 0), (0, 1, 1)
    by_plan = one if jax.default_backend() != "cpu" and mesh.size > 1 else two
    for text, expected in [("1", one), ("0", two), ("", by_plan), ("1", one)]:
        monkeypatch.setenv(_one_call.VARIABLE, text)
        assert calls(jaxmg.potrs, a, b)[1] == expected
    monkeypatch.setenv(_one_call.VARIABLE, "yes")
    with pytest.raises(ValueError, match=_one_call.VARIABLE):
        jaxmg.potrs(a, b)


def test_where_it_pays(mesh, monkeypatch):
    """The choice that is left to the plan."""
    need(2)
    monkeypatch.delenv(_one_call.VARIABLE)
    gpus = Layout("dist", mesh, ("x",), (), "cuda")
    r = resolve_plan(gpus, 20000, "float64")
    assert _one_call.pays(r, 1)
    assert _one_call.pays(r, 64)
    assert not _one_call.pays(r, 65)
    assert not _one_call.pays(r, 0)
    for change in ({"mixed": True}, {"gathered": True}, {"backend": "cusolvermg"}, {"order": 1}):
        assert not _one_call.pays(dataclasses.replace(r, **change), 1)
    for kind, platform in (("manual", "cuda"), ("dist", "cpu")):
        layout = dataclasses.replace(gpus, kind=kind, platform=platform)
        assert not _one_call.pays(dataclasses.replace(r, layout=layout), 1)
    one = dataclasses.replace(gpus, mesh=line(1))
    assert not _one_call.pays(dataclasses.replace(r, layout=one), 1)
