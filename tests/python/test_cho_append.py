"""Cholesky factors of matrices that grow, against factorisations of the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmg import _native, linalg
from matrices import HARD, general, spd
from meshes import EXPLICIT, grid, line, put
from residuals import assert_solved, relative
from test_cho_update import check, square


def grown(a, n, factor, step=1000):
    """A factor of `a` from one of its first n rows and columns."""
    while n < len(a):
        stop = min(n + step, len(a))
        factor = linalg.cho_append(factor, a[:n, n:stop], a[n:stop, n:stop])
        n = stop
    return factor


@pytest.mark.parametrize(
    ("dtype", "devices", "n", "m"),
    [
        ("float32", 1, 9, 4),
        ("float64", 3, 7, 1),
        ("complex64", 2, 16, 5),
        ("complex128", 8, 16, 17),
        ("float64", 8, 3, 2),
        ("float64", 2, 0, 3),
    ],
)
def test_append(dtype, devices, n, m):
    a = spd(n + m, dtype)
    factor = grown(a, n, linalg.cho_factor(a[:n, :n], mesh=line(devices)))
    assert factor.shape == (n + m, n + m)
    assert factor.dtype == dtype
    check(a, factor)


@pytest.mark.parametrize("order", ["relabelled", "natural"])
def test_again_and_again(order, mesh):
    a = spd(24, "complex128")
    factor = linalg.cho_factor(put(a[:16, :16], mesh, "x", None), order=order)
    check(a, grown(a, 16, factor, step=3))


def test_one_row(mesh):
    a = spd(17)
    factor = linalg.cho_factor(put(a[:16, :16], mesh, "x", None))
    check(a, linalg.cho_append(factor, a[:16, 16], a[16, 16]))
    assert linalg.cho_append(factor, np.zeros((16, 0)), np.zeros((0, 0))) is factor


@pytest.mark.parametrize("kind", sorted(HARD))
def test_hard_matrices(kind, mesh):
    """Stable also where A itself is nearly singular, so that A^-1 B alone would not do."""
    a, b = HARD[kind](48, "float64"), general(48, 2)
    factor = grown(a, 40, linalg.cho_factor(put(a[:40, :40], mesh, "x", None)))
    assert_solved(a, factor.solve(b), b)
    assert_solved(a, grown(a, 40, factor.base, step=3).solve(b), b)


def test_the_old_part_is_not_factored_again(mesh):
    a = spd(18)
    factor = jax.block_until_ready(linalg.cho_factor(put(a[:16, :16], mesh, "x", None)))
    _native.reset_counters()
    new = jax.block_until_ready(grown(a, 16, factor))
    assert _native.counter("potrf") == 1  # of the new corner
    assert new.base is factor
    _native.reset_counters()
    jax.block_until_ready([new.solve(general(18, 1)) for _ in range(2)])
    assert _native.counter("potrf") == 0


def test_rows_stay_split(mesh):
    a = spd(20)
    factor = grown(a, 16, linalg.cho_factor(put(a[:16, :16], mesh, "x", None)))
    (w,) = factor.w
    assert w.addressable_shards[0].data.shape == (16 // mesh.size, 4)


def test_failure(mesh):
    a = spd(20)
    a[18, 18] = -1
    factor = grown(a, 16, linalg.cho_factor(put(a[:16, :16], mesh, "x", None)))
    assert int(factor.status) == 19
    assert np.isnan(factor.solve(np.ones(20))).all()
    assert np.isnan(float(factor.logdet()))
    a = spd(20)
    a[5, 5] = -1
    assert int(grown(a, 16, linalg.cho_factor(put(a[:16, :16], mesh, "x", None))).status) == 6


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(dtype, mesh):
    a, rhs = spd(20, dtype), general(20, 2, dtype)
    parts = tuple(
        map(jnp.asarray, (a[:8, :8], a[:8, 8:16], a[8:16, 8:16], a[:16, 16:], a[16:, 16:]))
    )

    def real(x):
        return jnp.sum(jnp.sin(jnp.real(x)) + jnp.imag(x) ** 2)

    def value(a, b, c, b2, c2):
        factor = linalg.cho_append(linalg.cho_factor(a, mesh=mesh), b, c)
        factor = linalg.cho_append(factor, b2, c2)
        return real(factor.solve(rhs)) + factor.logdet()

    def whole(a, b, c):
        a = jnp.block([[a, b], [jnp.conj(b.T), c]])
        return (a + jnp.conj(a.T)) / 2

    def expected(a, b, c, b2, c2):
        a = whole(whole(a, b, c), b2, c2)
        return real(jnp.linalg.solve(a, rhs)) + jnp.linalg.slogdet(a)[1]

    every = tuple(range(5))
    found = jax.jit(jax.grad(value, every))(*parts)
    assert max(map(relative, found, jax.grad(expected, every)(*parts))) < 1e-10
    tangents = tuple(x / 2 for x in parts)
    _, got = jax.jvp(value, parts, tangents)
    _, want = jax.jvp(expected, parts, tangents)
    assert relative(got, want) < 1e-10


def test_update_of_a_grown_factor(mesh):
    a, v = spd(20), general(20, 2, seed=4)
    factor = grown(a, 16, linalg.cho_factor(put(a[:16, :16], mesh, "x", None)), step=2)
    check(a + square(v), linalg.cho_update(factor, v))
    check(a, linalg.cho_update(linalg.cho_update(factor, v), v, downdate=True))


def test_transformations(mesh):
    a, b = spd(20), general(20, 3)
    factor = grown(a, 16, linalg.cho_factor(put(a[:16, :16], mesh, "x", None)))
    assert_solved(a, jax.jit(lambda f, b: f.solve(b))(factor, b), b)
    assert_solved(a, jax.vmap(factor.solve, 1, 1)(b), b)
    assert_solved(a, linalg.cho_solve(factor, b), b)
    c, lower = factor
    assert_solved(a, linalg.cho_solve((c, lower), b), b)
    last, _ = jax.lax.scan(lambda x, _: (factor.solve(x), None), jnp.asarray(b), None, length=2)
    assert relative(last, np.linalg.solve(a, np.linalg.solve(a, b))) < 1e-11
    leaves, tree = jax.tree.flatten(factor)
    check(a, jax.tree.unflatten(tree, leaves))


def test_other_meshes():
    a = spd(20)
    for mesh in (grid(2, 2), line(2, kind=EXPLICIT)):
        placed = put(a[:16, :16], mesh, "x", None)
        check(a, grown(a, 16, linalg.cho_factor(placed), step=3))


def test_arguments(mesh):
    factor = linalg.cho_factor(spd(8), mesh=mesh)
    for b, c in (
        (np.ones((7, 2)), np.eye(2)),
        (np.ones((8, 2)), np.eye(3)),
        (np.ones(8), np.eye(2)),
    ):
        with pytest.raises(ValueError, match="cho_append"):
            linalg.cho_append(factor, b, c)
    with pytest.raises(TypeError, match="factor"):
        linalg.cho_append(np.eye(8), np.ones(8), 1.0)
    with pytest.raises(TypeError, match="complex128"):
        linalg.cho_append(factor, np.ones(8, np.complex128), 9.0)
