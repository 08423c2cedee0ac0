"""What is static about a call: on which ranks the rows lie, and what the engine plans for them.

Both classes are hashable values, so that they can be static arguments of ``jax.jit``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from . import _device_memory, _model, _native, _profile

AnyMesh = Mesh | AbstractMesh

# In the order of ``Routine`` in src/core/routine.h.
_ROUTINES = """
    potrf potrs logdet locate mirror cyclic potri
    getrf getrs getdet
    geqrf ormqr orgqr qr_r geqrs
    syevd
    trsm cholupdate
    getri
    posv gesv
    gels
"""
ROUTINES = {name: i for i, name in enumerate(_ROUTINES.split())}
RELABELLED, NATURAL = 0, 1  # orders of elimination
DTYPES = {"float32": 0, "float64": 1, "complex64": 2, "complex128": 3}
# Values of `precision`, as the engine numbers the first two.
NATIVE, SPLIT, MIXED = 0, 1, 2
LOWER = {"float64": "float32", "complex128": "complex64"}
# Element types whose products can run by half-precision parts.
SPLIT_DTYPES = ("float32", "complex64")
PLATFORMS = {"cpu": 0, "cuda": 1}
BACKENDS = {"native": 0, "cusolvermg": 1}


def engine_precision(dtype: str, precision: int) -> int:
    """What a GPU's products in this element type are, NATIVE or SPLIT."""
    return min(precision, SPLIT) if dtype in SPLIT_DTYPES else NATIVE


