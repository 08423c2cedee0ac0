"""The matrix of a call that has no right-hand side: checked, resolved and put where it belongs."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array

from ._arguments import cast, check_matrix, common_dtype, host_or_device, place_matrix
from ._layout import AnyMesh, Layout
from ._operands import gathered, on_mesh
from ._preparation import Specs, local_row_count, without_local_padding
from ._resolve import check_mesh, check_specs, resolve


@dataclasses.dataclass(frozen=True)
class Operand:
    """What is static about the matrix of a call.

    Attributes:
        layout: where its rows lie.
        rows, columns: its true size.
        dtype: name of the element type.
        stored_rows: rows of the array that the caller gave.
        local_rows: rows of each shard that belong to the matrix, if shards are padded one by one.
    """

    layout: Layout
    rows: int
    columns: int
    dtype: str
    stored_rows: int
    local_rows: int = 0

    def enter(self, a: Array) -> Array:
        """The operand inside the program of a call, without the padding of single shards."""
        if self.layout.kind != "manual":
            a = on_mesh(self.layout, a)
        return without_local_padding(self.layout, a, self.local_rows) if self.local_rows else a

    def leave(self, x: Array, rows: int, padded: bool = False) -> Array:
        """A result of `rows` rows with the padding that it has to have for the caller."""
        if self.layout.kind == "manual" or padded or x.shape[0] == rows:
            return x
        return gathered(self.layout, x)[:rows]


def prepare_matrix(
    routine: str,
    a: Any,
    *,
    mesh: AnyMesh | None,
    in_specs: Specs = None,
    matrix_specs: Specs = None,
    tile: int = 0,
    pad: bool = True,
    rows: int | None = None,
    square: bool = False,
) -> tuple[Operand, Any]:
    """Checks a matrix and finds out where it belongs.

    Args:
        routine: the name to use in messages.
        a: the matrix.
        mesh, in_specs, matrix_specs, tile, pad: as the caller gave them.
        rows: the true number of rows, if the matrix may be padded.
        square: whether only square matrices are accepted.
    """
    a = host_or_device(a, "a")
    check_matrix(routine, a)
    dtype = common_dtype(routine, a=a)
    a = cast(a, dtype)
    stored, columns = a.shape
    name = "n" if square else "m"
    size = columns if square else (stored if rows is None else int(rows))
    if square and rows is not None and int(rows) != columns:
        raise ValueError(
            f"n: got {rows} beside a matrix of shape {tuple(a.shape)}; accepted: {columns}."
        )
    layout = resolve(
        a,
        n=size,
        mesh=check_mesh(mesh),
        spec=check_specs(in_specs, matrix_specs)[0],
        padded_to=0 if pad else tile,
    )
    whole = size if layout.kind != "manual" else -(-size // layout.ranks)
    padded = -(-size // layout.ranks) * layout.ranks
    local_rows = 0
    if stored != whole and not (rows is not None and stored == padded):
        if pad or layout.explicit or not square:
            hint = ""
            if stored == padded:
                hint = f" If rows {size} and up are padding, say so with n={size}."
            wanted = "a square matrix" if square else f"{name} = {stored}, or {padded} stored rows"
            raise ValueError(
                f"{routine}: a has shape {tuple(a.shape)}; accepted is {wanted}.{hint}"
            )
        local_rows = local_row_count(routine, a, size, layout, tile)
    if local_rows == 0:
        a = place_matrix(a, layout, size)
    return Operand(layout, size, columns, dtype, stored, local_rows), a
