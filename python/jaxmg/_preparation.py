"""The operands of a factorisation: checked, resolved, and put where they belong."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array, lax
from jax.sharding import PartitionSpec

from . import _native
from ._arguments import (
    cast,
    check_matrix,
    check_rhs,
    common_dtype,
    host_or_device,
    place_matrix,
    place_rhs,
    triangle_of,
)
from ._gather import small
from ._layout import AnyMesh, Layout, Resolved, resolve_plan
from ._resolve import resolve, rhs_spec, splits_rows
from ._solve_call import Call
from .padding import calculate_padding

Specs = PartitionSpec | tuple[PartitionSpec, ...] | list[PartitionSpec] | None


def without_local_padding(layout: Layout, a: Array, local_rows: int) -> Array:
    """Drops the rows that pad each shard."""
    take = lambda block: lax.slice_in_dim(block, 0, local_rows)  # noqa: E731
    if layout.kind != "dist":
        return take(a)
    call = jax.shard_map(
        take,
        mesh=layout.mesh,
        in_specs=layout.rows_spec,
        out_specs=layout.rows_spec,
        check_vma=False,
    )
    out: Array = call(a)
    return out


def local_row_count(routine: str, a: Any, n: int, layout: Layout, tile: int) -> int:
    """Rows of a shard without the padding of ``pad=False``, checked."""
    blocks = 1 if layout.kind == "manual" else layout.ranks
    shard = a.shape[0] // blocks
    rows = n // layout.ranks
    even = n % layout.ranks == 0 and shard * blocks == a.shape[0]
    if even and tile and shard == rows + calculate_padding(rows, tile):
        return rows
    raise ValueError(
        f"{routine}: a has shape {tuple(a.shape)} on {layout.ranks} devices; accepted are "
        f"({n}, {n}), with n={n} the padded ({-(-n // layout.ranks) * layout.ranks}, {n}), and "
        "with pad=False shards padded by calculate_padding(rows, T_A) rows each."
    )


def prepare(
    routine: str,
    a: Any,
    b: Any,
    *,
    tile: int,
    mesh: AnyMesh | None,
    specs: tuple[PartitionSpec | None, PartitionSpec | None],
    pad: bool,
    lower: bool | None,
    n: int | None,
    exposed: bool = False,
    precision: int = 0,
    factorisation: str = "potrf",
    backend: str = "native",
) -> tuple[Call, Any, Any]:
    """Checks the operands of a solve and works out the call and where the operands belong."""
    a, b = host_or_device(a, "a"), host_or_device(b, "b")
    check_matrix(routine, a)
    dtype = common_dtype(routine, a=a, b=b)
    a, b = cast(a, dtype), cast(b, dtype)
    r, a, local_rows = prepare_matrix(
        routine,
        a,
        beside=b,
        tile=tile,
        mesh=mesh,
        spec=specs[0],
        pad=pad,
        lower=lower,
        n=n,
        exposed=exposed,
        precision=precision,
        factorisation=factorisation,
        backend=backend,
    )
    check_rhs(routine, b, r.n)
    layout = r.layout
    spec = rhs_spec(b, specs[1], layout)
    split = splits_rows(spec, layout) and (not layout.explicit or r.n % layout.ranks == 0)
    call = Call(r, split=split, spec=None if split else spec, local_rows=local_rows)
    return call, a, place_rhs(b, layout)


def prepare_matrix(
    routine: str,
    a: Any,
    *,
    beside: Any = None,
    tile: int,
    mesh: AnyMesh | None,
    spec: PartitionSpec | None,
    pad: bool,
    lower: bool | None,
    n: int | None,
    exposed: bool = False,
    precision: int = 0,
    factorisation: str = "potrf",
    backend: str = "native",
) -> tuple[Resolved, Any, int]:
    """Checks a matrix and works out its factorisation, where it belongs, and Call.local_rows.

    `beside`: a right-hand side, which may know the mesh if the matrix does not.
    """
    size = a.shape[1]
    if n is not None and int(n) != size:
        raise ValueError(f"n: got {n} beside a matrix of shape {tuple(a.shape)}; accepted: {size}.")
    padded_to = 0 if pad else tile
    layout = resolve(a, beside, n=size, mesh=mesh, spec=spec, padded_to=padded_to)
    _native.require_backend(backend, layout.platform, layout.ranks)
    whole = size if layout.kind != "manual" else -(-size // layout.ranks)
    padded = -(-size // layout.ranks) * layout.ranks
    local_rows = 0
    if a.shape[0] != whole and not (n is not None and a.shape[0] == padded):
        if pad or layout.explicit:
            hint = ""
            if a.shape[0] == padded:
                hint = f" If rows {size} and up are padding, say so with n={size}."
            raise ValueError(
                f"{routine}: a has shape {tuple(a.shape)}; accepted is a square matrix.{hint}"
            )
        local_rows = local_row_count(routine, a, size, layout, tile)
    r = resolve_plan(
        layout,
        size,
        str(a.dtype),
        tile=tile,
        triangle=triangle_of(lower),
        exposed=exposed,
        precision=precision,
        routine=factorisation,
        backend=backend,
    )
    r = small(r, tile, routine)
    if local_rows == 0:
        a = place_matrix(a, layout, size)
    return r, a, local_rows
