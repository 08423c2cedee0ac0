"""Finds the mesh and the mesh axes that a matrix is split over.

In this order: the caller's shard_map, ``mesh=``, a concrete array's sharding, the sharding in a
type, the mesh in a type, the context mesh, one device. The matrix is asked before the right-hand
side, and a mesh that is empty, or lacks an axis that the caller's spec names, is passed over. A
wrong guess of the axes costs a re-distribution, never a wrong result. Mesh axes that the matrix
leaves unused are added, so that all devices take part.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ._layout import AnyMesh, Layout, platform_of
from ._vma import varying

Entry = Any


def axis_names(entry: Entry) -> tuple[str, ...]:
    """The axes in one entry of a PartitionSpec."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def split_axes(spec: PartitionSpec) -> tuple[str, ...]:
    """The axes that split a matrix: those of its rows, then those of its columns."""
    return tuple(name for entry in tuple(spec)[:2] for name in axis_names(entry))


def is_concrete(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


def check_mesh(mesh: Any) -> AnyMesh | None:
    if mesh is None or isinstance(mesh, (Mesh, AbstractMesh)):
        return mesh
    if isinstance(mesh, NamedSharding):
        return mesh.mesh
    raise TypeError(
        f"mesh: got {type(mesh).__name__}; accepted are jax.sharding.Mesh, AbstractMesh and None."
    )


def check_specs(
    in_specs: Any, matrix_specs: Any = None
) -> tuple[PartitionSpec | None, PartitionSpec | None]:
    """The specs of A and b from ``in_specs`` or ``matrix_specs`` in any accepted form.

    Returns:
        The spec of the matrix and that of the right-hand side, each None if it was not given.
    """
    if in_specs is not None and matrix_specs is not None:
        raise ValueError("in_specs and matrix_specs are the same argument: give one of them.")
    name = "matrix_specs" if in_specs is None else "in_specs"
    given = matrix_specs if in_specs is None else in_specs
    if given is None:
        return None, None
    accepted = (
        "a PartitionSpec, or a tuple or list of one (matrix) or two (matrix, right-hand side)"
    )
    if isinstance(given, PartitionSpec):
        specs: Sequence[Any] = (given,)
    elif isinstance(given, (tuple, list)):
        specs = given
    else:
        raise TypeError(f"{name}: got {type(given).__name__}; accepted is {accepted}.")
    if len(specs) not in (1, 2):
        raise ValueError(f"{name}: got {len(specs)} specs; accepted is {accepted}.")
    for spec in specs:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"{name}: got an element {spec!r}; accepted is {accepted}.")
        if len(tuple(spec)) > 2:
            raise ValueError(f"{name}: {spec} has {len(tuple(spec))} entries; a matrix has 2.")
    return specs[0], specs[1] if len(specs) == 2 else None


def manual_axes(mesh: AbstractMesh) -> tuple[str, ...]:
    if mesh.empty:
        return ()
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, kind in pairs if kind == AxisType.Manual)


@functools.lru_cache(maxsize=1024)
def _distributed(mesh: AnyMesh, wanted: tuple[str, ...], rows: tuple[str, ...], n: int) -> Layout:
    """Rows over `wanted` and then over the axes that are left."""
    rest = tuple(name for name in mesh.axis_names if name not in wanted)
    layout = Layout("dist", mesh, wanted + rest, (), platform_of(mesh))
    if layout.explicit and rest and rows:
        # Typed rows that are split already can be split further only if the parts come out even.
        narrow = Layout("dist", mesh, wanted, rest, layout.platform)
        if n % layout.ranks != 0 and n % narrow.ranks == 0:
            return narrow
    return layout


def _misfit(argument: str, spec: Any, mesh: AnyMesh) -> ValueError:
    unknown = [name for name in split_axes(spec) if name not in mesh.axis_names]
    return ValueError(
        f"{argument}: {spec} names the axes {unknown}, the mesh has {tuple(mesh.axis_names)}."
    )


def distributed(mesh: AnyMesh, spec: PartitionSpec | None, n: int, argument: str) -> Layout:
    """The layout of an n x n matrix on a mesh, with the spec as a wish."""
    wanted = () if spec is None else split_axes(spec)
    rows = () if spec is None or not len(spec) else axis_names(spec[0])
    unknown = [name for name in wanted if name not in mesh.axis_names]
    if unknown:
        raise _misfit(argument, spec, mesh)
    return _distributed(mesh, wanted, rows, n)


