"""What ``jax.vmap`` makes of the primitives.

A batch of right-hand sides of one factor becomes columns of one solve. A batch of matrices is
either worked on one after the other, each by all devices, or spread over the devices, each
device taking whole matrices for itself. It is spread when the batch axis is the one that is
split (which a type with Explicit axes shows), and when there are at least as many matrices as
devices. A factor that the user gets to see is not spread without need, so that members of a
batch of factors can be used one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec

from ._layout import Resolved
from ._operands import reshard, type_spec
from ._resolve import axis_names

OneDevice = Callable[..., Sequence[Array]]


def _to_front(arrays: Sequence[Array], dims: Sequence[int | None]) -> list[Array]:
    moved = zip(arrays, dims, strict=True)
    return [x if d is None else jnp.moveaxis(x, d, 0) for x, d in moved]


def spread_axes(r: Any, first: Array) -> tuple[str, ...]:
    """The mesh axes to spread a batch of matrices over (none: one after the other)."""
    layout = r.layout
    if layout.kind != "dist":
        return ()
    if layout.explicit:
        return axis_names(type_spec(first)[0])
    if r.exposed or first.shape[0] < layout.ranks:
        return ()
    return layout.axes


def _split(arrays: Sequence[Array], batched: Sequence[bool]) -> tuple[list[Array], list[Array]]:
    pairs = list(zip(arrays, batched, strict=True))
    return [x for x, is_in in pairs if is_in], [x for x, is_in in pairs if not is_in]


def _join(inner: Sequence[Array], outer: Sequence[Array], batched: Sequence[bool]) -> list[Array]:
    ins, outs = iter(inner), iter(outer)
    return [next(ins) if is_in else next(outs) for is_in in batched]


def in_turn(call: Callable[..., Any], arrays: Sequence[Array], batched: Sequence[bool]) -> Any:
    """One call after the other, each on all devices."""
    inner, outer = _split(arrays, batched)
    return lax.map(lambda xs: call(*_join(xs, outer, batched)), inner)


def _spread(
    call: Callable[..., Any],
    r: Any,
    axes: tuple[str, ...],
    arrays: Sequence[Array],
    batched: Sequence[bool],
) -> Any:
    """Each device takes a part of the batch; no device waits for another."""
    layout = r.layout
    assert layout.mesh is not None
    size = math.prod(layout.mesh.shape[axis] for axis in axes)
    inner, outer = _split(arrays, batched)
    count = inner[0].shape[0]
    extra = -count % size
    if extra:
        repeated = [jnp.concatenate([x] * (1 + -(-extra // count)))[: count + extra] for x in inner]
        inner = repeated
    ins = [PartitionSpec(axes, *(None,) * (x.ndim - 1)) for x in inner]
    inner = [reshard(layout, x, spec) for x, spec in zip(inner, ins, strict=True)]
    outs = [PartitionSpec(*(None,) * x.ndim) for x in outer]
    outer = [reshard(layout, x, spec) for x, spec in zip(outer, outs, strict=True)]

    def body(inner: list[Array], outer: list[Array]) -> Any:
        return lax.map(lambda xs: list(call(*_join(xs, outer, batched))), inner)

    results = jax.shard_map(
        body,
        mesh=layout.mesh,
        in_specs=(ins, outs),
        out_specs=PartitionSpec(axes),
        check_vma=False,
    )(inner, outer)
    return [x[:count] for x in results] if extra else results


def batch_factor_operation(
    primitive: Primitive,
    one_device: OneDevice,
    arrays: Sequence[Array],
    dims: Sequence[int | None],
    *,
    r: Any,
    **params: Any,
) -> tuple[Sequence[Array], Sequence[int]]:
    """Rule for operations one of whose operands, as a rule a matrix or a factor, is batched."""
    arrays = _to_front(arrays, dims)
    batched = [d is not None for d in dims]
    axes = spread_axes(r, arrays[batched.index(True)])
    if axes:
        results = _spread(lambda *xs: one_device(r, *xs, **params), r, axes, arrays, batched)
    else:
        results = in_turn(lambda *xs: primitive.bind(*xs, r=r, **params), arrays, batched)
    return results, [0] * len(results)


def batch_solution(
    primitive: Primitive,
    one_device: OneDevice,
    arrays: Sequence[Array],
    dims: Sequence[int | None],
    *,
    r: Resolved,
    **params: Any,
) -> tuple[Sequence[Array], Sequence[int | None]]:
    """Rule for solutions: right-hand sides of one matrix are columns of one solve.

    They are the last operand, and the solutions the first result.
    """
    if any(d is not None for d in dims[:-1]):
        return batch_factor_operation(primitive, one_device, arrays, dims, r=r, **params)
    *factor, b = arrays
    d = dims[-1]
    assert d is not None
    b = jnp.moveaxis(b, d, 1)  # (rows, batch, columns)
    rows, count, columns = b.shape
    spec = type_spec(b) if r.layout.explicit else PartitionSpec(None, None, None)
    b = reshard(r.layout, b, PartitionSpec(spec[0], None, None))
    x, *rest = primitive.bind(*factor, b.reshape(rows, count * columns), r=r, **params)
    x = x.reshape(rows, count, columns)
    return [reshard(r.layout, x, spec), *rest], [1, *[None] * len(rest)]


def batch_rhs_operation(
    primitive: Primitive,
    one_device: OneDevice,
    arrays: Sequence[Array],
    dims: Sequence[int | None],
    *,
    r: Any,
    **params: Any,
) -> tuple[Sequence[Array], Sequence[int | None]]:
    """Rule for (*factor, b) -> (x, ...): right-hand sides of one factor become columns.

    Results with two axes are taken for solutions, others for what does not depend on b.
    """
    *factor, b = arrays
    if any(d is not None for d in dims[:-1]):
        return batch_factor_operation(primitive, one_device, arrays, dims, r=r, **params)
    (d,) = [d for d in dims if d is not None]
    b = jnp.moveaxis(b, d, 1)  # (rows, batch, columns)
    rows, count, columns = b.shape
    spec = type_spec(b) if r.layout.explicit else PartitionSpec(None, None, None)
    b = reshard(r.layout, b, PartitionSpec(spec[0], None, None))
    results = primitive.bind(*factor, b.reshape(rows, count * columns), r=r, **params)
    out = [x.reshape(x.shape[0], count, columns) if x.ndim == 2 else x for x in results]
    return out, [1 if x.ndim == 2 else None for x in results]
