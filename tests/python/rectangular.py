"""Rectangular matrices that are hard to factor, and how good an orthogonal factorisation is."""

import numpy as np

from matrices import eps, general, is_complex, wide
from residuals import LIMIT, norm1, ratio


def conditioned(m, n, condition, dtype=np.float64, seed=0):
    """Singular values from 1 down to 1 / condition."""
    k = min(m, n)
    u, _ = np.linalg.qr(general(m, k, wide(dtype), seed))
    v, _ = np.linalg.qr(general(n, k, wide(dtype), seed + 1))
    return ((u * np.logspace(0, -np.log10(condition), k)) @ v.conj().T).astype(dtype)


def _repeated(m, n, dtype):
    return general(m, n, dtype)[:, np.arange(n) // 2]


def _zero_columns(m, n, dtype):
    a = general(m, n, dtype)
    a[:, 1::3] = 0
    return a


def _low_rank(m, n, dtype):
    r = max(1, min(m, n) // 2)
    return (general(m, r, wide(dtype)) @ general(r, n, wide(dtype), 3)).astype(dtype)


def _factor(dtype):
    return 1e15 if np.finfo(dtype).bits == 32 else 1e150


HARD = {
    "random": lambda m, n, d: general(m, n, d),
    "graded columns": lambda m, n, d: (general(m, n, d) * np.logspace(0, -12, n)).astype(d),
    "graded rows": lambda m, n, d: (general(m, n, d) * np.logspace(0, -12, m)[:, None]).astype(d),
    "condition 1e12": lambda m, n, d: conditioned(m, n, 1e12, d),
    "condition 1e14": lambda m, n, d: conditioned(m, n, 1e14, d),
    "rank deficient": _low_rank,
    "zero columns": _zero_columns,
    "repeated columns": _repeated,
    "zero": lambda m, n, d: np.zeros((m, n), d),
    "ones": lambda m, n, d: np.ones((m, n), d),
    "large": lambda m, n, d: (general(m, n, d) * np.dtype(d).type(_factor(d))).astype(d),
    "small": lambda m, n, d: (general(m, n, d) / np.dtype(d).type(_factor(d))).astype(d),
}


def assert_orthonormal(q):
    """||I - Q^H Q||_1 <= 25 m eps."""
    q = np.asarray(q)
    w = q.astype(wide(q.dtype))
    gram = w.conj().T @ w - np.eye(q.shape[1])
    found = ratio(norm1(gram), max(q.shape[0], 1) * eps(q.dtype))
    assert found <= LIMIT, f"orthogonality {found}"


def assert_qr(a, q, r):
    """The accepted bounds of a QR factorisation, and the form of its factors."""
    q, r = np.asarray(q), np.asarray(r)
    assert q.shape[1] == r.shape[0]
    assert (np.tril(r, -1) == 0).all()
    if is_complex(r.dtype):
        assert (np.diagonal(r).imag == 0).all()
    assert_orthonormal(q)
    w, x, y = (np.asarray(v).astype(wide(q.dtype)) for v in (a, q, r))
    found = ratio(norm1(w - x @ y), max(w.shape[0], 1) * eps(q.dtype) * norm1(w))
    assert found <= LIMIT, f"residual {found}"


def assert_least_squares(a, x, b):
    """||A^H r||_1 <= 25 m eps ||A||_1 (||A||_1 ||x||_1 + ||b||_1) for r = b - A x."""
    x = np.asarray(x)
    assert np.isfinite(x).all()
    w, y, z = (np.asarray(v).astype(wide(x.dtype)) for v in (a, x, b))
    scale = max(norm1(w), np.finfo(w.dtype).tiny)
    w, y = w / scale, y * scale
    error = norm1(w.conj().T @ (z - w @ y))
    m = max(w.shape)
    found = ratio(error, m * eps(x.dtype) * norm1(w) * (norm1(w) * norm1(y) + norm1(z)))
    assert found <= LIMIT, f"residual {found}"
