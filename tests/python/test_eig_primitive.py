"""The engine's eigensolver behind its primitive: every layout, range, triangle and failure."""

import jax
import numpy as np
import pytest

from jaxmg import _resolve
from jaxmg._eig_primitives import resolve_eig, syevd_p
from matrices import eps, hermitian, wide
from meshes import EXPLICIT, line, put
from residuals import LIMIT, norm1, ratio

DTYPES = ["float32", "float64", "complex64", "complex128"]


def solve(a, mesh, *, vectors=True, first=0, count=None, tile=0, triangle=-1):
    n = a.shape[1]
    r = resolve_eig(
        _resolve.resolve(a, n=n, mesh=mesh), n, str(a.dtype), tile=tile, triangle=triangle
    )
    count = n - first if count is None else count
    bind = lambda a: syevd_p.bind(a, r=r, vectors=vectors, first=first, count=count)  # noqa: E731
    w, *v, info = jax.jit(bind)(a)
    return np.asarray(w), np.asarray(v[0])[:n] if vectors else None, np.asarray(info)


def assert_decomposed(a, w, v):
    n, dtype = a.shape[0], a.dtype
    a, v = a.astype(wide(dtype)), v.astype(wide(dtype))
    assert ratio(norm1(a @ v - v * w), n * eps(dtype) * norm1(a)) <= LIMIT
    assert norm1(v.conj().T @ v - np.eye(v.shape[1])) <= LIMIT * n * eps(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_decomposition(dtype, devices):
    mesh = line(devices)
    for n in (1, 2, 7, 8, 33):
        a = hermitian(n, dtype)
        w, v, info = solve(put(a, mesh), mesh)
        assert info[0] == 0
        assert np.allclose(w, np.linalg.eigvalsh(a), atol=20 * n * eps(dtype))
        assert_decomposed(a, w, v)


@pytest.mark.parametrize("vectors", [True, False])
def test_split_rows(vectors):
    mesh = line(4, kind=EXPLICIT)
    a = hermitian(16, "complex128")
    w, v, _ = solve(put(a, mesh, "x", None), mesh, vectors=vectors)
    assert np.allclose(w, np.linalg.eigvalsh(a))
    if vectors:
        assert_decomposed(a, w, v)


def test_range(mesh):
    a = hermitian(24)
    w, v, _ = solve(put(a, mesh), mesh, first=5, count=7)
    assert v.shape == (24, 7)
    assert_decomposed(a, w[5:12], v)


@pytest.mark.parametrize("triangle", [0, 1])
def test_triangle(mesh, triangle):
    a = hermitian(16, "complex128")
    half = np.where(
        np.tri(16, dtype=bool) if triangle == 0 else np.tri(16, dtype=bool).T, a, np.nan
    )
    w, v, _ = solve(put(half, mesh, "x", None), mesh, triangle=triangle)
    assert_decomposed(a, w, v)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(mesh, bad):
    a = hermitian(16)
    a[3, 5] = a[5, 3] = bad
    w, v, info = solve(put(a, mesh, "x", None), mesh)
    assert info[0] == -1
    assert np.isnan(w).all()
    assert np.isnan(v).all()
    w, v, info = solve(put(hermitian(16), mesh, "x", None), mesh)
    assert info[0] == 0


@pytest.mark.parametrize("n", [212, 1000])
def test_eigenvalues_agree_over_device_counts(n):
    a = hermitian(n)
    expected = np.linalg.eigvalsh(a)
    found = []
    for devices in (1, 3, 8):
        mesh = line(devices)
        w, v, info = solve(put(a, mesh), mesh)
        assert info[0] == 0
        assert_decomposed(a, w, v)
        found.append(w)
        found.append(solve(put(a, mesh), mesh, vectors=False)[0])
    for w in found:
        assert np.max(np.abs(w - expected)) <= 5 * np.sqrt(n) * eps(a.dtype) * np.max(
            np.abs(expected)
        )


def test_input_is_kept(mesh):
    a = put(hermitian(16), mesh, "x", None)
    before = np.array(a)
    solve(a, mesh, vectors=False)
    solve(a, mesh, count=3)
    solve(a, mesh)
    assert np.array_equal(np.asarray(a), before)


def test_batch(mesh):
    n = 16
    batch = np.stack([hermitian(n, seed=s) for s in range(3)])
    r = resolve_eig(_resolve.resolve(batch[0], n=n, mesh=mesh), n, "float64")
    w, v, _ = jax.vmap(lambda a: syevd_p.bind(a, r=r, vectors=True, first=0, count=n))(batch)
    for a, values, columns in zip(batch, np.asarray(w), np.asarray(v), strict=True):
        assert_decomposed(a, values, columns[:n])
