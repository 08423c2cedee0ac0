"""The FFI calls as one device makes them, on its own block.

Every call names its buffer of the matrix as an alias of the result: a matrix that is dead
afterwards (an intermediate, a donated argument) is worked on in place, any other is copied by XLA
first.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._layout import BACKENDS, NATURAL, Layout, Resolved
from ._operands import pad_rows

CONTEXT_VERSION = 1
# The element of `info` in which Python notes how many ranks made a factor (0: those of the
# layout). A factor made on one device has another order of elimination.
MADE_ON = 6
# Of core/status.h: the element that says how positions are counted, and LAPACK's way.
PHASE = 3
NATURAL_ORDER = 2

Shape = jax.ShapeDtypeStruct


def unless_failed(info: Array, x: Array) -> Array:
    """x, or NaN if the call whose `info` that is failed."""
    return jnp.where(info[0] == 0, x, jnp.asarray(jnp.nan, x.dtype))


def context(
    layout: Layout,
    call_id: int,
    local_ranks: int | None = None,
    place: tuple[Any, Any] | None = None,
) -> Array:
    """int32[16]: who this device is within the call. Inside shard_map, or for one rank.

    `local_ranks`: how many of the ranks are in this process, if that is known. `place`: rank and
    group, if they are not to be asked of the mesh axes.

    The rank is a run-time value: a table of devices made when a function is traced would be
    wrong as soon as the same trace is used with another order of devices.
    """
    rank: Any = 0
    group: Any = 0
    if place is not None:
        rank, group = place
    else:
        rank = lax.axis_index(layout.axes) if layout.axes else rank
        group = lax.axis_index(layout.others) if layout.others else group
    local = layout.local_ranks if local_ranks is None else local_ranks
    values = {0: rank, 1: group, 2: layout.ranks, 3: local, 4: call_id}
    values[7] = CONTEXT_VERSION
    # From scalars alone: an array constant would become an operand of enclosing solves.
    index = lax.iota(jnp.int32, 16)
    out = jnp.zeros_like(index)
    for i, value in values.items():
        out = jnp.where(index == i, jnp.asarray(value, jnp.int32), out)
    return out


def call(target: str, results: Any, aliases: dict[int, int], *args: Any, **attrs: int) -> Any:
    run = jax.ffi.ffi_call(target, results, input_output_aliases=aliases)
    return run(*args, **{name: np.int64(value) for name, value in attrs.items()})


def potrf(r: Resolved, ctx: Array, a: Array) -> tuple[Array, Array, Array]:
    """Factors. `a` is (rows, n); returns the factor (factor_rows, n) in its place, aux and info."""
    # Tiles that are dealt out may need more rows.
    a = pad_rows(a, max(r.factor_rows, r.room))
    results = (
        Shape(a.shape, a.dtype),
        Shape((r.aux_count,), a.dtype),
        Shape((8,), jnp.int32),
    )
    work, aux, info = call(
        "jaxmg_potrf",
        results,
        {1: 0},
        ctx,
        a,
        n=r.n,
        tile=r.tile,
        natural=r.order,
        precision=r.precision,
        triangle=r.triangle,
        backend=BACKENDS[r.backend],
    )
    return work[: r.factor_rows], aux, info


def potrs(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array, b: Array, *, replicated: bool
) -> Array:
    """Solves with a factor. `b` is (n, k) on every rank, or (rows, k) if not `replicated`."""
    x: Array = call(
        "jaxmg_potrs",
        Shape(b.shape, b.dtype),
        {4: 0},
        ctx,
        work,
        aux,
        info,
        b,
        n=r.n,
        tile=r.tile,
        natural=r.order,
        replicated=int(replicated),
        backend=BACKENDS[r.backend],
    )
    return x


def posv(
    r: Resolved, ctx: Array, a: Array, b: Array, *, replicated: bool
) -> tuple[Array, Array, Array, Array]:
    """Solves and factors in one: x in the place of `b`, then what potrf returns."""
    a = pad_rows(a, max(r.factor_rows, r.room))
    results = (
        Shape(b.shape, b.dtype),
        Shape(a.shape, a.dtype),
        Shape((r.aux_count,), a.dtype),
        Shape((8,), jnp.int32),
    )
    x, work, aux, info = call(
        "jaxmg_posv",
        results,
        {1: 1, 2: 0},
        ctx,
        a,
        b,
        n=r.n,
        tile=r.tile,
        natural=r.order,
        precision=r.precision,
        triangle=r.triangle,
        replicated=int(replicated),
    )
    return x, work[: r.factor_rows], aux, info


def _of_factor(r: Resolved) -> dict[str, int]:
    return {"n": r.n, "tile": r.tile, "natural": r.order, "backend": BACKENDS[r.backend]}


def logdet(r: Resolved, ctx: Array, work: Array, info: Array) -> Array:
    """log(det(A)) from a factor."""
    result = Shape((), jnp.dtype(r.real_dtype))
    value: Array = call("jaxmg_logdet", result, {}, ctx, work, info, **_of_factor(r))
    return value


def potri(r: Resolved, ctx: Array, work: Array, aux: Array, info: Array) -> Array:
    """The rows of A^-1, in the place of the factor."""
    result = Shape(work.shape, work.dtype)
    attrs = _of_factor(r)
    x: Array = call("jaxmg_potri", result, {1: 0}, ctx, work, aux, info, **attrs)
    return x[: r.rows]


def locate_always(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array
) -> tuple[Array, Array]:
    """Restores A in the place of a failed factor and finds the first failing leading minor."""
    results = (Shape(work.shape, work.dtype), Shape((8,), jnp.int32))
    work, info = call(
        "jaxmg_locate", results, {1: 0, 3: 1}, ctx, work, aux, info, n=r.n, tile=r.tile
    )
    return work, info


def locate(r: Resolved, ctx: Array, work: Array, aux: Array, info: Array) -> tuple[Array, Array]:
    """As locate_always if the factorisation failed, else nothing.

    Elimination goes in an order of its own, so that the place where it stopped is not LAPACK's.
    """
    if r.backend != "native" or r.order == NATURAL:  # eliminates in LAPACK's order
        return work, info
    found: tuple[Array, Array] = lax.cond(
        info[0] > 0,
        lambda work, aux, info: locate_always(r, ctx, work, aux, info),
        lambda work, aux, info: (work, info),
        work,
        aux,
        info,
    )
    return found


def trsm(
    r: Resolved,
    ctx: Array,
    a: Array,
    b: Array,
    *,
    upper: bool,
    transpose: int,
    unit: bool,
    replicated: bool,
) -> Array:
    """Solves op(A) x = b with one triangle of A, in the order of `r`. `b` as for potrs."""
    x: Array = call(
        "jaxmg_trsm",
        Shape(b.shape, b.dtype),
        {2: 0},
        ctx,
        a,
        b,
        n=r.n,
        tile=r.tile,
        natural=r.order,
        triangle=int(upper),
        transpose=transpose,
        unit=int(unit),
        replicated=int(replicated),
    )
    return x


def mirror(r: Resolved, ctx: Array, a: Array, *, upper: bool) -> Array:
    """Writes the conjugate transpose of one triangle of A, which is valid, to the other one."""
    result = Shape(a.shape, a.dtype)
    attrs = {"n": r.n, "tile": r.tile, "triangle": int(upper)}
    out: Array = call("jaxmg_mirror", result, {1: 0}, ctx, a, **attrs)
    return out


def cholupdate(
    r: Resolved, ctx: Array, work: Array, aux: Array, info: Array, v: Array, *, downdate: bool
) -> tuple[Array, Array, Array]:
    """The factor of A + v v^H, or A - v v^H, in place; `v` is (n, k) on every rank."""
    results = tuple(Shape(x.shape, x.dtype) for x in (work, aux, info))
    work, aux, info = call(
        "jaxmg_cholupdate",
        results,
        {1: 0, 2: 1, 3: 2},
        ctx,
        work,
        aux,
        info,
        v,
        n=r.n,
        tile=r.tile,
        natural=r.order,
        downdate=int(downdate),
    )
    return work, aux, info


def cyclic(ctx: Array, a: Array, *, n: int, tile: int, inverse: bool) -> Array:
    """Moves rows between contiguous and block-cyclic storage, in place."""
    out: Array = call(
        "jaxmg_cyclic",
        Shape(a.shape, a.dtype),
        {1: 0},
        ctx,
        a,
        n=n,
        tile=tile,
        inverse=int(inverse),
    )
    return out
