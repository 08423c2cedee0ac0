"""Block-cyclic storage there and back, and its padding."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import DTYPES, general
from meshes import AUTO, EXPLICIT, grid, line, need, put
from reference_layout import cyclic_rows


@pytest.mark.parametrize(
    ("n", "tile", "ranks"),
    [(16, 1, 8), (16, 2, 8), (32, 3, 8), (30, 3, 4), (7, 1, 8), (16, 5, 8), (12, 2, 3), (9, 4, 2)],
)
def test_rows_are_where_they_belong(n, tile, ranks):
    mesh = line(ranks)
    a = general(n, n)
    moved = jaxmg.cyclic_1d(a, tile, mesh, P("x", None))
    rows = -(-n // ranks)
    expected = cyclic_rows(n, min(tile, rows), ranks)
    capacity = rows + jaxmg.calculate_padding(rows, min(tile, rows))
    assert moved.shape == (ranks * capacity, n)
    for rank, owned in enumerate(expected):
        block = np.asarray(moved)[rank * capacity :][: len(owned)]
        assert (block == a[owned]).all()
    jaxmg.verify_cyclic(a, moved, tile, ranks)
    assert (np.asarray(jaxmg.uncyclic_1d(moved, tile, mesh)) == a).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_and_rectangles(dtype, mesh):
    a = general(24, 5, dtype)
    moved = jaxmg.cyclic_1d(put(a, mesh, "x"), 2)
    jaxmg.verify_cyclic(a, moved, 2)
    assert (np.asarray(jaxmg.uncyclic_1d(moved, 2, n=24)) == a).all()


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_grids_and_jit(kind):
    mesh = grid(4, 2, kind=kind)
    a = general(32, 32)
    placed = put(a, mesh, "x", None)
    moved = jax.jit(lambda a: jaxmg.cyclic_1d(a, 3))(placed)
    jaxmg.verify_cyclic(a, moved, 3, 8)
    assert (np.asarray(jax.jit(lambda a: jaxmg.uncyclic_1d(a, 3))(moved)) == a).all()
    assert (np.asarray(placed) == a).all()


def test_padded_input(mesh):
    need(8)
    a = general(32, 32)
    padded = np.zeros((48, 32))
    for rank in range(8):
        padded[6 * rank : 6 * rank + 4] = a[4 * rank : 4 * rank + 4]
    moved = jaxmg.cyclic_1d(put(padded, mesh, "x"), 3, mesh, P("x", None), pad=False)
    jaxmg.verify_cyclic(a, moved, 3, 8)


def test_donation(mesh):
    a = general(32, 32)
    placed = put(a, mesh, "x")
    moved = jaxmg.cyclic_1d(placed, 2, donate=True)
    assert placed.is_deleted()
    jaxmg.verify_cyclic(a, moved, 2)


def test_one_device_of_a_mesh(mesh):
    """JAX compiles this for one device."""
    need(8)
    placed = put(general(32, 32), mesh, "x")
    moved = jax.jit(lambda s: jaxmg.cyclic_1d(placed * s, 3))(2.0)
    jaxmg.verify_cyclic(2 * general(32, 32), moved, 3, 8)
    back = jax.jit(lambda s: jaxmg.uncyclic_1d(jaxmg.cyclic_1d(placed * s, 3), 3))(2.0)
    assert (np.asarray(back) == 2 * general(32, 32)).all()


def test_verification_finds_misplaced_rows(mesh):
    a = general(16, 16)
    moved = np.asarray(jaxmg.cyclic_1d(a, 1, mesh)).copy()
    moved[[2, 5]] = moved[[5, 2]]
    with pytest.raises(AssertionError, match="rows"):
        jaxmg.verify_cyclic(a, moved, 1, 8)
    with pytest.raises(AssertionError, match="shape"):
        jaxmg.verify_cyclic(a, moved[:8], 1, 8)


def test_padding():
    for shard in range(1, 12):
        for tile in range(1, 12):
            padding = jaxmg.calculate_padding(shard, tile)
            assert 0 <= padding < tile
            assert (shard + padding) % tile == 0
    a = general(4, 3)
    padded = jaxmg.pad_rows(a, 2)
    assert padded.shape == (6, 3)
    assert (np.asarray(jaxmg.unpad_rows(padded, 2)) == a).all()
    assert (np.asarray(jaxmg.unpad_rows(a, 0)) == a).all()


def test_list_of_places():
    places = jaxmg.get_cols_cyclic(16, 6, 3, 4)
    assert [p[0] for p in places] == list(range(16))
    assert places[4] == (4, 6, 7)
    owned = cyclic_rows(16, 3, 4)
    for g, _, place in places:
        assert owned[place // 6][place % 6] == g


@pytest.mark.parametrize("tile", [0, None, -1])
def test_tiles_that_are_refused(tile, mesh):
    with pytest.raises(ValueError, match="T_A"):
        jaxmg.cyclic_1d(np.eye(8), tile, mesh)


def test_shape_that_is_refused(mesh):
    need(8)
    with pytest.raises(ValueError, match=r"\(48, 32\)"):
        jaxmg.uncyclic_1d(np.zeros((40, 32)), 3, mesh)


def test_picture():
    plt = pytest.importorskip("matplotlib")
    plt.use("Agg")
    figure, axes = jaxmg.plot_block_to_cyclic(32, 3, 4)
    assert len(axes) == 2
    figure.clear()
