"""Sizes at which 32-bit arithmetic, block edges and vendor limits show."""

import numpy as np
import pytest

import jaxmg
from matrices import general, hermitian, spd
from meshes import line, put
from residuals import assert_solved

EDGES = [1 << 28, (1 << 28) - 1, 442_368, 65_536, 65_535, 46_341, 46_340, 37_000, 33_000, 32_767]


@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_plans_count_in_exact_integers(n, ranks):
    for dtype, lower in (("float32", None), ("complex128", True)):
        plan = jaxmg.plan("potrs", n, dtype, mesh=ranks, lower=lower, nrhs=7)
        size = np.dtype(dtype).itemsize
        assert plan.bytes_by_purpose["matrix"] == -(-n // ranks) * n * size
        assert all(0 <= value < 1 << 63 for value in plan.bytes_by_purpose.values())
        assert plan.bytes_needed == sum(plan.bytes_by_purpose.values())
        assert plan.flops > 0
        assert plan.fits == (plan.bytes_needed <= plan.bytes_available)


def test_bytes_grow_with_the_size():
    sizes = [*range(70), *sorted(EDGES)]
    for ranks in (1, 7):
        matrix = [jaxmg.plan("potrs", n, "float64", mesh=ranks).bytes_needed for n in sizes]
        assert matrix == sorted(matrix)


@pytest.mark.parametrize(
    "value", [-1, (1 << 28) + 1, 1 << 31, 1 << 64, 1 << 70, 2.5, "x", True, None]
)
@pytest.mark.parametrize("name", ["n", "nrhs"])
def test_sizes_that_no_plan_can_have(name, value):
    arguments = {"n": 4, "nrhs": 1, name: value}
    n = arguments.pop("n")
    with pytest.raises(ValueError, match=f"^{name}: got .*accepted are integers"):
        jaxmg.plan("potrs", n, "float64", **arguments)


@pytest.mark.parametrize("count", [0, -3, 1 << 40])
def test_numbers_of_devices_that_no_plan_can_have(count):
    with pytest.raises(ValueError, match="^mesh: got"):
        jaxmg.plan("potrs", 4, "float64", mesh=count)


@pytest.mark.parametrize("dtype", ["float16", "int32", "float17", None, object])
def test_types_that_no_plan_can_have(dtype):
    with pytest.raises(TypeError, match="^dtype: got .*float32, float64, complex64, complex128"):
        jaxmg.plan("potrs", 4, dtype)


@pytest.mark.parametrize("tile", [17, 1 << 31, 1 << 62, 1 << 70, np.int64(3)])
def test_tiles_larger_than_anything(tile, mesh):
    a, b = spd(16), general(16, 2)
    assert_solved(a, jaxmg.potrs(a, b, tile, mesh), b)
    assert_solved(a, jaxmg.linalg.cho_factor(a, mesh=mesh, T_A=tile).solve(b), b)
    assert jaxmg.plan("potrs", 16, "float64", mesh=mesh, T_A=tile).tile <= 16
    assert jaxmg.cyclic_1d(a, tile, mesh).shape[1] == 16


@pytest.mark.parametrize("tile", [0, -3, 2.5, float("inf"), "big", True])
def test_tiles_that_are_none(tile):
    for function in (
        lambda: jaxmg.potrs(np.eye(4), np.ones(4), tile),
        lambda: jaxmg.linalg.cho_factor(np.eye(4), T_A=tile),
        lambda: jaxmg.cyclic_1d(np.eye(4), tile),
        lambda: jaxmg.plan("potrs", 4, "float64", T_A=tile),
    ):
        with pytest.raises(ValueError, match="^T_A: got"):
            function()


@pytest.mark.parametrize("n", [1088, 2112])
def test_complex_matrices_of_more_panels_than_one(n):
    """Faults of block edges show only at such sizes; the matrix itself must be Hermitian."""
    a, b = spd(n, "complex128"), general(n, 1, "complex128")
    assert (hermitian(n, "complex128") == hermitian(n, "complex128").conj().T).all()
    assert (a == a.conj().T).all()
    mesh = line(4)
    x, status = jaxmg.potrs(put(a, mesh, "x", None), b, return_status=True)
    assert int(status) == 0
    assert_solved(a, x, b)


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("tile", [1, 4, 7])
def test_last_tiles_that_are_partial(tile, ranks):
    """One, a tile less one, a tile, a tile and one; and the same on every device."""
    mesh = line(ranks)
    for n in sorted(
        {1, max(1, tile - 1), tile, tile + 1, ranks * tile - 1, ranks * tile + 1} - {0}
    ):
        a, b = spd(n), general(n, 2)
        assert_solved(a, jaxmg.potrs(a, b, tile, mesh), b)
