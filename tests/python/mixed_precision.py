"""What solvers with precision="mixed" have in common: a 32-bit factor, 64-bit answers."""

import numpy as np
import pytest

from matrices import general
from meshes import line, put
from residuals import assert_solved, solve_residual

DTYPES = ["float64", "complex128"]
DEVICES_AND_SIZES = [(1, 1), (1, 65), (2, 64), (3, 65), (8, 7), (8, 65)]
SPECS = [("x",), ("x", None), (None, "x")]


def mixed(solve, a, b, **options):
    """The solution, and [status, iterations, path]."""
    x, info = solve(a, b, precision="mixed", return_info=True, **options)
    return x, [int(v) for v in info]


def assert_solved_as_natively(a, x, native, b):
    assert_solved(a, x, b)
    assert solve_residual(a, x, b) <= 4 * solve_residual(a, native, b) + 1


def assert_failure_is_reported(solve, a, mesh, index, error):
    """The status of 64 bits, NaN and the exception for a matrix whose factor stops at `index`."""
    a, b = put(a, mesh, "x", None), np.ones(len(a))
    x, status, info = solve(a, b, precision="mixed", return_status=True, return_info=True)
    assert int(status) == index == int(info.status)
    assert (int(info.iterations), int(info.path)) == (-3, 0)
    assert np.isnan(x).all()
    with pytest.raises(error) as caught:
        solve(a, b, precision="mixed", check=True)
    assert caught.value.index == index


def assert_not_finite_is_reported(solve, a, mesh, place):
    """For a NaN at `place` of a, and for an infinite right-hand side."""
    n = len(a)
    bad = a.copy()
    bad[place] = np.nan
    x, (status, _, _) = mixed(solve, put(bad, mesh, "x", None), np.ones(n))
    assert status == -1 and np.isnan(x).all()
    b = np.ones((n, 2))
    b[3, 0] = np.inf
    x, (status, _, _) = mixed(solve, put(a, mesh, "x", None), b)
    native = solve(put(a, mesh, "x", None), b)
    assert status == 0
    assert np.array_equal(np.isfinite(x), np.isfinite(native))


def assert_shardings_are_kept(solve, a, kind, spec, paths):
    """Columns and one vector on the right, wherever a lies; `paths`: those that may be taken."""
    b = general(len(a), 2, seed=1)
    mesh = line(4, kind=kind)
    placed = put(a, mesh, *spec)
    for right in (put(b, mesh, "x", None), put(b[:, 0], mesh)):
        x, (status, _, path) = mixed(solve, placed, right)
        assert status == 0 and path in paths
        assert_solved(a, x, np.asarray(right))
        assert x.sharding.is_equivalent_to(right.sharding, right.ndim)
