"""Matrices with known properties. Every element is a function of its indices and the seed alone,
so that a matrix, or any part of it, is the same wherever and in whatever pieces it is made.
"""

import numpy as np

DTYPES = ("float32", "float64", "complex64", "complex128")


def _mix(x):
    """splitmix64: a bijection of 64-bit integers without visible structure."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(rows, columns, seed=0):
    """Numbers in [-0.5, 0.5) that belong to the index pairs."""
    with np.errstate(over="ignore"):
        i, j = np.asarray(rows, np.uint64), np.asarray(columns, np.uint64)
        key = _mix(np.uint64(seed) + np.uint64(1))
        bits = _mix(_mix(i + key) ^ (j * np.uint64(0xD1342543DE82EF95)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5


def is_complex(dtype):
    return np.dtype(dtype).kind == "c"


def wide(dtype):
    """The 64-bit type of the same kind."""
    return np.complex128 if is_complex(dtype) else np.float64


def eps(dtype):
    return float(np.finfo(dtype).eps)


def general(m, n, dtype=np.float64, seed=0):
    """Entries uniform in +-0.5 (both parts, for complex dtypes)."""
    i, j = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
    a = uniform(i, j, 2 * seed)
    if is_complex(dtype):
        a = a + 1j * uniform(i, j, 2 * seed + 1)
    return a.astype(dtype)


def hermitian(n, dtype=np.float64, seed=0):
    """Entries uniform in +-0.5; for complex dtypes divided by sqrt(2), which keeps the norm."""
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    low, high = np.minimum(i, j), np.maximum(i, j)
    a = uniform(high, low, 2 * seed)
    if is_complex(dtype):
        imaginary = uniform(high, low, 2 * seed + 1) * np.sign(i - j)
        a = np.where(i == j, a, (a + 1j * imaginary) / np.sqrt(2))
    return a.astype(dtype)


def spd(n, dtype=np.float64, seed=0):
    """hermitian() shifted by 0.62 sqrt(n), just beyond its spectral radius 0.577 sqrt(n).

    Below n = 64 one more is added, since the radius of a small matrix varies.
    """
    shift = 0.62 * np.sqrt(n) + (1.0 if n < 64 else 0.0)
    return (hermitian(n, wide(dtype), seed) + shift * np.eye(n)).astype(dtype)


def orthonormal(n, dtype=np.float64, seed=0):
    q, _ = np.linalg.qr(general(n, n, wide(dtype), seed))
    return q


def from_spectrum(eigenvalues, dtype=np.float64, seed=0):
    """A Hermitian matrix with these eigenvalues."""
    q = orthonormal(len(eigenvalues), dtype, seed)
    a = (q * np.asarray(eigenvalues)) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def ill_conditioned(n, dtype=np.float64, seed=0):
    """Eigenvalues from 1 down to 100 n eps, evenly spaced in the logarithm."""
    smallest = 100 * n * eps(dtype)
    return from_spectrum(np.logspace(0, np.log10(smallest), n), dtype, seed)


def clustered(n, dtype=np.float64, seed=0):
    """Half of the eigenvalues at 1, half at 1e-3."""
    return from_spectrum(np.where(np.arange(n) < n // 2, 1.0, 1e-3), dtype, seed)


def scaled(a, d):
    return (d[:, None] * a * d[None, :]).astype(a.dtype)


def graded(n, dtype=np.float64, seed=0):
    """D S D with D falling from 1 to 1e-6."""
    return scaled(spd(n, dtype, seed), np.logspace(0, -6, n))


def badly_scaled(n, dtype=np.float64, seed=0):
    """D S D with powers of two between 2^-15 and 2^15 in no order."""
    powers = np.round(30 * uniform(np.arange(n), np.zeros(n), seed + 77))
    return scaled(spd(n, dtype, seed), 2.0**powers)


def uneven(n, dtype=np.float64, seed=0):
    """D S D whose diagonal runs from 2^-9 to 2^11, about as far as half-precision parts go
    unscaled.
    """
    a = spd(n, dtype, seed)
    sizes = np.array([5.45, 0.2, -4.45, 5])[np.arange(n) % 4]
    return scaled(a, 2.0**sizes / np.sqrt(a.diagonal().real))


def kernel(n, dtype=np.float64, jitter=1e-3):
    """Squared-exponential kernel of n points in [0, 1]."""
    x = np.linspace(0, 1, n)
    k = np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * 0.1**2))
    return (k + jitter * np.eye(n)).astype(dtype)


HARD = {
    "ill_conditioned": ill_conditioned,
    "clustered": clustered,
    "graded": graded,
    "badly_scaled": badly_scaled,
    "uneven": uneven,
    "kernel": lambda n, dtype: kernel(n, dtype),
}
