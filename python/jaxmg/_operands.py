"""Small steps on global arrays that depend on how their shardings are known.

With Auto axes a sharding is a request and XLA finds the rest. With Explicit axes it is a part of
the type, and operands must be re-distributed by name before they meet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from ._layout import Layout
from ._resolve import axis_names


def type_spec(x: Any) -> PartitionSpec:
    """The spec in the type of an array with Explicit axes."""
    spec: PartitionSpec = jax.typeof(x).sharding.spec
    return spec


def is_split(spec: PartitionSpec, dims: tuple[int, ...] | None = None) -> bool:
    entries = tuple(spec)
    chosen = entries if dims is None else tuple(entries[i] for i in dims if i < len(entries))
    return any(axis_names(entry) for entry in chosen)


def reshard(layout: Layout, x: Array, spec: PartitionSpec) -> Array:
    """Explicit axes: gives `x` the typed sharding `spec`; otherwise does nothing."""
    if not layout.explicit:
        return x
    wanted = layout.typed(spec)
    have = tuple(type_spec(x)) + (None,) * (x.ndim - len(type_spec(x)))
    want = tuple(wanted.spec) + (None,) * (x.ndim - len(wanted.spec))
    if tuple(map(axis_names, have)) == tuple(map(axis_names, want)):
        return x
    out: Array = jax.sharding.reshard(x, wanted)
    return out


def gathered(layout: Layout, x: Array) -> Array:
    """Explicit axes: `x` whole on every device, if its type says that it is split."""
    if layout.explicit and is_split(type_spec(x)):
        return reshard(layout, x, PartitionSpec(*(None,) * x.ndim))
    return x


def like(layout: Layout, x: Array, other: Array) -> Array:
    """Explicit axes: gives `x` the typed sharding of `other`."""
    if not layout.explicit:
        return x
    return reshard(layout, x, type_spec(other))


def constrain_rows(layout: Layout, x: Array) -> Array:
    """Auto axes: keeps the rows of `x`, and of its cotangent, split over the ranks."""
    if layout.kind != "dist" or layout.explicit:
        return x
    return lax.with_sharding_constraint(x, layout.sharding(layout.rows_spec))


def constrain(layout: Layout, x: Array, spec: PartitionSpec) -> Array:
    """Asks for a sharding of a result, whatever the kind of axes."""
    if layout.kind != "dist":
        return x
    if layout.explicit:
        return reshard(layout, x, spec)
    return lax.with_sharding_constraint(x, layout.sharding(spec))


def pad_rows(x: Array, rows: int) -> Array:
    """Appends zero rows (elements) until there are `rows`."""
    missing = rows - x.shape[0]
    if missing == 0:
        return x
    return jnp.pad(x, ((0, missing),) + ((0, 0),) * (x.ndim - 1))


def on_mesh(layout: Layout, x: Array) -> Array:
    """Explicit axes: gives an array made from nothing, whose type shows no mesh, one."""
    if layout.explicit and jax.typeof(x).sharding.mesh.empty:
        out: Array = jax.sharding.reshard(x, layout.typed(PartitionSpec(*(None,) * x.ndim)))
        return out
    return x


def on_all_devices(layout: Layout, x: Array) -> Array:
    """Auto axes: says in the program that it is for the devices of a concrete mesh.

    JAX looks for that in the operands and in constraints before it lowers a program. What the
    primitives of this package become when they are lowered comes too late for it.
    """
    if layout.kind != "dist" or layout.explicit or not isinstance(layout.mesh, Mesh):
        return x
    return lax.with_sharding_constraint(x, layout.sharding(PartitionSpec(*(None,) * x.ndim)))


def places(a: Array, first_row: Any = 0) -> tuple[Array, Array]:
    """Row and column of each element, split over devices as the type of `a` shows."""
    rows = first_row + lax.broadcasted_iota(jnp.int32, a.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, a.shape, 1)
    kind = jax.typeof(a).sharding
    if any(entry is not None for entry in kind.spec):
        return jax.sharding.reshard(rows, kind), jax.sharding.reshard(columns, kind)
    return rows, columns
