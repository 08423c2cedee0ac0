"""P, L and U of a matrix itself, as SciPy gives them."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxmg import linalg
from matrices import DTYPES, eps, general
from meshes import AUTO, EXPLICIT, line, put
from residuals import LIMIT, norm1, ratio, relative
from test_compile import largest_collective

SHAPES = [(0, 0), (1, 1), (13, 13), (24, 24), (24, 8), (3, 9), (0, 2), (2, 0)]


def check(a, factors):
    """P L U = A, triangles, multipliers of at most 1 in the measure that pivots are chosen by."""
    p, lower, upper = map(np.asarray, factors)
    m, n = a.shape
    assert (p.shape, lower.shape, upper.shape) == ((m, m), (m, min(m, n)), (min(m, n), n))
    error = norm1(p @ lower @ upper - a)
    assert ratio(error, max(m, n, 1) * eps(a.dtype) * norm1(a)) <= LIMIT
    assert np.array_equal(lower, np.tril(lower, -1) + np.eye(*lower.shape))
    assert np.array_equal(upper, np.triu(upper))
    assert np.array_equal(np.sort(p @ np.arange(m)), np.arange(m))
    assert np.max(np.abs(lower), initial=0) <= np.sqrt(2) + 1e-6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_scipy(shape, mesh):
    a = general(*shape)
    found = linalg.lu(a, mesh=mesh)
    check(a, found)
    if 0 not in shape:
        expected = scipy.linalg.lu(a)
        assert max(map(relative, found, expected)) < 1e-11
        order, lower, upper = linalg.lu(a, p_indices=True, mesh=mesh)
        assert np.array_equal(order, scipy.linalg.lu(a, p_indices=True)[0])
        assert relative(np.asarray(lower)[np.asarray(order)] @ np.asarray(upper), a) < 1e-11
        left, upper = linalg.lu(a, permute_l=True, mesh=mesh)
        assert relative(left, expected[0] @ expected[1]) < 1e-11


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_types(dtype, ranks):
    a = general(20, 20, dtype)
    found = linalg.lu(a, mesh=line(ranks))
    check(a, found)
    assert found[0].dtype == np.finfo(dtype).dtype
    assert found[1].dtype == found[2].dtype == dtype


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_rows_stay_and_nothing_is_gathered(kind):
    mesh = line(8, kind=kind)
    a = general(16, 16)
    for permute in (False, True):
        factors = linalg.lu(put(a, mesh, "x", None), permute)
        for x in factors[-2:]:
            assert x.addressable_shards[0].data.shape == (2, 16)
        whole = jax.ShapeDtypeStruct((512, 512), np.float64, sharding=NamedSharding(mesh, P("x")))
        program = jax.jit(lambda a, permute=permute: linalg.lu(a, permute)[-2:])
        # Rows become columns in an exchange: no device sends or gets more than its share.
        assert largest_collective(program.lower(whole).compile()) <= 512 * 512 // 8


def test_singular_and_not_finite(mesh):
    a = general(12, 12)
    a[:, 5] = a[:, 3]
    a[:, 8] = 0
    check(a, linalg.lu(a, mesh=mesh))
    check(np.zeros((9, 9)), linalg.lu(np.zeros((9, 9)), mesh=mesh))
    a[4, 4] = np.nan
    assert np.isnan(np.asarray(linalg.lu(a, mesh=mesh)[2])[0]).all()


def test_batches(mesh):
    a = np.stack([general(8, 8, seed=k) for k in range(3)])
    found = linalg.lu(a, mesh=mesh)
    assert max(map(relative, found, scipy.linalg.lu(a))) < 1e-11
    with pytest.raises(ValueError, match="a has shape"):
        linalg.lu(np.ones(3))


@pytest.mark.parametrize("shape", [(8, 8), (4, 7), (7, 4)], ids=str)
def test_derivatives(shape, mesh):
    a, change = general(*shape), general(*shape, seed=4)

    def value(function):
        return lambda a: sum(jnp.sum(jnp.sin(x)) for x in function(a)[1:])

    mine, theirs = value(lambda a: linalg.lu(a, mesh=mesh)), value(jax.scipy.linalg.lu)
    for found, expected in (
        (jax.jvp(mine, (a,), (change,))[1], jax.jvp(theirs, (a,), (change,))[1]),
        (jax.grad(mine)(a), jax.grad(theirs)(a)),
    ):
        assert relative(found, expected) < 1e-11
