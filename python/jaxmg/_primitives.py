"""One JAX primitive per routine, on global arrays, lowered late.

Only at lowering is it known how many devices a program is compiled for. With one, the call is
made on one rank; with several, inside a shard_map over the layout's mesh. That repairs programs
that JAX itself puts on one device although the type of the matrix shows a mesh (a sharded array
that a jitted function closes over and changes).

A factor is three arrays: `work` (padded_rows, n), `aux` (ranks * aux_count,), `info` int32[8].
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import _calls, _context, _native
from ._batching import batch_factor_operation, batch_potrs
from ._layout import Layout, Resolved
from ._operands import is_split, pad_rows, reshard
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
    """

    block: Callable[..., Sequence[Array]]
    one_device: Callable[..., Sequence[Array]]
    pad: Callable[..., Sequence[Array]]
    specs: Callable[..., tuple[Specs, Specs]]


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
    r: Resolved,
    arrays: Sequence[Array],
    params: dict[str, Any],
) -> Any:
    layout = r.layout
    _require_one_process(layout, target.devices)
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


def _run(
    op: Operation, target: Target, r: Resolved, params: dict[str, Any], *arrays: Array
) -> list[Array]:
    """The program that stands for one call when it is compiled for `target`."""
    if r.layout.kind == "single":
        return list(op.block(r, _calls.context(r.layout, r.call_id), *arrays, **params))
    if target.count == 1 or r.layout.mesh is None:
        return list(op.one_device(r, *arrays, **params))
    return list(_distributed(op, target, r, arrays, params))


@functools.lru_cache(maxsize=256)
def _eager(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(lambda *arrays: primitive.bind(*arrays, **dict(params)))


def _define(name: str, op: Operation, abstract: Callable[..., Any], batch: Any) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = True

    def lowering(ctx: Any, *operands: Any, r: Resolved, **params: Any) -> Any:
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
        # Under jax.disable_jit() too: it would come back here.
        with jax.disable_jit(False):
            return _eager(primitive, tuple(sorted(params.items())))(*arrays)

    primitive.def_impl(impl)
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, lowering)
    batching.primitive_batchers[primitive] = functools.partial(batch, primitive, op.one_device)
    return primitive


def _typed(like: Any, layout: Layout, shape: tuple[int, ...], dtype: Any, spec: Any) -> Any:
    """An abstract value beside `like`, whose type shows the sharding `spec`."""
    if layout.kind == "single":
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    else:
        spec = PartitionSpec(*spec, *(None,) * (len(shape) - len(spec)))
        sharding = layout.typed(spec)
    return like.update(shape=shape, dtype=jnp.dtype(dtype), sharding=sharding, weak_type=False)


def _rows(layout: Layout) -> PartitionSpec:
    return layout.rows_spec if layout.kind == "dist" else REPLICATED


def _vector(layout: Layout) -> PartitionSpec:
    return PartitionSpec(layout.axes) if layout.kind == "dist" else REPLICATED


# --- factorisation ---------------------------------------------------------------------------


