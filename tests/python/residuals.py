"""How good an answer is, in units in which a backward stable one is of order 1."""

import numpy as np

from matrices import eps, wide

LIMIT = 25.0


def norm1(a):
    a = np.asarray(a)
    return np.linalg.norm(a, 1) if a.size else 0.0


def ratio(error, scale):
    """error / scale, with 0 / 0 = 0."""
    return 0.0 if error == 0 else error / scale


def solve_residual(a, x, b):
    """norm1(b - A x) / (n eps norm1(A) norm1(x)), formed in 64 bits."""
    dtype = np.asarray(x).dtype
    n = np.asarray(a).shape[0]
    a, x, b = (np.asarray(v).astype(wide(dtype)) for v in (a, x, b))
    return ratio(norm1(b - a @ x), n * eps(dtype) * norm1(a) * norm1(x))


def factor_residual(a, lower):
    """norm1(A - L L^H) / (n eps norm1(A))."""
    dtype = np.asarray(lower).dtype
    a, lower = (np.asarray(v).astype(wide(dtype)) for v in (a, lower))
    return ratio(norm1(a - lower @ lower.conj().T), a.shape[0] * eps(dtype) * norm1(a))


def inverse_residual(a, x):
    """norm1(I - A X) / (n eps norm1(A) norm1(X))."""
    dtype = np.asarray(x).dtype
    a, x = (np.asarray(v).astype(wide(dtype)) for v in (a, x))
    n = a.shape[0]
    return ratio(norm1(np.eye(n) - a @ x), n * eps(dtype) * norm1(a) * norm1(x))


def assert_solved(a, x, b):
    """The accepted bound for solutions; a sharper one in addition where n eps is loose."""
    assert np.asarray(x).shape == np.asarray(b).shape
    if np.asarray(x).size == 0:
        return
    found = solve_residual(a, x, b)
    assert found <= LIMIT, f"residual {found}"
    n = np.asarray(a).shape[0]
    if n >= 1024:
        dtype = np.asarray(x).dtype
        a, x, b = (np.asarray(v).astype(wide(dtype)) for v in (a, x, b))
        norm = lambda v: np.linalg.norm(v, np.inf)  # noqa: E731
        backward = ratio(norm(b - a @ x), norm(a) * norm(x) + norm(b))
        assert backward <= 2 * np.sqrt(n) * eps(dtype), f"backward error {backward}"


def relative(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if expected.size == 0:
        return 0.0
    return float(ratio(np.max(np.abs(found - expected)), np.max(np.abs(expected))))


def orthogonality(q):
    """norm1(I - Q^H Q) / (m eps)."""
    dtype = np.asarray(q).dtype
    q = np.asarray(q).astype(wide(dtype))
    return ratio(norm1(np.eye(q.shape[1]) - q.conj().T @ q), max(q.shape[0], 1) * eps(dtype))


def eigen_residual(a, w, v):
    """norm1(A V - V diag(w)) / (n eps norm1(A)), of a matrix scaled to about 1."""
    dtype = np.asarray(v).dtype
    scale = np.max(np.abs(a), initial=0) or 1.0
    a, w = (np.asarray(x).astype(wide(dtype)) / scale for x in (a, w))
    v = np.asarray(v).astype(wide(dtype))
    return ratio(norm1(a @ v - v * w), a.shape[0] * eps(dtype) * norm1(a))


def product_residual(a, *factors):
    """norm1(A - the product of the factors) / (max(m, n) eps norm1(A)), A scaled to about 1.

    The last factor but one, or the last of two, carries the scale of A.
    """
    dtype = np.asarray(factors[0]).dtype
    scale = np.max(np.abs(a), initial=0) or 1.0
    parts = [np.asarray(x).astype(wide(dtype)) for x in factors]
    parts[1] = parts[1] / scale
    product = parts[0]
    for part in parts[1:]:
        product = product * part if part.ndim == 1 else product @ part
    a = np.asarray(a).astype(wide(dtype)) / scale
    return ratio(norm1(a - product), max(a.shape) * eps(dtype) * norm1(a))
