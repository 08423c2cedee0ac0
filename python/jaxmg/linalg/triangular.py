"""Systems with a triangular matrix."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .. import _triangular
from .._arguments import (
    broadcast_batches,
    cast,
    check_rhs,
    check_tile,
    common_dtype,
    host_or_device,
    place_matrix,
    place_rhs,
    square_matrices,
)
from .._context import on_own_mesh
from .._layout import NATURAL, AnyMesh, Resolved, resolve_plan
from .._memory import check_memory
from .._operands import constrain, on_mesh
from .._preparation import Specs
from .._resolve import check_mesh, check_specs, resolve, rhs_spec, splits_rows
from .._rows import keep_rows
from .._triangular import Form

_TRANS = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _solve(r: Resolved, form: Form, split: bool, spec: Any, a: Array, b: Array) -> Array:
    vector = b.ndim == 1
    b = on_mesh(r.layout, b[:, None] if vector else b)
    a = keep_rows(r, on_mesh(r.layout, a))
    x = _triangular.solve(r, form, a, b, split=split)
    if spec is not None and not r.layout.explicit:
        x = constrain(r.layout, x, spec)
    return x[:, 0] if vector else x


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
    *,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> Array:
    """Solves op(A) x = b with a triangular A whose rows lie on several devices.

    As ``jax.scipy.linalg.solve_triangular``. 2 n^2 operations a column of b, by a sweep over tiles
    in which all devices take part; A is read where it lies, and no device gets to hold more of it.
    BLAS: xTRSM.

    Args:
        a: the matrix, shape (..., n, n), of any sharding; float32, float64, complex64 or
            complex128 (integers are promoted). Only the triangle named by `lower` is read.
        b: right-hand sides, shape (n,), or (..., n, k) whose batch axes broadcast with those of
            `a`.
        trans: op: 0 or "N" for A, 1 or "T" for A^T, 2 or "C" for A^H.
        lower: whether A is the lower triangle of `a`, else it is the upper one.
        unit_diagonal: whether ones are read on the diagonal, whatever is there.
        overwrite_b, debug, check_finite: accepted as in SciPy and JAX, without effect.
        mesh: the mesh to work on; None finds it from `a`, `b` or the context.
        in_specs: the specs of `a` and `b`.
        T_A: rows that are solved together. None lets the plan choose.

    Returns:
        x with the shape of `b` (batch axes broadcast); rows that are split as those of `a` stay
        so. A zero on the diagonal gives infinities or NaN from its row on, as in JAX.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Derivatives: as in JAX, at any order. The gradient with respect to `a` is zero where it is not
    read.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import solve_triangular
        >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
        >>> solve_triangular(a, jnp.array([2.0, 9.0]), lower=True).tolist()
        [1.0, 2.0]
    """
    del overwrite_b, debug, check_finite
    if isinstance(trans, bool) or trans not in _TRANS:
        raise ValueError(f"trans: got {trans!r}; accepted are 0, 1, 2, 'N', 'T' and 'C'.")
    form = Form(bool(lower), _TRANS[trans], bool(unit_diagonal))
    tile, specs = check_tile(T_A), check_specs(in_specs)
    a, b = square_matrices("solve_triangular", a), host_or_device(b, "b")
    dtype = common_dtype("solve_triangular", a=a, b=b)
    a, b = cast(a, dtype), cast(b, dtype)
    if a.ndim > 2 or b.ndim > 2:
        options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "T_A": T_A}
        return _batched(
            a, b, lambda x, y: solve_triangular(x, y, trans, lower, unit_diagonal, **options)
        )
    n = a.shape[1]
    layout = resolve(a, b, n=n, mesh=check_mesh(mesh), spec=specs[0])
    if layout.kind == "manual":
        raise ValueError("solve_triangular: not available inside shard_map; call it outside.")
    check_rhs("solve_triangular", b, n)
    r = resolve_plan(layout, n, dtype, tile=tile, order=NATURAL, routine="trsm")
    check_memory("solve_triangular", r, b.shape[-1] if b.ndim > 1 else 1, in_place=True)
    spec = rhs_spec(b, specs[1], layout)
    split = splits_rows(spec, layout) and (not layout.explicit or n % layout.ranks == 0)
    a, b = place_matrix(a, layout, n), place_rhs(b, layout)
    x: Array = _solve(r, form, split, None if split else spec, a, b)
    return x


def _batched(a: Any, b: Any, function: Any) -> Array:
    """One system after the other, or spread over the devices; batch axes as in NumPy."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[-1 if vector else -2] != a.shape[-1]:
        raise ValueError(
            f"solve_triangular: b has shape {tuple(b.shape)} beside matrices of shape "
            f"{tuple(a.shape)}; accepted are (n,) for one vector and (..., n, k)."
        )
    batch = broadcast_batches("solve_triangular", a.shape[:-2], () if vector else b.shape[:-2])
    whole = a.ndim == 2
    a = a if whole else jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = b if vector else jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    for _ in batch:
        function = jax.vmap(function, (None if whole else 0, None if vector else 0))
    x: Array = function(a, b)
    return x