def _factor_types(a: Any, *, r: Resolved) -> list[Any]:
    rows, vector = _rows(r.layout), _vector(r.layout)
    if not (r.exposed and is_split(a.sharding.spec)):
        # Within one program the data lie on the ranks whatever the type of a factor shows; where
        # programs meet (a derivative keeps the factor) they are moved to what it shows. Axes that
        # split A itself are shown, others are not, since vmap may put those of a batch there.
        shown = {name for entry in tuple(a.sharding.spec) for name in axis_names(entry)}
        own = tuple(name for name in r.layout.axes if name in shown)
        rows, vector = PartitionSpec(own or None, None), PartitionSpec(own or None)
    return [
        _typed(a, r.layout, (r.padded_rows, r.n), a.dtype, rows),
        _typed(a, r.layout, (r.aux_count * r.layout.ranks,), a.dtype, vector),
        _typed(a, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _padded_factor(r: Resolved, work: Array, aux: Array, info: Array) -> list[Array]:
    """A factor made on one device in the shapes of the layout, marked as such."""
    return [
        pad_rows(work, r.padded_rows),
        pad_rows(aux, r.aux_count * r.layout.ranks),
        info.at[_calls.MADE_ON].set(1),
    ]


def _one_device_factor(r: Resolved, work: Array, aux: Array) -> tuple[Array, Array]:
    return work[: r.n], aux[: r.on_one_rank.aux_count]


def _potrf_one_device(r: Resolved, a: Array) -> list[Array]:
    return _padded_factor(r, *potrf_p.bind(a[: r.n], r=r.on_one_rank))


potrf_p = _define(
    "jaxmg_potrf",
    Operation(
        block=_calls.potrf,
        one_device=_potrf_one_device,
        pad=lambda r, a: [pad_rows(a, r.padded_rows)],
        specs=lambda layout: ((_rows(layout),), (_rows(layout), _vector(layout), REPLICATED)),
    ),
    _factor_types,
    batch_factor_operation,
)


# --- solution --------------------------------------------------------------------------------


def _solution_type(
    work: Any, aux: Any, info: Any, b: Any, *, r: Resolved, replicated: bool
) -> list[Any]:
    spec = REPLICATED if replicated else _rows(r.layout)
    return [_typed(work, r.layout, b.shape, b.dtype, spec)]


def _mismatch_to_nan(r: Resolved, info: Array, b: Array, made_on: int) -> Array:
    """b, or NaN if the factor was made with another number of ranks than it is used with."""
    return jnp.where(info[_calls.MADE_ON] == made_on, b, jnp.asarray(jnp.nan, b.dtype))


def _potrs_block(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> list[Array]:
    if r.exposed and r.layout.kind == "dist":
        b = _mismatch_to_nan(r, info, b, 0)
    return [_calls.potrs(r, ctx, work, aux, info, b, replicated=replicated)]


def _potrs_one_device(
    r: Resolved, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> list[Array]:
    rows = b.shape[0]
    b = _mismatch_to_nan(r, info, b[: r.n], 1)
    work, aux = _one_device_factor(r, work, aux)
    (x,) = potrs_p.bind(work, aux, info, b, r=r.on_one_rank, replicated=True)
    return [pad_rows(x, rows)]


def _potrs_specs(layout: Layout, *, replicated: bool) -> tuple[Specs, Specs]:
    rhs = REPLICATED if replicated else _rows(layout)
    return (_rows(layout), _vector(layout), REPLICATED, rhs), (rhs,)


potrs_p = _define(
    "jaxmg_potrs",
    Operation(
        block=_potrs_block,
        one_device=_potrs_one_device,
        pad=lambda r, *arrays, replicated: arrays,
        specs=_potrs_specs,
    ),
    _solution_type,
    batch_potrs,
)


# --- log-determinant -------------------------------------------------------------------------


def _logdet_one_device(r: Resolved, work: Array, info: Array) -> list[Array]:
    return list(logdet_p.bind(work[: r.n], info, r=r.on_one_rank))


logdet_p = _define(
    "jaxmg_logdet",
    Operation(
        block=lambda r, ctx, work, info: [_calls.logdet(r, ctx, work, info)],
        one_device=_logdet_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: ((_rows(layout), REPLICATED), (REPLICATED,)),
    ),
    lambda work, info, *, r: [_typed(work, r.layout, (), r.real_dtype, REPLICATED)],
    batch_factor_operation,
)


# --- inverse ---------------------------------------------------------------------------------


def _potri_block(r: Resolved, ctx: Array, work: Array, aux: Array, info: Array) -> list[Array]:
    x = _calls.potri(r, ctx, work, aux, info)
    if r.exposed and r.layout.kind == "dist":
        x = _mismatch_to_nan(r, info, x, 0)
    return [x]


def _potri_one_device(r: Resolved, work: Array, aux: Array, info: Array) -> list[Array]:
    short, aux = _one_device_factor(r, work, aux)
    (x,) = potri_p.bind(short, aux, info, r=r.on_one_rank)
    return [pad_rows(_mismatch_to_nan(r, info, x, 1), work.shape[0])]


potri_p = _define(
    "jaxmg_potri",
    Operation(
        block=_potri_block,
        one_device=_potri_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: ((_rows(layout), _vector(layout), REPLICATED), (_rows(layout),)),
    ),
    lambda work, aux, info, *, r: [
        _typed(work, r.layout, (r.padded_rows, r.n), work.dtype, _rows(r.layout))
    ],
    batch_factor_operation,
)


# --- place of a failure ----------------------------------------------------------------------


def _locate_types(work: Any, aux: Any, info: Any, *, r: Resolved) -> list[Any]:
    return [
        work.update(weak_type=False),
        _typed(work, r.layout, (8,), jnp.int32, REPLICATED),
    ]


def _locate_one_device(r: Resolved, work: Array, aux: Array, info: Array) -> list[Array]:
    short, aux = _one_device_factor(r, work, aux)
    short, info = locate_p.bind(short, aux, info, r=r.on_one_rank)
    return [pad_rows(short, work.shape[0]), info.at[_calls.MADE_ON].set(1)]


locate_p = _define(
    "jaxmg_locate",
    Operation(
        block=_calls.locate,
        one_device=_locate_one_device,
        pad=lambda r, *arrays: arrays,
        specs=lambda layout: (
            (_rows(layout), _vector(layout), REPLICATED),
            (_rows(layout), REPLICATED),
        ),
    ),
    _locate_types,
    batch_factor_operation,
)


# --- block-cyclic storage --------------------------------------------------------------------


def cyclic_order(n: int, ranks: int, tile: int, rows: int) -> np.ndarray:
    """For each row of block-cyclic storage, `rows` to a rank, the row of A there (n: none)."""
    index = np.arange(n)
    tiles = index // tile
    place = (tiles % ranks) * rows + (tiles // ranks) * tile + index % tile
    order = np.full(ranks * rows, n)
    order[place] = index
    return order


def _cyclic_block(r: Resolved, ctx: Array, a: Array, *, inverse: bool) -> list[Array]:
    a = pad_rows(a, r.rows)
    a = _calls.cyclic(ctx, a, n=r.n, tile=r.tile, inverse=inverse)
    return [a[: -(-r.n // r.layout.ranks)] if inverse else a]


def _cyclic_one_device(r: Resolved, a: Array, *, inverse: bool) -> list[Array]:
    order = cyclic_order(r.n, r.layout.ranks, r.tile, r.rows)
    if inverse:
        back = np.zeros(r.n, np.int64)
        back[order[order < r.n]] = np.flatnonzero(order < r.n)
        return [pad_rows(a[back], -(-r.n // r.layout.ranks) * r.layout.ranks)]
    padded = pad_rows(a[: r.n], r.n + 1)  # the last row is zero
    return [padded[order]]


def _cyclic_type(a: Any, *, r: Resolved, inverse: bool) -> list[Any]:
    rows = -(-r.n // r.layout.ranks) if inverse else r.rows
    shape = (rows * r.layout.ranks, a.shape[1])
    return [_typed(a, r.layout, shape, a.dtype, _rows(r.layout))]


cyclic_p = _define(
    "jaxmg_cyclic",
    Operation(
        block=_cyclic_block,
        one_device=_cyclic_one_device,
        pad=lambda r, a, inverse: [a],
        specs=lambda layout, inverse: ((_rows(layout),), (_rows(layout),)),
    ),
    _cyclic_type,
    batch_factor_operation,
)
