"""Eigenproblems of many panels, on several numbers of devices: sizes that divide by few of them."""

import numpy as np
import pytest

import jaxmg
from matrices import DTYPES, eps, hermitian, wide
from meshes import line
from residuals import LIMIT, eigen_residual, orthogonality


def assert_decomposed(a, w, v):
    assert w.shape == (len(a),) and np.all(np.diff(w) >= 0)
    assert eigen_residual(a, w, v) <= LIMIT
    assert orthogonality(v) <= LIMIT


def assert_near(found, expected, dtype):
    """Eigenvalues agree to rounding, which is of the size of the largest."""
    n = len(expected)
    assert np.max(np.abs(found - expected)) <= 5 * np.sqrt(n) * eps(dtype) * np.max(
        np.abs(expected)
    )


def assert_moments(a, w):
    """The first moments of the spectrum: the trace, and the sum of squares of all elements."""
    n, w = len(a), np.asarray(w, np.float64)
    a = a.astype(wide(a.dtype))
    size, unit = np.max(np.abs(w)), eps(a.dtype)
    assert abs(w.sum() - np.trace(a).real) <= LIMIT * n * unit * size
    assert abs((w**2).sum() - np.linalg.norm(a) ** 2) <= LIMIT * n * unit * size**2


@pytest.mark.parametrize(
    ("n", "dtypes", "counts"),
    [(257, DTYPES, (1, 2, 3, 5, 8)), (1000, ("float64", "complex64"), (1, 3, 8))],
)
def test_device_counts_agree(n, dtypes, counts):
    for dtype in dtypes:
        a = hermitian(n, dtype)
        expected = np.linalg.eigvalsh(a.astype(wide(dtype)))
        for count in counts:
            w, v, status = jaxmg.syevd(a, mesh=line(count), return_status=True)
            assert int(status) == 0
            assert_decomposed(a, np.asarray(w), v)
            assert_near(w, expected, dtype)
            alone = jaxmg.syevd(a, mesh=line(count), return_eigenvectors=False)
            assert_near(alone, expected, dtype)


def test_large():
    a = hermitian(3000)
    found = []
    for count in (8, 3):
        w, v, status = jaxmg.syevd(a, mesh=line(count), return_status=True)
        assert int(status) == 0
        assert_decomposed(a, np.asarray(w), v)
        assert_moments(a, w)
        found.append(np.asarray(w))
    assert_near(found[0], found[1], a.dtype)
