"""`least_squares` by the Gram matrix: which matrices it is used for, and what it makes of them.

How often the engine was called tells which way a solution was found: (gels, geqrf) is (1, 0) for
the Gram matrix alone, and (1, 1) where it was doubtful and a QR factorisation followed.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import _least_squares, _memory, _native, linalg
from jaxmg._layout import Layout
from jaxmg._qr_layout import resolve_qr
from matrices import DTYPES, eps, general
from meshes import AUTO, EXPLICIT, grid, line, put
from rectangular import HARD, assert_least_squares, conditioned
from residuals import relative

BY_GRAM, BY_QR_AFTER_ALL, BY_QR = (1, 0), (1, 1), (0, 1)


@pytest.fixture(autouse=True)
def gram(monkeypatch):
    monkeypatch.setenv(_least_squares.VARIABLE, "gram")


def solved(*arguments, **options):
    """The solution and the calls that it took."""
    _native.reset_counters()
    x = jax.block_until_ready(jaxmg.least_squares(*arguments, **options))
    return x, tuple(_native.counter(name) for name in ("gels", "geqrf"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_every_shape(dtype, devices):
    mesh = line(devices)
    for m, n in ((1, 1), (9, 1), (9, 4), (33, 16), (100, 7)):
        for columns in (1, 3):
            a, b = general(m, n, dtype), general(m, columns, dtype, seed=1)
            x, calls = solved(a, b, mesh=mesh)
            assert calls == BY_GRAM
            assert x.shape == (n, columns) and x.dtype == dtype
            assert_least_squares(a, x, b)
            assert relative(x, np.linalg.lstsq(a, b, rcond=None)[0]) < 1e4 * eps(dtype)
    x = jaxmg.least_squares(a, b[:, 0], mesh=mesh)
    assert x.shape == (7,)
    assert_least_squares(a, x, b[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_conditions(dtype, mesh):
    """Good solutions for all of them; from 1e8 on at the latest by QR."""
    for digits in range(17):
        a = conditioned(96, 12, 10.0**digits, dtype)
        consistent = a @ general(12, 2, dtype, seed=1)
        for b in (consistent, general(96, 2, dtype, seed=1)):  # residuals small and large
            x, calls = solved(a, b, mesh=mesh)
            assert_least_squares(a, x, b)
            if digits <= 5:
                assert calls == BY_GRAM, digits
            if digits >= 8:
                assert calls == BY_QR_AFTER_ALL, digits


@pytest.mark.parametrize("digits", [1, 3, 5])
def test_as_accurate_as_qr(digits, mesh):
    condition = 10.0**digits
    a = conditioned(200, 12, condition)
    for size in (0.0, 1e-3, 1.0, 1e3):  # of the residual
        b = a @ general(12, 1, seed=1) + size * general(200, 1, seed=2)
        want = np.linalg.lstsq(a, b, rcond=None)[0]
        rest = np.linalg.norm(b - a @ want)
        error = np.linalg.norm(solved(a, b, mesh=mesh)[0] - want)
        assert error <= 50 * eps("float64") * condition * (np.linalg.norm(want) + condition * rest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hard_matrices(dtype, mesh):
    for name, matrix in HARD.items():
        a, b = matrix(64, 12, dtype), general(64, 2, dtype, seed=1)
        (x, status), calls = solved(a, b, mesh=mesh, return_status=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(_least_squares.VARIABLE, "qr")
            (y, expected), other = solved(a, b, mesh=mesh, return_status=True)
        assert other == BY_QR
        if name in ("random", "graded columns"):
            assert calls == BY_GRAM, name
        deficient = name in ("rank deficient", "zero columns", "repeated columns", "zero", "ones")
        if deficient:
            assert calls == BY_QR_AFTER_ALL, name
        if calls == BY_QR_AFTER_ALL:
            assert np.array_equal(x, y, equal_nan=True), name
        assert int(status) == int(expected), name
        if not deficient:
            assert_least_squares(a, x, b)


def test_scales_of_columns(mesh):
    """Their powers of two change no digit."""
    a, b = general(80, 10), general(80, 1)
    scale = 2.0 ** np.linspace(-300, 300, 10).astype(int)
    x, calls = solved(a * scale, b, mesh=mesh)
    assert calls == BY_GRAM
    assert np.array_equal(x * scale[:, None], solved(a, b, mesh=mesh)[0])


@pytest.mark.parametrize("size", [1e-150, 1e150, 1e-290, 1e290])
def test_numbers_near_the_ends(size, mesh):
    a, b = general(64, 8), general(64, 2, seed=1)
    for matrix, right in ((a * size, b), (a, b * size), (a * size, b * size)):
        assert_least_squares(
            a,
            np.asarray(jaxmg.least_squares(matrix, right, mesh=mesh))
            * ((matrix[0, 0] / a[0, 0]) / (right[0, 0] / b[0, 0])),
            b,
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none(bad, mesh):
    a, b = general(64, 8), general(64, 2)
    a[3, 5] = bad
    (x, status), calls = solved(a, b, mesh=mesh, return_status=True)
    assert calls == BY_QR_AFTER_ALL
    assert int(status) == -1 and np.isnan(x).all()
    with pytest.raises(jaxmg.NonFiniteInputError):
        jaxmg.least_squares(a, b, mesh=mesh, check=True)


def test_a_zero_column_has_a_place(mesh):
    a, b = general(64, 8), general(64, 1)[:, 0]
    a[:, 5] = 0
    with pytest.raises(jaxmg.SingularMatrixError) as caught:
        jaxmg.least_squares(a, b, mesh=mesh, check=True)
    assert caught.value.index == 6


def test_right_hand_sides(mesh):
    """Zeros, many, of all sizes, and outside of the range of A."""
    a, b = general(64, 6), general(64, 700)
    b[:, 0] = 0
    b[:, 1] *= 1e-200
    b[:, 2] *= 1e200
    b[:, 3] -= a @ np.linalg.lstsq(a, b[:, 3], rcond=None)[0]
    x, calls = solved(put(a, mesh, "x", None), b)
    x = np.asarray(x)
    assert calls == BY_GRAM
    assert not np.any(x[:, 0])
    for scale, j in ((1, 0), (1e200, 1), (1e-200, 2), (1, 3)):
        assert_least_squares(a, x[:, j] * scale, b[:, j] * scale)
    assert_least_squares(a, x[:, 4:], b[:, 4:])


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), ()])
def test_shardings(kind, spec):
    mesh = line(4, kind=kind)
    for m, n in ((32, 8), (18, 5)):
        a, b = general(m, n), general(m, 2, seed=1)
        placed = put(a, mesh, *spec) if m % 4 == 0 else a
        for right in (b, put(b, mesh), put(b, mesh, "x") if m % 4 == 0 else b):
            x, calls = solved(placed, right, mesh=mesh)
            assert calls == BY_GRAM
            assert_least_squares(a, x, b)
            assert x.addressable_shards[0].data.shape == (n, 2)


def test_two_axes():
    a, b = general(24, 6), general(24, 1)[:, 0]
    assert_least_squares(a, jaxmg.least_squares(put(a, grid(2, 3), "x", "y"), b), b)


def test_under_jit(mesh):
    a, b = general(64, 8), general(64, 2)
    deficient = a.copy()
    deficient[:, 3] = deficient[:, 2]
    solve = jax.jit(lambda a, b: jaxmg.least_squares(a + 0, b))
    for matrix, calls in ((a, BY_GRAM), (deficient, BY_QR_AFTER_ALL)):
        placed = put(matrix, mesh, "x", None)
        jax.block_until_ready(solve(placed, b))
        _native.reset_counters()
        x = jax.block_until_ready(solve(placed, b))
        assert (_native.counter("gels"), _native.counter("geqrf")) == calls
        assert_least_squares(matrix, x, b)


def test_the_matrix_is_not_copied():
    mesh = line(2)
    m, n = 512, 8
    a, b = put(general(m, n), mesh, "x", None), put(general(m, 2), mesh, "x", None)
    text = jax.jit(jaxmg.least_squares).lower(a, b).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert "jaxmg_gels" in entry
    assert f"f64[{m // 2},{n}]{{1,0}} copy" not in entry


def test_donation(mesh):
    a, b = general(64, 8), general(64, 2)
    given = put(a, mesh, "x", None)
    x = jaxmg.least_squares(given, b, donate=True)
    assert given.is_deleted()
    assert_least_squares(a, x, b)


def test_vmap(mesh):
    """Members of a batch go their own ways."""
    solve = functools.partial(jaxmg.least_squares, mesh=mesh)
    matrices = np.stack([general(40, 5, seed=k) for k in range(3)])
    matrices[1, :, 2] = matrices[1, :, 1]
    rights = np.stack([general(40, 2, seed=k + 9) for k in range(3)])
    _native.reset_counters()
    xs = jax.block_until_ready(jax.vmap(solve)(matrices, rights))
    assert _native.counter("gels") >= 3
    assert _native.counter("geqrf") == 1
    for a, b, x in zip(matrices, rights, xs, strict=True):
        assert_least_squares(a, x, b)
    for b, x in zip(rights, jax.vmap(solve, (None, 0))(matrices[0], rights), strict=True):
        assert_least_squares(matrices[0], x, b)
    many = np.stack([general(40, 5, seed=k) for k in range(9)])
    for a, x in zip(many, jax.vmap(solve, (0, None))(many, rights[0]), strict=True):
        assert_least_squares(a, x, rights[0])


def test_derivatives(mesh):
    """From a factorisation, whose value agrees with that of the Gram matrix."""
    a, b, c = general(64, 8), general(64, 2, seed=5), general(8, 2, seed=7)

    def loss(solve, a, b):
        return jnp.sum(c * solve(a, b) ** 2)

    ours = functools.partial(jaxmg.least_squares, mesh=mesh)
    theirs = lambda a, b: jnp.linalg.lstsq(a, b)[0]  # noqa: E731
    function = jax.jit(jax.value_and_grad(functools.partial(loss, ours), (0, 1)))
    jax.block_until_ready(function(a, b))
    _native.reset_counters()
    value, slopes = jax.block_until_ready(function(a, b))
    assert (_native.counter("gels"), _native.counter("geqrf")) == BY_QR
    assert relative(value, loss(ours, a, b)) < 1e-13
    want = jax.jit(jax.grad(functools.partial(loss, theirs), (0, 1)))(a, b)
    for found, expected in zip(slopes, want, strict=True):
        assert relative(found, expected) < 1e-11
    tangents = (general(64, 8, seed=8), general(64, 2, seed=9))
    for found, expected in zip(
        jax.jvp(ours, (a, b), tangents), jax.jvp(theirs, (a, b), tangents), strict=True
    ):
        assert relative(found, expected) < 1e-11
    second = jax.grad(lambda a: jnp.sum(jax.grad(functools.partial(loss, ours))(a, b) ** 2))(a)
    other = jax.grad(lambda a: jnp.sum(jax.grad(functools.partial(loss, theirs))(a, b) ** 2))(a)
    assert relative(second, other) < 1e-10


def test_derivatives_with_explicit_axes():
    a, b = general(32, 8), general(32, 2, seed=5)
    loss = lambda a, b: jnp.sum(jaxmg.least_squares(a, b) ** 2)  # noqa: E731
    mesh = line(4, kind=EXPLICIT)
    with jax.set_mesh(mesh):
        got = jax.grad(loss, (0, 1))(put(a, mesh, "x", None), put(b, mesh))
    want = jax.grad(lambda a, b: jnp.sum(jnp.linalg.lstsq(a, b)[0] ** 2), (0, 1))(a, b)
    for found, expected in zip(got, want, strict=True):
        assert relative(found, expected) < 1e-12


def test_what_is_chosen(mesh, monkeypatch):
    monkeypatch.delenv(_least_squares.VARIABLE)
    devices = mesh.size
    for rows, calls in ((4 * 8 * devices, BY_GRAM), (4 * 8 * devices - 1, BY_QR)):
        a, b = general(rows, 8), general(rows, 1)
        x, found = solved(a, b, mesh=mesh)
        assert found == calls
        assert_least_squares(a, x, b)
    wide = general(8, 40 * devices)
    assert solved(wide, general(8, 1), mesh=mesh)[1] == BY_QR
    monkeypatch.setenv(_least_squares.VARIABLE, "qr")
    assert solved(general(40 * devices, 2), general(40 * devices, 1), mesh=mesh)[1] == BY_QR
    monkeypatch.setenv(_least_squares.VARIABLE, "fast")
    with pytest.raises(ValueError, match="'qr' and 'gram'"):
        jaxmg.least_squares(a, b, mesh=mesh)


def test_without_room_for_a_copy(monkeypatch):
    """QR in place needs less memory than the Gram matrix with QR to fall back to."""
    r = resolve_qr(Layout(platform="cpu"), 1 << 22, 64, "float64")
    with_copy, in_place = (
        sum(
            sum(part.values())
            for part in _memory.routine_bytes(
                routine, r.m, r.dtype, 1, "cpu", columns=r.n, tile=r.tile, in_place=place
            )
        )
        for routine, place in (("gels", False), ("least_squares", True))
    )
    assert with_copy >= in_place + r.m * r.n * 8
    for free, fits in ((with_copy / 0.94, True), (with_copy / 0.96, False)):
        monkeypatch.setattr(_memory, "available", lambda *_, free=free: (free, "test"))
        assert _memory.gram_fits(r, 1) == fits


def test_singular_values_want_a_factor(mesh):
    _native.reset_counters()
    a, b = general(64, 8), general(64, 1)
    x, _, rank, _ = jax.block_until_ready(linalg.lstsq(a, b, mesh=mesh))
    assert (_native.counter("gels"), _native.counter("geqrf")) == BY_QR
    assert int(rank) == 8
    assert_least_squares(a, x, b)
