"""From an operation on a global array to the calls that the devices make: primitives, lowered late.

Only at lowering is it known how many devices a program is compiled for. With one, the call is
made on one rank; with several, inside a shard_map over the layout's mesh. That repairs programs
that JAX itself puts on one device although the type of the matrix shows a mesh (a sharded array
that a jitted function closes over and changes).

An operation's static description `r` is any hashable value with a `layout` and a `call_id`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import _calls, _context, _native
from ._layout import Layout
from ._operands import constrain, is_split, reshard
from ._resolve import axis_names
from .errors import BackendUnavailableError

Specs = tuple[PartitionSpec, ...]
REPLICATED = PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Operation:
    """What the lowering of one routine needs.

    Attributes:
        block: (r, context, *blocks, **params) -> results: the call on one device's blocks.
        one_device: (r, *arrays, **params) -> results: the same result, shapes included, with the
            whole matrix on one device.
        pad: (r, *arrays, **params) -> arrays whose split dimensions are divisible.
        specs: (layout, **params) -> specs of the operands and of the results.
        makes_factor: whether the results are a factor, which stays where it is made.
        library: (r, *arrays, **params) -> results: the same on one device by JAX's own solvers,
            which r.library asks for; see _library.
    """

    block: Callable[..., Sequence[Array]]
    one_device: Callable[..., Sequence[Array]]
    pad: Callable[..., Sequence[Array]]
    specs: Callable[..., tuple[Specs, Specs]]
    makes_factor: bool = False
    library: Callable[..., Sequence[Array]] | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """What a program is compiled for.

    Attributes:
        count: number of devices (None: unknown).
        devices: the devices, if they are known.
        other_context: whether JAX's context names another mesh than the layout.
    """

    count: int | None
    devices: Sequence[Any] | None
    other_context: bool


def _require_one_process(layout: Layout, devices: Sequence[Any] | None) -> None:
    """Refuses, in every process alike, what the engines would refuse while running."""
    if jax.process_count() == 1:
        return
    found = "belong to several processes"
    if devices is not None:
        in_one = len({device.process_index for device in devices}) == 1
    elif isinstance(layout.mesh, Mesh):
        in_one = layout.local_ranks == layout.ranks
    else:
        in_one = False
        found = "cannot be told from the type of the matrix and may belong to several processes"
    if in_one:
        return
    raise BackendUnavailableError(
        f"the {layout.ranks} devices of the mesh {found}, which is not supported. Use those of one "
        "process and say so with mesh=, such as jax.sharding.Mesh(jax.local_devices(), ('x',))."
    )


def _distributed(
    op: Operation,
    target: Target,
    r: Any,
    arrays: Sequence[Array],
    params: dict[str, Any],
) -> Any:
    layout = r.layout
    _require_one_process(layout, target.devices)
    if getattr(r, "gathered", False):
        return _everywhere(op, r, arrays, params)
    ins, outs = op.specs(layout, **params)
    arrays = op.pad(r, *arrays, **params)
    arrays = [reshard(layout, x, spec) for x, spec in zip(arrays, ins, strict=True)]

    def body(*blocks: Array, place: tuple[Array, Array] | None = None) -> tuple[Array, ...]:
        context = _calls.context(layout, r.call_id, layout.ranks, place)
        return tuple(op.block(r, context, *blocks, **params))

    mapped = functools.partial(jax.shard_map, mesh=layout.mesh, out_specs=outs, check_vma=False)
    if not target.other_context:
        return mapped(body, in_specs=ins)(*arrays)

    # JAX would look for the axes of an abstract mesh among those of the context and not find
    # them, so that each device is handed its place as an operand instead.
    def placed(rank: Array, group: Array, *blocks: Array) -> tuple[Array, ...]:
        return body(*blocks, place=(rank[0], group[0]))

    assert layout.mesh is not None
    groups = math.prod(layout.mesh.shape[axis] for axis in layout.others)
    places = (PartitionSpec(layout.axes), PartitionSpec(layout.others))
    with _context.tracing_on(layout):
        ranks = jnp.arange(layout.ranks, dtype=jnp.int32), jnp.arange(groups, dtype=jnp.int32)
        split = [reshard(layout, x, spec) for x, spec in zip(ranks, places, strict=True)]
        return mapped(placed, in_specs=(*places, *ins))(*split, *arrays)


def _everywhere(op: Operation, r: Any, arrays: Sequence[Array], params: dict[str, Any]) -> Any:
    """Every device is given all of the operands, and does all of the work on its own."""
    layout = r.layout
    whole = [reshard(layout, x, PartitionSpec(*(None,) * x.ndim)) for x in arrays]
    call = jax.shard_map(
        lambda *xs: tuple(op.one_device(r, *xs, **params)),
        mesh=layout.mesh,
        in_specs=REPLICATED,
        out_specs=REPLICATED,
        check_vma=False,
    )
    results = call(*whole)
    if op.makes_factor:
        return results
    outs = op.specs(layout, **params)[1]
    return [constrain(layout, x, spec) for x, spec in zip(results, outs, strict=True)]


def _run(
    op: Operation, target: Target, r: Any, params: dict[str, Any], *arrays: Array
) -> list[Array]:
    """The program that stands for one call when it is compiled for `target`."""
    if r.layout.kind == "single":
        if op.library is not None and getattr(r, "library", False):
            return list(op.library(r, *arrays, **params))
        return list(op.block(r, _calls.context(r.layout, r.call_id), *arrays, **params))
    if target.count == 1 or r.layout.mesh is None:
        return list(op.one_device(r, *arrays, **params))
    return list(_distributed(op, target, r, arrays, params))


@functools.lru_cache(maxsize=256)
def _eager(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(lambda *arrays: primitive.bind(*arrays, **dict(params)))


def _has_nan(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact) and jnp.isnan(x).any())


def define(name: str, op: Operation, abstract: Callable[..., Any], batch: Any) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = True

    def lowering(ctx: Any, *operands: Any, r: Any, **params: Any) -> Any:
        _native.require(r.layout.platform)
        axes = ctx.module_context.axis_context
        target = Target(
            count=getattr(axes, "num_devices", None),
            devices=getattr(axes, "device_assignment", None),
            other_context=_context.lowered_elsewhere(r.layout),
        )
        program = functools.partial(_run, op, target, r, params)
        return mlir.lower_fun(program, multiple_results=True)(ctx, *operands)

    def impl(*arrays: Any, **params: Any) -> Any:
        # Under jax.disable_jit() too: it would come back here, and so would the search for NaN.
        searching = jax.config.jax_debug_nans  # type: ignore[attr-defined]
        with jax.disable_jit(False), jax.debug_nans(False):
            results = _eager(primitive, tuple(sorted(params.items())))(*arrays)
        if searching and any(_has_nan(x) for x in results):
            raise FloatingPointError(f"invalid value (nan) encountered in {primitive.name}")
        return results

    primitive.def_impl(impl)
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, lowering)
    batching.primitive_batchers[primitive] = functools.partial(batch, primitive, op.one_device)
    return primitive


def typed(like: Any, layout: Layout, shape: tuple[int, ...], dtype: Any, spec: Any) -> Any:
    """An abstract value beside `like`, whose type shows the sharding `spec`."""
    if layout.kind == "single":
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    else:
        spec = PartitionSpec(*spec, *(None,) * (len(shape) - len(spec)))
        sharding = layout.typed(spec)
    return like.update(shape=shape, dtype=jnp.dtype(dtype), sharding=sharding, weak_type=False)


def rows_spec(layout: Layout) -> PartitionSpec:
    return layout.rows_spec if layout.kind == "dist" else REPLICATED


def factor_specs(a: Any, r: Any) -> Specs:
    """What the types of a factor show: the specs of its rows and of its vectors.

    Within one program the data lie on the ranks whatever the type of a factor shows; where programs
    meet (a derivative keeps the factor) they are moved to what it shows. Axes that split A itself
    are shown, others are not, since vmap may put those of a batch there.
    """
    layout = r.layout
    if r.gathered:
        return REPLICATED, REPLICATED
    if r.exposed and is_split(a.sharding.spec):
        return rows_spec(layout), vector_spec(layout)
    shown = {name for entry in tuple(a.sharding.spec) for name in axis_names(entry)}
    own = tuple(name for name in layout.axes if name in shown)
    return PartitionSpec(own or None, None), PartitionSpec(own or None)


def vector_spec(layout: Layout) -> PartitionSpec:
    return PartitionSpec(layout.axes) if layout.kind == "dist" else REPLICATED
