"""Inverses of general matrices: from the LU factor, in its place."""

import jax
import numpy as np
import pytest

from jaxmg import _native, linalg
from matrices import DTYPES, general
from meshes import AUTO, EXPLICIT, line, put
from residuals import LIMIT, inverse_residual
from test_compile import largest_collective


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_and_devices(dtype):
    for n, devices in ((1, 3), (2, 8), (7, 4), (40, 8), (101, 3), (300, 5)):
        a = general(n, n, dtype)
        x = linalg.inv(a, mesh=line(devices))
        assert x.dtype == a.dtype and x.shape == a.shape
        assert inverse_residual(a, x) <= LIMIT


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_rows_stay_and_one_factorisation_serves(kind):
    a = put(general(64, 64), line(8, kind=kind), "x", None)
    _native.reset_counters()
    for x in (linalg.inv(a), jax.jit(linalg.inv)(a)):
        assert inverse_residual(a, x) <= LIMIT
        assert {s.device for s in x.addressable_shards} == set(jax.devices()[:8])
        assert x.addressable_shards[0].data.shape == (8, 64)
    assert [_native.counter(name) for name in ("getrf", "getri", "getrs")] == [2, 2, 0]
    assert np.array_equal(a, general(64, 64))


def test_matrix_is_given_away_with_overwrite_a(mesh):
    a = put(general(32, 32), mesh, "x", None)
    x = linalg.inv(a, overwrite_a=True)
    assert a.is_deleted()
    assert inverse_residual(general(32, 32), x) <= LIMIT


def test_nothing_of_the_size_of_the_matrix_is_gathered():
    """And a donated matrix is all that there is, but for staging."""
    n, mesh = 1024, line(8)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", None))
    a = jax.ShapeDtypeStruct((n, n), np.float64, sharding=rows)
    program = jax.jit(linalg.inv, donate_argnums=0).lower(a).compile()
    assert largest_collective(program) < n * n // 8
    shard = n * n // 8 * 8
    assert program.memory_analysis().temp_size_in_bytes < 1.5 * shard


@pytest.mark.parametrize("devices", [1, 4])
def test_singular_and_non_finite_matrices_give_nan(devices):
    singular, bad = general(20, 20), general(20, 20)
    singular[11] = 0
    bad[2, 3] = np.inf
    for a in (singular, bad):
        assert np.isnan(np.asarray(linalg.inv(a, mesh=line(devices)))).all()


def test_a_factor_is_still_there_after_its_inverse(mesh):
    a = general(24, 24)
    factor = linalg.lu_factor(put(a, mesh, "x", None))
    first, b = factor.inv(), general(24, 2)
    assert inverse_residual(a, first) <= LIMIT
    assert np.array_equal(factor.inv(), first)
    assert np.allclose(factor.solve(b), np.asarray(first) @ b)
