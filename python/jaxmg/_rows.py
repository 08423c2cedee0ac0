"""The identity, as a request that the rows of a matrix, and of its cotangent, lie on the ranks.

As ``with_sharding_constraint``, but a batch that is going to be spread over the devices is asked
to lie there by members instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from ._batching import spread_axes

rows_p = Primitive("jaxmg_rows")


def _constrained(x: Array, *, r: Any, batch: int = 0) -> Array:
    """Asks for rows split over the ranks; `batch`: axes in front of them.

    An uneven split is asked of padded rows: as the sharding of a result that is not divisible,
    XLA would make one of it that is over a part of a mesh axis and has no name in JAX.
    """
    rows = x.shape[batch]
    missing = -rows % r.layout.ranks
    padded = jnp.pad(x, [(0, missing if i == batch else 0) for i in range(x.ndim)])
    spec = PartitionSpec(*(None,) * batch, r.layout.axes)
    padded = lax.with_sharding_constraint(padded, r.layout.sharding(spec))
    return lax.slice_in_dim(padded, 0, rows, axis=batch)


@functools.partial(jax.jit, static_argnames="r")
def _compiled(x: Array, *, r: Any) -> Array:
    out: Array = rows_p.bind(x, r=r)
    return out


def _eager(x: Array, *, r: Any) -> Array:
    with jax.disable_jit(False):  # it would come back here
        out: Array = _compiled(x, r=r)
    return out


def _batched(arrays: Sequence[Array], dims: Sequence[int], *, r: Any) -> tuple[Array, int]:
    x = jnp.moveaxis(arrays[0], dims[0], 0)
    axes = spread_axes(r, x)
    if not axes:
        return _constrained(x, r=r, batch=1), 0
    assert r.layout.mesh is not None
    if x.shape[0] % math.prod(r.layout.mesh.shape[axis] for axis in axes):
        return x, 0
    return lax.with_sharding_constraint(x, r.layout.sharding(PartitionSpec(axes))), 0


rows_p.def_impl(_eager)
rows_p.def_abstract_eval(lambda x, *, r: x)
mlir.register_lowering(rows_p, mlir.lower_fun(_constrained, multiple_results=False))
ad.deflinear2(rows_p, lambda cotangent, x, *, r: [rows_p.bind(cotangent, r=r)])
batching.primitive_batchers[rows_p] = _batched


def keep_rows(r: Any, x: Array) -> Array:
    """Auto axes: pins the rows of `x` and of its cotangent; otherwise does nothing."""
    if r.layout.kind != "dist" or r.layout.explicit:
        return x
    out: Array = rows_p.bind(x, r=r)
    return out
