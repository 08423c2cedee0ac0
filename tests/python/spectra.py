"""Matrices with known eigenvalues or singular values, as the hard cases of their problems."""

import numpy as np

from matrices import eps, from_spectrum, general, is_complex, orthonormal, wide


def _given(values):
    def make(n, dtype):
        w = np.sort(np.asarray(values(n, dtype), np.float64))
        return from_spectrum(w, dtype), w

    return make


def _exactly(matrix):
    def make(n, dtype):
        a = matrix(n).astype(dtype)
        return a, np.linalg.eigvalsh(a.astype(wide(dtype)))

    return make


def hilbert(n):
    i = np.arange(n)
    return 1.0 / (i[:, None] + i[None, :] + 1)


def _geometric(n, dtype):
    return np.logspace(0, -15 if eps(dtype) < 1e-10 else -7, n)


def _one_off_diagonal(n):
    a = np.eye(n)
    if n > 1:
        a[n // 2, n // 2 - 1] = a[n // 2 - 1, n // 2] = 1
    return a


SPECTRA = {
    "random": lambda n, dtype: np.random.default_rng(n).standard_normal(n),
    "clustered": lambda n, dtype: 1 + 1e-14 * np.arange(n),
    "pairs": lambda n, dtype: 1 + np.arange(n) // 2,
    "two values": lambda n, dtype: np.where(np.arange(n) < n // 2, -1.0, 2.0),
    "geometric": _geometric,
    "one large": lambda n, dtype: np.where(np.arange(n) == 0, 1.0, eps(dtype)),
    "one small": lambda n, dtype: np.where(np.arange(n) == 0, eps(dtype), 1.0),
    "rank three": lambda n, dtype: np.where(np.arange(n) < 3, 1.0 + np.arange(n), 0.0),
}
MATRICES = {
    "hilbert": hilbert,
    "zero": lambda n: np.zeros((n, n)),
    "identity": np.eye,
    "diagonal": lambda n: np.diag((np.arange(n) * 7 % n) - 3.0),
    "three on the diagonal": lambda n: np.diag(
        np.where(np.arange(n) % 9 == 4, 1.0 + np.arange(n), 0)
    ),
    "one pair": _one_off_diagonal,
    "laplacian": lambda n: 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1),
    "ones": lambda n: np.ones((n, n)),
}
HERMITIAN = {name: _given(values) for name, values in SPECTRA.items()} | {
    name: _exactly(matrix) for name, matrix in MATRICES.items()
}


def _rectangular(values):
    def make(m, n, dtype):
        k = min(m, n)
        s = np.sort(np.abs(np.asarray(values(k, dtype), np.float64)))[::-1]
        left, right = orthonormal(m, dtype, 1)[:, :k], orthonormal(n, dtype, 2)[:, :k]
        return ((left * s) @ right.conj().T).astype(dtype), s

    return make


def _plain(matrix):
    def make(m, n, dtype):
        a = matrix(max(m, n))[:m, :n].astype(dtype)
        return a, np.linalg.svd(a.astype(wide(dtype)), compute_uv=False)

    return make


GENERAL = {name: _rectangular(values) for name, values in SPECTRA.items()} | {
    name: _plain(matrix)
    for name, matrix in (MATRICES | {"shift": lambda n: np.eye(n, k=1)}).items()
}


def dense(m, n, dtype):
    a = general(m, n, dtype)
    return a, np.linalg.svd(a.astype(wide(dtype)), compute_uv=False)


GENERAL["dense"] = dense


def scale_limits(dtype):
    single = np.dtype(dtype).name in ("float32", "complex64")
    assert is_complex(dtype) or np.dtype(dtype).kind == "f"
    return (1e30, 1e-30) if single else (1e150, 1e-150)


def extremely_scaled(a):
    """`a` times the factors that its type allows."""
    return [(a * factor).astype(a.dtype) for factor in scale_limits(a.dtype)]


# Devices, shape and dtype of small matrices that decompositions cut unevenly.
RAGGED = [
    (8, (1, 1), "float64"),
    (7, (2, 2), "complex64"),
    (5, (3, 3), "float32"),
    (2, (5, 5), "complex128"),
    (3, (8, 8), "float64"),
    (6, (9, 9), "float32"),
    (1, (6, 4), "complex64"),
    (4, (11, 4), "complex128"),
    (8, (4, 7), "float64"),
    (4, (9, 1), "float32"),
    (8, (1, 3), "complex128"),
    (3, (0, 0), "float64"),
    (3, (0, 3), "float64"),
    (3, (3, 0), "float64"),
]
