"""Block-cyclic storage of the rows of a matrix, for libraries that want it.

The solvers of this package do not: they number the rows in a block-cyclic way and move nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding

from ._arguments import (
    cast,
    check_tile,
    common_dtype,
    giving_away,
    host_or_device,
    place_matrix,
)
from ._context import calling_on
from ._layout import AnyMesh, Layout, Resolved
from ._operands import constrain_rows, on_mesh, pad_rows, reshard
from ._preparation import Specs, without_local_padding
from ._primitives import cyclic_order, cyclic_p
from ._resolve import check_mesh, check_specs, is_concrete, resolve
from .padding import calculate_padding


def _cyclic(r: Resolved, local_rows: int, a: Array) -> Array:
    a = on_mesh(r.layout, a)
    if local_rows:
        a = without_local_padding(r.layout, a, local_rows)
    a = reshard(
        r.layout, pad_rows(a, -(-r.n // r.layout.ranks) * r.layout.ranks), r.layout.rows_spec
    )
    return constrain_rows(r.layout, cyclic_p.bind(a, r=r, inverse=False)[0])


def _uncyclic(r: Resolved, local_rows: int, a: Array) -> Array:
    a = reshard(r.layout, on_mesh(r.layout, a), r.layout.rows_spec)
    return constrain_rows(r.layout, cyclic_p.bind(a, r=r, inverse=True)[0])[: r.n]


_JITS = {
    (inverse, donate): jax.jit(
        _uncyclic if inverse else _cyclic,
        static_argnums=(0, 1),
        donate_argnums=(2,) if donate else (),
    )
    for inverse in (False, True)
    for donate in (False, True)
}


def _move(
    r: Resolved, local_rows: int, a: Any, *, inverse: bool, donate: bool, given: Any
) -> Array:
    donate = donate and is_concrete(a)
    with giving_away(*([a, given] if donate else [])), calling_on(r.layout):
        out: Array = _JITS[inverse, donate](r, local_rows, a)
    return out


def _check(routine: str, a: Any) -> Any:
    a = host_or_device(a, "a")
    if a.ndim != 2:
        raise ValueError(f"{routine}: a has shape {tuple(a.shape)}; accepted is (rows, columns).")
    return cast(a, common_dtype(routine, a=a))


def _resolved(layout: Layout, n: int, dtype: Any, T_A: int) -> Resolved:
    rows = -(-n // layout.ranks)
    tile = min(T_A, max(rows, 1))  # one tile per device: nothing moves
    capacity = rows + calculate_padding(rows, tile)
    return Resolved(layout, n, str(np.dtype(dtype)), tile, capacity, capacity, 0, exposed=True)


def _tile(T_A: Any) -> int:
    tile = check_tile(T_A)
    if tile == 0:
        raise ValueError("T_A: got None; accepted are integers >= 1.")
    return tile


def cyclic_1d(
    a: Any,
    T_A: int,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    pad: bool = True,
    *,
    donate: bool = False,
) -> Array:
    """Moves the rows of a matrix to block-cyclic storage.

    Tile t, rows [t T_A, (t + 1) T_A), goes to device t mod G, where it follows the tiles that are
    there already. Each device has room for whole tiles: rows that belong to no tile are at the
    end of each shard, and their content is undefined. With `T_A` of a shard or more there is one
    tile on each device and nothing moves.

    Args:
        a: the matrix, shape (rows, columns), its rows split over the mesh.
        T_A: rows of a tile.
        mesh: the mesh; None finds it from `a` or the context.
        in_specs: the spec of `a`, or a tuple of it.
        pad: False says that each shard has ``calculate_padding(rows, T_A)`` rows of padding
            already; the matrix must be square then.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.

    Returns:
        An array of shape (G (rows / G + padding), columns) whose rows are split over the mesh.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    tile = _tile(T_A)
    given, a = a, _check("cyclic_1d", a)
    n = a.shape[0] if pad else a.shape[1]
    layout = resolve(a, n=n, mesh=check_mesh(mesh), spec=check_specs(in_specs)[0])
    r = _resolved(layout, n, a.dtype, tile)
    local_rows = 0
    if not pad and a.shape[0] != n:
        local_rows = n // layout.ranks
        if n % layout.ranks or a.shape[0] != r.padded_rows:
            raise ValueError(
                f"cyclic_1d: with pad=False a has shape {tuple(a.shape)}; accepted is "
                f"({r.padded_rows}, {n}) for T_A={T_A} on {layout.ranks} devices."
            )
    else:
        a = place_matrix(a, layout, n)
    if n == 0 or a.shape[1] == 0:
        return jnp.zeros((r.padded_rows, a.shape[1]), a.dtype)
    return _move(r, local_rows, a, inverse=False, donate=donate, given=given)


