"""Forms of the routines for callers who manage ``jit`` or ``shard_map`` themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from . import _cholesky
from ._arguments import check_tile, host_or_device, precision_of
from ._context import calling_on
from ._layout import AnyMesh
from ._potri import prepare_inverse, run_inverse
from ._potrs import run
from ._preparation import Specs, prepare
from ._resolve import check_mesh, check_specs, manual_axes
from ._syevd import eigen, prepare_eigen


def potrs_shardmap_ctx(
    a: Any,
    b: Any,
    T_A: int | None = None,
    mesh: AnyMesh | bool | None = None,
    matrix_specs: Specs = None,
    *,
    in_specs: Specs = None,
    return_logdet: bool = False,
    pad: bool = True,
    lower: bool | None = None,
    n: int | None = None,
) -> tuple[Array, ...]:
    """Solves A x = b, with A Hermitian positive definite, in a context of the caller's.

    Inside the caller's ``shard_map``, `a` is the block of rows of one device, of shape
    (ceil(n / devices), n), and `b` is the whole right-hand side, equal on all devices. The fourth
    positional argument may then be `pad`.

    Outside of one, `a` and `b` are global arrays, and the work buffer that takes the place of `a`
    is returned first: a caller whose ``jax.jit`` donates `a` and returns that buffer has the
    matrix overwritten in place.

    Args:
        a: the matrix, or a block of it.
        b: right-hand sides, shape (n,) or (n, k).
        T_A: rows that are eliminated together. None lets the plan choose.
        mesh: outside of shard_map, the mesh to work on.
        matrix_specs: outside of shard_map, the spec of the matrix (and that of b).
        in_specs: another name of `matrix_specs`.
        return_logdet: whether to return log(det(A)) too.
        pad: False says that blocks are padded by ``calculate_padding(rows, T_A)`` rows already.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        n: the true size of a matrix whose rows are padded.

    Returns:
        Inside of shard_map ``(x, [logdet,] status)``, outside ``(a_work, x, [logdet,] status)``.
        The status is an int32 array of shape (1,); its numbers are those of
        :func:`jaxmg.potrs`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    if isinstance(mesh, bool):
        pad = mesh
        mesh = None
    inside = bool(manual_axes(jax.sharding.get_abstract_mesh()))
    call, a, b = prepare(
        "potrs_shardmap_ctx",
        a,
        b,
        tile=check_tile(T_A),
        mesh=check_mesh(mesh),
        specs=check_specs(in_specs, matrix_specs),
        pad=pad,
        lower=lower,
        n=n,
        exposed=not inside,
        precision=precision_of(None),
    )
    call = dataclasses.replace(
        call, want_status=True, want_logdet=return_logdet, keep_work=not inside
    )
    with calling_on(call.r.layout):
        out = run(call, a, b)
    results = [] if inside else [out.work]
    results.append(out.x)
    if return_logdet:
        results.append(out.logdet)
    return (*results, _cholesky.status(out.info).reshape(1))


def potri_shardmap_ctx(
    a: Any,
    T_A: int | None = None,
    mesh: AnyMesh | bool | None = None,
    matrix_specs: Specs = None,
    *,
    in_specs: Specs = None,
    pad: bool = True,
    lower: bool | None = None,
    n: int | None = None,
) -> tuple[Array, Array]:
    """Inverts A, Hermitian positive definite, in a context of the caller's.

    Inside the caller's ``shard_map``, `a` is the block of rows of one device, of shape
    (ceil(n / devices), n). The third positional argument may then be `pad`.

    Outside of one, `a` is a global array, and the inverse takes the place of its work buffer: a
    caller whose ``jax.jit`` donates `a` and returns the inverse has the matrix overwritten.

    Args:
        a: the matrix, or a block of it.
        T_A: rows that are eliminated together. None lets the plan choose.
        mesh: outside of shard_map, the mesh to work on.
        matrix_specs: outside of shard_map, the spec of the matrix.
        in_specs: another name of `matrix_specs`.
        pad: False says that blocks are padded by ``calculate_padding(rows, T_A)`` rows already.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        n: the true size of a matrix whose rows are padded.

    Returns:
        (inverse, status): the rows of A^-1, both triangles, and the status as an int32 array of
        shape (1,). See :func:`jaxmg.potri`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    if isinstance(mesh, bool):
        pad = mesh
        mesh = None
    call, a = prepare_inverse(
        "potri_shardmap_ctx",
        host_or_device(a, "a"),
        T_A,
        mesh=check_mesh(mesh),
        in_specs=in_specs,
        matrix_specs=matrix_specs,
        pad=pad,
        lower=lower,
        precision=None,
        n=n,
    )
    call = dataclasses.replace(call, want_status=True)
    with calling_on(call.r.layout):
        out = run_inverse(call, a)
    return out.inverse, _cholesky.status(out.info).reshape(1)


def potri_symmetrize(a: Any) -> Any:
    """The Hermitian matrix of which the upper triangle of `a` holds one half.

    Package 0.0.9 needs it after ``potri_shardmap_ctx``; the inverses of this package are whole
    already, and stay as they are. The result has the sharding of `a`.
    """
    upper = jnp.triu(jnp.asarray(a))
    lower = jnp.conj(jnp.swapaxes(jnp.triu(upper, 1), -1, -2))
    kind = jax.typeof(upper).sharding
    if any(entry is not None for entry in kind.spec):  # Explicit axes
        lower = jax.sharding.reshard(lower, kind)
    return upper + lower


def syevd_shardmap_ctx(
    a: Any,
    T_A: int | None = None,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Specs = None,
    return_eigenvectors: bool = True,
    pad: bool = True,
    lower: bool | None = None,
    n: int | None = None,
) -> tuple[Any, ...]:
    """Eigenvalues and eigenvectors in a context of the caller's; see :func:`jaxmg.syevd`.

    Inside the caller's ``shard_map``, `a` is the block of rows of one device, of shape
    (ceil(n / devices), n). The third and fourth positional arguments may then be
    `return_eigenvectors` and `pad`, as in package 0.0.9.

    Outside of one, `a` is a global array, and a matrix with the type of `a` comes first, as in
    package 1.4.1, where it is a work buffer; here it is `a`.

    Returns:
        Inside of shard_map ``(w, [V,] status)``, with the rows of V that belong to this device;
        outside ``(a, w, [V,] status)``. The status is an int32 array of shape (1,).

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
    """
    if isinstance(mesh, bool):
        return_eigenvectors, mesh = mesh, None
    if isinstance(matrix_specs, bool):
        pad, matrix_specs = matrix_specs, None
    inside = bool(manual_axes(jax.sharding.get_abstract_mesh()))
    call, operand = prepare_eigen(
        "syevd_shardmap_ctx",
        a,
        T_A,
        mesh=mesh,
        in_specs=in_specs,
        matrix_specs=matrix_specs,
        pad=pad,
        lower=lower,
        n=n,
        vectors=return_eigenvectors,
    )
    out = eigen(call, operand)
    results = [] if inside else [operand]
    results.append(out.values)
    if return_eigenvectors:
        results.append(call.operand.leave(out.right, call.operand.columns, padded=n is not None))
    return (*results, _cholesky.status(out.info).reshape(1))