def platform_of(mesh: AnyMesh | None) -> str:
    """ "cuda" or "cpu": where work on this mesh (None: on the default device) runs."""
    name = None
    if isinstance(mesh, Mesh):
        name = mesh.devices.flat[0].platform
    elif mesh is not None:
        device = getattr(mesh, "abstract_device", None)
        name = getattr(device, "platform", None)
    if name is None:
        name = jax.default_backend()
    return "cuda" if name in ("gpu", "cuda") else "cpu"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the rows of a matrix lie.

    Attributes:
        kind: "single": one device, whole matrix. "dist": a global array whose rows are split
            over mesh axes. "manual": the block of one device, inside the caller's shard_map.
        mesh: a concrete or an abstract mesh (None for "single").
        axes: the mesh axes that split the rows, major first. The position along them is the rank.
        others: further axes; each position along them is a group that does the same work.
        platform: "cpu" or "cuda".
    """

    kind: Literal["single", "dist", "manual"] = "single"
    mesh: AnyMesh | None = None
    axes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    platform: str = "cpu"

    @functools.cached_property
    def ranks(self) -> int:
        if self.mesh is None:
            return 1
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @functools.cached_property
    def explicit(self) -> bool:
        """Whether the shardings of operands are a part of their types."""
        if self.kind != "dist" or self.mesh is None:
            return False
        return any(kind == AxisType.Explicit for kind in self.mesh.axis_types)

    @functools.cached_property
    def abstract_mesh(self) -> AbstractMesh:
        assert self.mesh is not None
        return self.mesh.abstract_mesh if isinstance(self.mesh, Mesh) else self.mesh

    @property
    def rows_spec(self) -> PartitionSpec:
        """Of a matrix whose rows are split over the ranks."""
        return PartitionSpec(self.axes, None)

    def sharding(self, spec: PartitionSpec) -> NamedSharding:
        """A sharding over this mesh, as an operand of constraints."""
        assert self.mesh is not None
        return NamedSharding(self.mesh, spec)

    def typed(self, spec: PartitionSpec) -> NamedSharding:
        """The sharding that a type shows: only Explicit axes appear in it."""
        mesh = self.abstract_mesh
        kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
        entries = []
        for entry in spec:
            names = entry if isinstance(entry, tuple) else (entry,) if entry is not None else ()
            shown = tuple(name for name in names if kinds[name] == AxisType.Explicit)
            entries.append(shown[0] if len(shown) == 1 else shown or None)
        return NamedSharding(mesh, PartitionSpec(*entries))

    @functools.cached_property
    def local_ranks(self) -> int:
        """Ranks of one group that belong to one process (the same number in every process)."""
        processes = jax.process_count()
        if processes == 1 or self.mesh is None:
            return self.ranks
        if isinstance(self.mesh, Mesh):
            order = [*self.axes, *self.others]
            places = [self.mesh.axis_names.index(axis) for axis in order]
            rest = [i for i in range(self.mesh.devices.ndim) if i not in places]
            devices = np.transpose(self.mesh.devices, [*places, *rest])
            groups = devices.reshape(self.ranks, -1).T
            counts = set()
            for group in groups:
                owners = [device.process_index for device in group]
                counts |= {owners.count(owner) for owner in set(owners)}
            if len(counts) == 1:
                return int(counts.pop())
            raise ValueError(
                "the mesh gives processes different numbers of devices along the axes "
                f"{self.axes}: {sorted(counts)}. Give each process the same number."
            )
        return max(1, self.ranks * jax.local_device_count() // jax.device_count())


@dataclasses.dataclass(frozen=True)
class Resolved:
    """One factorisation, as far as it is known before there are data.

    Attributes:
        layout: where the rows lie.
        n: true size of the matrix.
        dtype: name of the element type.
        tile: rows that are eliminated together, chosen by the engine's plan.
        rows: rows that each rank has room for.
        factor_rows: rows that each rank has room for in the array that holds the factor.
        aux_count: elements per rank of the operand that goes with the factor.
        precision: 0: products in the element type; 1: 32-bit ones by half-precision parts.
        triangle: -1: all of A is valid; 0: only the lower triangle; 1: only the upper one.
        exposed: whether the factor is handed to the user, who may move it elsewhere.
        order: RELABELLED or NATURAL.
        room: rows that each rank needs while it factors.
        routine: the engine's name of the factorisation.
        backend: who does the work: "native" or "cusolvermg".
        mixed: whether solves use a factor of lower precision; see _mixed.
        gathered: whether every device works on all of the matrix by itself; see _gather.
        library: whether JAX's own solvers do it; see _library.
    """

    layout: Layout
    n: int
    dtype: str
    tile: int
    rows: int
    factor_rows: int
    aux_count: int
    triangle: int = -1
    exposed: bool = False
    precision: int = 0
    order: int = RELABELLED
    room: int = 0
    routine: str = "potrf"
    backend: str = "native"
    mixed: bool = False
    gathered: bool = False
    library: bool = False

    @property
    def padded_rows(self) -> int:
        """Rows of a global array whose shards are alike."""
        return self.rows * self.layout.ranks

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def real_dtype(self) -> str:
        return {"complex64": "float32", "complex128": "float64"}.get(self.dtype, self.dtype)

    @functools.cached_property
    def call_id(self) -> int:
        """Equal in all processes that make this call, most likely different for other calls."""
        mesh = self.layout.mesh
        shape = () if mesh is None else tuple(mesh.shape.items())
        kinds = (self.mixed, self.gathered, self.order)
        numbers = (self.n, self.tile, self.triangle, self.precision, *kinds)
        names = (self.dtype, self.routine, self.backend)
        text = repr((shape, self.layout.axes, *names, *numbers))
        return zlib.crc32(text.encode()) & 0x7FFFFFFF

    @functools.cached_property
    def on_one_rank(self) -> Resolved:
        """The same factorisation on a single device."""
        one = resolve_plan(
            Layout(platform=self.layout.platform),
            self.n,
            self.dtype,
            tile=self.tile,
            triangle=self.triangle,
            precision=MIXED if self.mixed else self.precision,
            routine=self.routine,
            backend=self.backend,
            order=self.order,
        )
        return one.by_library() if self.library else one

    @functools.cached_property
    def by_engine(self) -> Resolved:
        """The factorisation on one device that JAX's own solvers stand for."""
        return dataclasses.replace(self, library=False).on_one_rank

    def by_library(self) -> Resolved:
        """The same by JAX's own solvers, which leave nothing beside the factor."""
        return dataclasses.replace(self, aux_count=1, library=True)

    @functools.cached_property
    def low(self) -> Resolved:
        """The same factorisation in the lower precision, at its fastest.

        Its tile is its own, unless the user has chosen one.
        """
        options: dict[str, Any] = {"triangle": self.triangle, "routine": self.routine}
        usual = resolve_plan(self.layout, self.n, self.dtype, **options).tile
        low = resolve_plan(
            self.layout,
            self.n,
            LOWER[self.dtype],
            tile=0 if self.gathered or self.tile == usual else self.tile,
            exposed=self.exposed,
            precision=SPLIT,
            **options,
        )
        return low.to_gathered() if self.gathered else low

    def to_gathered(self) -> Resolved:
        """The same with all of the matrix on every device: the tile is that of one rank."""
        one = resolve_plan(
            Layout(platform=self.layout.platform),
            self.n,
            self.dtype,
            triangle=self.triangle,
            routine=self.routine,
        )
        return dataclasses.replace(
            self,
            tile=one.tile,
            aux_count=-(-one.aux_count // self.layout.ranks),
            gathered=True,
        )


def entries(
    routine: str,
    n: int,
    dtype: str,
    ranks: int,
    platform: str,
    *,
    nrhs: int = 1,
    tile: int = 0,
    mirror: bool = False,
    replicated_rhs: bool = True,
    columns: int = 0,
    precision: int = 0,
    order: int = RELABELLED,
    backend: str = "native",
    vectors: bool = False,
) -> dict[str, Any]:
    """The engine's plan of one call, as a dictionary."""
    return _native.plan_entries(
        routine=ROUTINES[routine],
        dtype=DTYPES[dtype],
        n=n,
        nrhs=nrhs,
        ranks=ranks,
        tile=tile,
        platform=PLATFORMS[platform],
        mirror=int(mirror),
        replicated_rhs=int(replicated_rhs),
        columns=columns,
        precision=precision,
        order=order,
        backend=BACKENDS[backend],
        vectors=int(vectors),
    )


def measured_tile(n: int, dtype: str, ranks: int, platform: str, precision: int = 0) -> int:
    """The best tile by the cost model, on a machine that was measured; else 0, the engine's choice.

    Of one process alone: all have to choose the same.
    """
    profile = _profile.present(platform)
    if not profile.measured or n == 0 or jax.process_count() > 1:
        return 0
    return _model.best_tile(n, dtype, ranks, profile, split=precision == SPLIT)


# Rows that are eliminated together where memory is short: fewer slow products down.
SMALLEST_TILE = 256
# What a GPU's memory holds beside what is planned: workspace of libraries, and gaps.
SPARE = 256 << 20


def chosen_tile(
    n: int, dtype: str, ranks: int, platform: str, precision: int = 0, mirror: bool = False
) -> int:
    """The tile of a Cholesky factorisation in the order of elimination; 0: the engine's choice.

    That is the measured one, but a smaller one if a GPU has no room for its panels otherwise: they,
    and the diagonal tiles beside the factor, take bytes in proportion to the tile. Of one process
    alone, as measured_tile.
    """
    tile = measured_tile(n, dtype, ranks, platform, precision)
    if platform != "cuda" or jax.process_count() > 1:
        return tile
    free = _device_memory.available(platform, ranks)[0] - SPARE
    if free <= 0:
        return tile
    precision = engine_precision(dtype, precision)
    while True:
        found = entries(
            "potrf", n, dtype, ranks, platform, tile=tile, precision=precision, mirror=mirror
        )
        smaller = int(found["tile"]) // 2
        if int(found["total_bytes"]) <= free or smaller < SMALLEST_TILE:
            return tile
        tile = smaller


@functools.lru_cache(maxsize=1024)
def resolve_plan(
    layout: Layout,
    n: int,
    dtype: str,
    *,
    tile: int = 0,
    triangle: int = -1,
    exposed: bool = False,
    precision: int = 0,
    order: int = RELABELLED,
    routine: str = "potrf",
    backend: str = "native",
) -> Resolved:
    """Asks the engine for the tile and the sizes that belong to a layout."""
    mixed = precision == MIXED and dtype in LOWER and backend == "native"
    precision = engine_precision(dtype, precision)
    if layout.platform != "cuda" or backend != "native":
        precision = NATIVE
    if tile == 0 and routine == "potrf" and backend == "native" and order == RELABELLED:
        tile = chosen_tile(n, dtype, layout.ranks, layout.platform, precision, triangle >= 0)
    found = entries(
        routine,
        n,
        dtype,
        layout.ranks,
        layout.platform,
        tile=tile,
        mirror=triangle >= 0,
        precision=precision,
        order=order,
        backend=backend,
    )
    return Resolved(
        layout=layout,
        n=n,
        dtype=dtype,
        tile=int(found["tile"]),
        rows=-(-n // layout.ranks),
        factor_rows=int(found["factor_rows"]),
        aux_count=int(found["aux_count"]),
        triangle=triangle,
        exposed=exposed,
        precision=precision,
        order=order,
        room=int(found["matrix_rows"]),
        routine=routine,
        backend=backend,
        mixed=mixed,
    )