def uncyclic_1d(
    a: Any,
    T_A: int,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    pad: bool = True,
    *,
    n: int | None = None,
    donate: bool = False,
) -> Array:
    """The inverse of :func:`cyclic_1d`.

    Args:
        a: a matrix in block-cyclic storage, as ``cyclic_1d`` returns it.
        T_A: rows of a tile.
        mesh: the mesh; None finds it from `a` or the context.
        in_specs: the spec of `a`, or a tuple of it.
        pad: accepted for symmetry with ``cyclic_1d``; padding is always removed.
        n: number of rows of the matrix; None means that it is square.
        donate: eagerly, whether `a` may be overwritten; it is deleted then.

    Returns:
        The matrix, shape (n, columns).

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    del pad
    tile = _tile(T_A)
    given, a = a, _check("uncyclic_1d", a)
    n = a.shape[1] if n is None else int(n)
    layout = resolve(a, n=n, mesh=check_mesh(mesh), spec=check_specs(in_specs)[0])
    r = _resolved(layout, n, a.dtype, tile)
    if a.shape[0] != r.padded_rows:
        raise ValueError(
            f"uncyclic_1d: a has shape {tuple(a.shape)}; accepted is ({r.padded_rows}, "
            f"{a.shape[1]}) for n={n}, T_A={T_A} on {layout.ranks} devices."
        )
    if n == 0 or a.shape[1] == 0:
        return jnp.zeros((n, a.shape[1]), a.dtype)
    a = place_matrix(a, layout, a.shape[0])
    return _move(r, 0, a, inverse=True, donate=donate, given=given)


def get_cols_cyclic(N: int, N_batch: int, T_A: int, num_devices: int) -> list[tuple[int, int, int]]:
    """Where each row goes: (row, its place in padded contiguous storage, in cyclic storage).

    Args:
        N: number of rows.
        N_batch: rows of a padded shard.
        T_A: rows of a tile.
        num_devices: number of devices.
    """
    shard = N // num_devices
    order = cyclic_order(N, num_devices, T_A, N_batch)
    place = np.zeros(N, np.int64)
    place[order[order < N]] = np.flatnonzero(order < N)
    return [(g, g + (N_batch - shard) * (g // shard), int(place[g])) for g in range(N)]


def verify_cyclic(A: Any, A_cyclic: Any, T_A: int, ndev: int | None = None) -> None:
    """Checks that `A_cyclic` holds the rows of `A` in block-cyclic storage.

    Args:
        A: the matrix.
        A_cyclic: what ``cyclic_1d(A, T_A, ...)`` returned.
        T_A: rows of a tile.
        ndev: number of devices; None takes it from the sharding of `A_cyclic`.

    Raises:
        AssertionError: a row is not where it belongs.
    """
    if ndev is None:
        sharding = getattr(A_cyclic, "sharding", None)
        named = isinstance(sharding, NamedSharding)
        ndev = sharding.mesh.size if named else jax.device_count()  # type: ignore[union-attr]
    n = A.shape[0]
    r = _resolved(Layout(), n, A.dtype, _tile(T_A))
    rows = -(-n // ndev)
    tile = min(T_A, max(rows, 1))
    order = cyclic_order(n, ndev, tile, rows + calculate_padding(rows, tile))
    del r
    if A_cyclic.shape != (order.size, A.shape[1]):
        raise AssertionError(
            f"A_cyclic has shape {tuple(A_cyclic.shape)}, expected {(order.size, A.shape[1])}."
        )
    found, expected = np.asarray(A_cyclic)[order < n], np.asarray(A)[order[order < n]]
    if not np.allclose(found, expected, equal_nan=True):
        wrong = order[order < n][~np.isclose(found, expected, equal_nan=True).all(axis=1)]
        raise AssertionError(f"rows {wrong[:10].tolist()} are not where they belong.")


def plot_block_to_cyclic(N: int, T_A: int, ndev: int, N_rows: int = 8) -> tuple[Any, Any]:
    """Draws which device holds which row before and after ``cyclic_1d``. Needs matplotlib.

    Args:
        N: number of rows of the matrix.
        T_A: rows of a tile.
        ndev: number of devices.
        N_rows: height of the picture in cells.

    Returns:
        The figure and its two axes: contiguous storage, then block-cyclic storage. Grey is
        padding.
    """
    if min(N // max(ndev, 1), T_A, ndev) < 1:
        raise ValueError(
            f"got N={N}, T_A={T_A}, ndev={ndev}; accepted are N >= ndev >= 1, T_A >= 1."
        )
    import matplotlib.pyplot as plt

    shard = N // ndev
    tile = min(T_A, shard)
    rows = shard + calculate_padding(shard, tile)
    index = np.arange(ndev * rows)
    before = np.where(index % rows < shard, index // rows, np.nan)
    order = cyclic_order(ndev * shard, ndev, tile, rows)
    source = np.where(order < ndev * shard, order // shard, np.nan)
    figure, axes = plt.subplots(2, 1, figsize=(8, 5), constrained_layout=True)
    axes[0].set_facecolor("0.85")
    axes[1].set_facecolor("0.85")
    colours = plt.get_cmap("tab20")
    titles = ("contiguous storage", f"block-cyclic storage, tiles of {tile} rows")
    for axis, owner, title in zip(axes, (before, source), titles, strict=True):
        picture = np.broadcast_to(owner, (N_rows, owner.size))
        axis.imshow(picture, aspect="auto", cmap=colours, vmin=0, vmax=max(19, ndev - 1))
        for device in range(1, ndev):
            axis.axvline(device * rows - 0.5, color="k", linestyle="--", linewidth=1)
        axis.set_xticks((np.arange(ndev) + 0.5) * rows - 0.5, [f"device {d}" for d in range(ndev)])
        axis.set_yticks([])
        axis.set_title(title)
    figure.suptitle(f"{N} rows on {ndev} devices; colour: device that holds them at first")
    return figure, axes