def _block_layout(
    mesh: AbstractMesh,
    manual: tuple[str, ...],
    a: Any,
    n: int,
    spec: PartitionSpec | None,
    padded_to: int = 0,
) -> Layout:
    """The layout of a block of an n x n matrix inside shard_map over the axes `manual`."""
    automatic = [x for x in mesh.axis_names if x not in manual and mesh.shape[x] > 1]
    # A shard_map over these axes, inside the caller's, would do but for derivatives with the
    # replication check on: JAX 0.7 then gets them wrong, and later versions fail in lowering.
    if automatic:
        raise ValueError(
            f"the enclosing shard_map leaves the mesh axes {automatic} automatic: leave axis_names "
            "out of it, so that all axes are manual, or make this call outside of shard_map."
        )
    rows = a.shape[0]
    wanted = () if spec is None else split_axes(spec)
    unknown = [name for name in wanted if name not in manual]
    if unknown:
        raise ValueError(
            f"in_specs: {spec} names the axes {unknown}; the enclosing shard_map has {manual}."
        )

    def fits(axes: tuple[str, ...]) -> bool:
        own = -(-n // math.prod(mesh.shape[axis] for axis in axes))
        return rows == own or (padded_to > 0 and rows == own + -own % padded_to)

    known = tuple(axis for axis in manual if axis in varying(a))
    subsets = [c for k in range(len(manual), -1, -1) for c in itertools.combinations(manual, k)]
    candidates = [wanted] if wanted else [*([known] if known else []), manual, *subsets]
    chosen = next((axes for axes in candidates if fits(axes)), None)
    if chosen is None:
        sizes = {axis: mesh.shape[axis] for axis in manual}
        raise ValueError(
            f"a: a block of shape {tuple(a.shape)} inside shard_map over {sizes} is not a part "
            f"of the rows of a matrix of size {n}: a block has ceil(n / ranks) rows and n "
            "columns. Give shard_map the spec P(axes, None) for the matrix."
        )
    same = [c for c in subsets if len(c) == len(chosen) and c != chosen and fits(c)]
    if same and not known and not wanted:
        raise ValueError(
            f"in_specs: the rows may be split over {chosen} or {same[0]}; say which with "
            "in_specs=P(axes, None)."
        )
    others = tuple(axis for axis in manual if axis not in chosen)
    return Layout("manual", mesh, chosen, others, platform_of(mesh))


def _named_sharding(x: Any) -> NamedSharding | None:
    """What a concrete array or the type of a traced one tells."""
    if not isinstance(x, jax.Array):
        return None
    sharding = x.sharding if is_concrete(x) else getattr(jax.typeof(x), "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) else None


def _candidates(
    a: Any, b: Any, mesh: AnyMesh | None, context: AbstractMesh
) -> Iterator[tuple[AnyMesh, PartitionSpec | None]]:
    """Meshes that could be meant, the likeliest first, and what the matrix itself tells of axes."""
    own = _named_sharding(a)
    if mesh is not None:
        same = own is not None and own.mesh == mesh and is_concrete(a)
        yield mesh, own.spec if own is not None and same else None
    if own is not None:
        yield own.mesh, own.spec
    right = _named_sharding(b)
    if right is not None:
        yield right.mesh, PartitionSpec()
    yield context, None


def resolve(
    a: Any,
    b: Any = None,
    *,
    n: int,
    mesh: AnyMesh | None = None,
    spec: PartitionSpec | None = None,
    padded_to: int = 0,
) -> Layout:
    """Decides over which devices the n x n matrix `a` is worked on.

    Args:
        a: the matrix, concrete or traced (inside shard_map: the block of this device).
        b: the right-hand side, if there is one; asked when `a` does not know a mesh.
        n: true size of the matrix.
        mesh: the caller's mesh.
        spec: the caller's spec of the matrix.
        padded_to: if not 0, a block inside shard_map is padded to a multiple of this.
    """
    context = jax.sharding.get_abstract_mesh()
    manual = manual_axes(context)
    if manual:
        return _block_layout(context, manual, a, n, spec, padded_to)
    misfit = None
    for candidate, known in _candidates(a, b, mesh, context):
        if candidate.empty:
            continue
        if spec is None or set(split_axes(spec)) <= set(candidate.axis_names):
            return distributed(candidate, known if spec is None else spec, n, "in_specs")
        misfit = candidate if misfit is None else misfit
    if misfit is not None:
        raise _misfit("in_specs", spec, misfit)
    if is_concrete(a) and len(a.sharding.device_set) > 1:
        raise ValueError(
            f"a: its sharding {a.sharding} over {len(a.sharding.device_set)} devices names no "
            "mesh. Give mesh=, or place it with a jax.sharding.NamedSharding."
        )
    if spec is not None and split_axes(spec):
        raise ValueError(
            f"in_specs: {spec} names mesh axes, but there is no mesh. Give mesh=, place a with a "
            "jax.sharding.NamedSharding, or set one with jax.set_mesh."
        )
    platform = None
    if is_concrete(a):
        platform = next(iter(a.sharding.device_set)).platform
    on_gpu = platform in ("gpu", "cuda") if platform else platform_of(None) == "cuda"
    return Layout(platform="cuda" if on_gpu else "cpu")


def same_devices(a: AnyMesh, b: AnyMesh) -> bool:
    """Whether axis names of one mesh mean the same devices on the other, as far as is known."""
    if isinstance(a, Mesh) and isinstance(b, Mesh):
        return a == b or (a.shape_tuple == b.shape_tuple and (a.devices == b.devices).all())
    return a.shape_tuple == b.shape_tuple


def rhs_spec(b: Any, given: PartitionSpec | None, layout: Layout) -> PartitionSpec | None:
    """How the right-hand side is split over the mesh of the layout (None: not, or unknown)."""
    if layout.kind != "dist":
        return None
    assert layout.mesh is not None
    if given is not None:
        if not set(split_axes(given)) <= set(layout.mesh.axis_names):
            raise _misfit("in_specs", given, layout.mesh)
        found = given
    else:
        if not isinstance(b, jax.Array):
            return None
        sharding = b.sharding if is_concrete(b) else getattr(jax.typeof(b), "sharding", None)
        if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
            return None
        if not same_devices(sharding.mesh, layout.mesh):
            return None
        found = sharding.spec
    return found if split_axes(found) else None


def splits_rows(spec: PartitionSpec | None, layout: Layout) -> bool:
    """Whether `spec` splits rows exactly as the layout does (axes of size 1 do not count)."""
    if spec is None or layout.mesh is None:
        return False
    shape = layout.mesh.shape
    if any(shape[name] > 1 for entry in tuple(spec)[1:] for name in axis_names(entry)):
        return False
    first = spec[0] if len(tuple(spec)) else None
    have = tuple(name for name in axis_names(first) if shape[name] > 1)
    want = tuple(name for name in layout.axes if shape[name] > 1)
    return have == want
