"""The primitive of the eigensolver, on global arrays."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from typing import Any

import jax.numpy as jnp
from jax import Array

from . import _calls, _library
from ._batching import batch_factor_operation
from ._layout import BACKENDS, SPLIT, Layout, entries
from ._operands import pad_rows
from ._operation import REPLICATED, Operation, Specs, define, rows_spec, typed


@dataclasses.dataclass(frozen=True)
class ResolvedEig:
    """One eigenproblem, as far as it is known before there are data.

    Attributes:
        layout: where the rows lie.
        n: true size of the matrix.
        dtype: name of the element type.
        tile: half width of the band that the matrix is reduced to, or columns of a block that is
            dealt out, chosen by the engine's plan.
        rows: rows that each rank has room for.
        triangle: -1: all of A is valid; 0: only the lower triangle; 1: only the upper one.
        room: rows that each rank needs while it works.
        backend: who does the work: "native" or "cusolvermg".
        precision: 0: products in the element type; 1: float32 by half-precision parts where the
            engine has them.
        gathered: whether every device works on all of the matrix by itself; see _gather.
        library: whether JAX's own solver does it; see _library.
    """

    layout: Layout
    n: int
    dtype: str
    tile: int
    rows: int
    triangle: int = -1
    room: int = 0
    backend: str = "native"
    precision: int = 0
    gathered: bool = False
    library: bool = False

    # A batch may be spread over the devices: results are whole matrices, not parts of a factor.
    exposed = False

    @property
    def padded_rows(self) -> int:
        """Rows of the global array that holds eigenvectors."""
        return self.rows * self.layout.ranks

    @property
    def real_dtype(self) -> str:
        return {"complex64": "float32", "complex128": "float64"}.get(self.dtype, self.dtype)

    @property
    def is_complex(self) -> bool:
        return self.dtype != self.real_dtype

    @functools.cached_property
    def call_id(self) -> int:
        """Equal in all processes that make this call, most likely different for other calls."""
        mesh = self.layout.mesh
        shape = () if mesh is None else tuple(mesh.shape.items())
        names = ("syevd", self.dtype, self.backend)
        numbers = (self.n, self.tile, self.triangle, self.precision, self.gathered)
        text = repr((*names, shape, self.layout.axes, *numbers))
        return zlib.crc32(text.encode()) & 0x7FFFFFFF

    @functools.cached_property
    def on_one_rank(self) -> ResolvedEig:
        """The same eigenproblem on a single device."""
        one = resolve_eig(
            Layout(platform=self.layout.platform),
            self.n,
            self.dtype,
            # Chosen for so many ranks; one has room for a wider band.
            tile=self.tile if self.layout.ranks == 1 else 0,
            triangle=self.triangle,
            backend=self.backend,
            precision=self.precision,
        )
        return dataclasses.replace(one, library=self.library)


def by_parts(dtype: str, platform: str, backend: str, precision: int) -> int:
    """`precision` where there is a choice; else 0."""
    chosen = dtype == "float32" and platform == "cuda" and backend == "native"
    return min(precision, SPLIT) if chosen else 0


@functools.lru_cache(maxsize=1024)
def resolve_eig(
    layout: Layout,
    n: int,
    dtype: str,
    *,
    tile: int = 0,
    triangle: int = -1,
    backend: str = "native",
    precision: int = 0,
    vectors: bool = True,
) -> ResolvedEig:
    """Asks the engine for the sizes that belong to a layout; `vectors`: whether they are wanted."""
    precision = by_parts(dtype, layout.platform, backend, precision)
    found = entries(
        "syevd",
        n,
        dtype,
        layout.ranks,
        layout.platform,
        tile=tile,
        mirror=triangle >= 0,
        backend=backend,
        precision=precision,
        columns=n if vectors else 0,
        vectors=vectors,
    )
    return ResolvedEig(
        layout=layout,
        n=n,
        dtype=dtype,
        tile=int(found["tile"]),
        rows=-(-n // layout.ranks),
        triangle=triangle,
        room=int(found["factor_rows"]),
        backend=backend,
        precision=precision,
    )


def _block(
    r: ResolvedEig, ctx: Array, a: Array, *, vectors: bool, first: int, count: int
) -> list[Array]:
    """The call on one device's rows. The matrix is worked on in place.

    Where all eigenvectors are wanted they replace it; else it is left as scratch, and dropped.
    """
    separate = vectors and count != r.n
    a = pad_rows(a, r.room)  # tiles that are dealt out may need more rows
    results = [
        _calls.Shape((r.n,), jnp.dtype(r.real_dtype)),
        _calls.Shape(a.shape, a.dtype),
        *([_calls.Shape((r.rows, count), a.dtype)] if separate else []),
        _calls.Shape((8,), jnp.int32),
    ]
    w, work, *rest = _calls.call(
        "jaxmg_syevd",
        results,
        {1: 1},
        ctx,
        a,
        n=r.n,
        tile=r.tile,
        precision=r.precision,
        triangle=r.triangle,
        vectors=int(vectors),
        first=first,
        count=count,
        backend=BACKENDS[r.backend],
    )
    *v, info = rest
    if vectors and not separate:
        v = [work[: r.rows]]
    return [w, *v, info]


def _types(a: Any, *, r: ResolvedEig, vectors: bool, first: int, count: int) -> list[Any]:
    w = typed(a, r.layout, (r.n,), r.real_dtype, REPLICATED)
    v = typed(a, r.layout, (r.padded_rows, count), a.dtype, rows_spec(r.layout))
    info = typed(a, r.layout, (8,), jnp.int32, REPLICATED)
    return [w, v, info] if vectors else [w, info]


def _one_device(r: ResolvedEig, a: Array, *, vectors: bool, first: int, count: int) -> list[Array]:
    w, *v, info = syevd_p.bind(a[: r.n], r=r.on_one_rank, vectors=vectors, first=first, count=count)
    return [w, *(pad_rows(x, r.padded_rows) for x in v), info]


def _specs(layout: Layout, *, vectors: bool, first: int, count: int) -> tuple[Specs, Specs]:
    rows = rows_spec(layout)
    return (rows,), (REPLICATED, rows, REPLICATED) if vectors else (REPLICATED, REPLICATED)


# a (n or padded rows, n); vectors, first, count: whether, from which (0-based, ascending) and how
# many eigenvectors -> w (n,), [V (padded rows, count)], info int32[8].
syevd_p = define(
    "jaxmg_syevd",
    Operation(
        block=_block,
        library=_library.syevd,
        one_device=_one_device,
        pad=lambda r, a, **_: [pad_rows(a, r.padded_rows)],
        specs=_specs,
    ),
    _types,
    batch_factor_operation,
)
