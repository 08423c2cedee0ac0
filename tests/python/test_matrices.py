"""The generator of test matrices has the properties that other tests rely on."""

import numpy as np
import pytest

from matrices import (
    DTYPES,
    HARD,
    badly_scaled,
    eps,
    from_spectrum,
    general,
    hermitian,
    spd,
    uniform,
    wide,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_hermitian_matrices_are_hermitian(n, dtype):
    for a in (hermitian(n, dtype), spd(n, dtype), badly_scaled(n, dtype)):
        assert a.dtype == dtype
        assert (a == a.conj().T).all()
        assert (a.diagonal().imag == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 17, 63, 64, 100, 200])
def test_shifted_matrices_are_positive_definite(n, dtype):
    for seed in range(3):
        w = np.linalg.eigvalsh(spd(n, dtype, seed).astype(wide(dtype)))
        assert w[0] > 0
        # Not by far: the shift is close to the spectral radius.
        assert w[0] < 0.5 * w[-1] or n < 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(HARD))
def test_hard_matrices_are_positive_definite(name, dtype):
    a = HARD[name](60, dtype).astype(wide(dtype))
    d = 1 / np.sqrt(a.diagonal().real)  # scaling does not change definiteness
    assert np.linalg.eigvalsh(d[:, None] * a * d[None, :])[0] > 0


def test_elements_depend_on_their_indices_alone():
    whole = uniform(*np.meshgrid(np.arange(50), np.arange(40), indexing="ij"), 3)
    part = uniform(*np.meshgrid(np.arange(20, 30), np.arange(5, 9), indexing="ij"), 3)
    assert (whole[20:30, 5:9] == part).all()


def test_elements_are_uniform_and_uncorrelated():
    a = general(300, 300)
    assert abs(a.mean()) < 0.01
    assert abs(a.var() - 1 / 12) < 0.01
    assert -0.5 <= a.min() < -0.49
    assert 0.49 < a.max() < 0.5
    assert abs(np.mean(a[:-1] * a[1:])) < 0.005
    assert abs(np.mean(a[:, :-1] * a[:, 1:])) < 0.005
    assert abs(np.mean(general(300, 300, seed=1) * a)) < 0.005


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectrum_is_the_one_asked_for(dtype):
    w = np.linspace(0.1, 3, 30)
    found = np.linalg.eigvalsh(from_spectrum(w, dtype).astype(wide(dtype)))
    assert np.max(np.abs(found - w)) < 100 * eps(dtype)
