"""What is static about a QR factorisation."""

from __future__ import annotations

import dataclasses
import functools
import zlib

from ._layout import Layout, entries


@dataclasses.dataclass(frozen=True)
class QrLayout:
    """One QR factorisation of an m x n matrix, as far as it is known before there are data.

    Attributes:
        layout: where the rows lie.
        m: true number of rows.
        n: number of columns.
        dtype: name of the element type.
        tile: columns that are eliminated together, chosen by the engine's plan.
        aux_count: elements per rank of the operand that goes with the factor.
        exposed: whether the factor is handed to the user, who may move it elsewhere.
        gathered: whether every device works on all of the matrix by itself; see _gather.
        library: whether JAX's own solver does it; see _library.
    """

    layout: Layout
    m: int
    n: int
    dtype: str
    tile: int
    aux_count: int
    exposed: bool = False
    gathered: bool = False
    library: bool = False

    @property
    def rank(self) -> int:
        """Rows of R."""
        return min(self.m, self.n)

    @property
    def rows(self) -> int:
        """Rows of A that each rank has room for."""
        return -(-self.m // self.layout.ranks)

    @property
    def per(self) -> int:
        """Rows of R that each rank has room for."""
        return -(-self.rank // self.layout.ranks)

    @property
    def padded_rows(self) -> int:
        return self.rows * self.layout.ranks

    @property
    def padded_rank(self) -> int:
        return self.per * self.layout.ranks

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    @functools.cached_property
    def call_id(self) -> int:
        """Equal in all processes that make this call, most likely different for other calls."""
        mesh = self.layout.mesh
        shape = () if mesh is None else tuple(mesh.shape.items())
        text = repr(("qr", shape, self.layout.axes, self.m, self.n, self.dtype, self.tile))
        return zlib.crc32(text.encode()) & 0x7FFFFFFF

    @functools.cached_property
    def on_one_rank(self) -> QrLayout:
        """The same factorisation on a single device."""
        single = Layout(platform=self.layout.platform)
        one = resolve_qr(single, self.m, self.n, self.dtype, tile=self.tile)
        return one.by_library() if self.library else one

    def by_library(self) -> QrLayout:
        """The same by JAX's own solver: on one device, or on each by itself."""
        ranks = self.layout.ranks
        return dataclasses.replace(
            self,
            aux_count=-(-self.rank * self.rank // ranks),
            gathered=self.layout.kind == "dist",
            library=True,
        )


@functools.lru_cache(maxsize=1024)
def resolve_qr(
    layout: Layout, m: int, n: int, dtype: str, *, tile: int = 0, exposed: bool = False
) -> QrLayout:
    """Asks the engine for the tile and the sizes that belong to a layout."""
    found = entries("geqrf", m, dtype, layout.ranks, layout.platform, tile=tile, columns=n)
    return QrLayout(
        layout=layout,
        m=m,
        n=n,
        dtype=dtype,
        tile=int(found["tile"]),
        aux_count=int(found["aux_count"]),
        exposed=exposed,
    )
