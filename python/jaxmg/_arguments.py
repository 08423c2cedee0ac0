"""Checks and conversions of what the user passes. Every message names the argument."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._layout import BACKENDS, DTYPES, Layout
from ._resolve import is_concrete
from .errors import JaxMgWarning

SUPPORTED = tuple(DTYPES)
NATIVE = ("highest", "float32", "float64")
PRECISIONS = ("default", "high", "mixed", *NATIVE)
CUSOLVERMG_ROUTINES = ("potrs", "potrf", "potri", "logdet", "lu_solve", "getrf", "syevd")
LARGEST = 1 << 28  # sizes that the engine plans for


def host_or_device(x: Any, name: str) -> Any:
    """`x` as a jax.Array if it is one, else as a NumPy array that is still on the host."""
    if isinstance(x, jax.Array):
        return x
    try:
        array = np.asarray(x)
    except Exception as error:
        raise TypeError(f"{name}: cannot make an array of {type(x).__name__}: {error}") from error
    if array.dtype.kind in "OSUMm":
        found = type(x).__name__ if array.dtype == object else f"dtype {array.dtype}"
        raise TypeError(f"{name}: got {found}; accepted are arrays of numbers.")
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name}: got a masked array; fill it in with {name}.filled(...) first.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def common_dtype(routine: str, *, callers: int = 2, **arrays: Any) -> str:
    """The element type that JAX's promotion gives, as its name.

    A warning is that of the user, who is `callers` functions behind the one that calls this.
    """
    for name, x in arrays.items():
        kind = jnp.dtype(x.dtype)
        if jnp.issubdtype(kind, jnp.inexact) and kind.name not in SUPPORTED:
            raise TypeError(
                f"{routine}: {name} has dtype {kind.name}; supported are "
                f"{', '.join(SUPPORTED)}. Convert it with {name}.astype(...) first."
            )
    dtype = jnp.result_type(*arrays.values())
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = jnp.promote_types(dtype, jnp.result_type(float))
    if dtype.name not in SUPPORTED:
        found = ", ".join(f"{name}: {x.dtype}" for name, x in arrays.items())
        raise TypeError(
            f"{routine}: got dtypes {found}, which promote to {dtype.name}; supported are "
            f"{', '.join(SUPPORTED)}."
        )
    for name, x in arrays.items():
        wide = isinstance(x, np.ndarray) and x.dtype.name in ("float64", "complex128")
        if wide and dtype.name in ("float32", "complex64"):
            warnings.warn(
                f"{routine}: {name} is {x.dtype.name} but JAX works in 32 bits; it is cut to "
                f'{dtype.name}. jax.config.update("jax_enable_x64", True) keeps 64 bits.',
                JaxMgWarning,
                stacklevel=2 + callers,
            )
    return str(dtype.name)


def dtype_of_factor(routine: str, factor: Any, **operand: Any) -> str:
    """The element type of a factor, which that of the operand beside it must not widen."""
    ((name, x),) = operand.items()
    dtype = common_dtype(routine, callers=3, factor=factor, **operand)
    if dtype != factor.dtype:
        raise TypeError(
            f"{routine}: {name} has dtype {x.dtype} beside a factor of {factor.dtype}; factor the "
            f"matrix as {dtype} first."
        )
    return dtype


def cast(x: Any, dtype: str) -> Any:
    """`x` with the element type `dtype`, on the host if it is there."""
    return x if x.dtype == np.dtype(dtype) else x.astype(dtype)


def check_matrix(routine: str, a: Any) -> None:
    if a.ndim != 2:
        hint = ""
        if a.ndim > 2:
            hint = " For a batch of matrices use jax.vmap, or the functions of jaxmg.linalg."
        raise ValueError(
            f"{routine}: a has shape {tuple(a.shape)}; accepted is one matrix (n, n).{hint}"
        )


def square_matrices(routine: str, a: Any) -> Any:
    """`a` as matrices (..., n, n), or a block of one inside shard_map."""
    a = host_or_device(a, "a")
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        manual = a.ndim == 2 and isinstance(a, jax.core.Tracer)
        if not manual:
            raise ValueError(
                f"{routine}: a has shape {tuple(a.shape)}; accepted are matrices (..., n, n)."
            )
    return a


def check_rhs(routine: str, b: Any, n: int) -> None:
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(
            f"{routine}: b has shape {tuple(b.shape)} beside a matrix of size {n}; accepted are "
            f"({n},) for one vector and ({n}, k) for k of them."
        )


def check_tile(T_A: Any) -> int:
    """The tile size as a number, 0 for None."""
    if T_A is None:
        return 0
    try:
        tile = int(T_A)
    except (TypeError, ValueError, OverflowError):
        tile = -1
    if isinstance(T_A, bool) or tile != T_A or tile < 1:
        raise ValueError(f"T_A: got {T_A!r}; accepted are None (chosen for you) and integers >= 1.")
    return min(tile, LARGEST)


def check_backend(routine: str, backend: Any) -> str:
    """The backend's name; whether it is there depends on the devices (_native.require_backend)."""
    if backend is None:
        return "native"
    known = BACKENDS if routine in CUSOLVERMG_ROUTINES else ("native",)
    if not isinstance(backend, str) or backend not in known:
        accepted = ", ".join(repr(name) for name in known)
        raise ValueError(f"backend: got {backend!r} for {routine}; accepted are None, {accepted}.")
    return backend


def precision_of(precision: Any) -> int:
    """0: products in the element type, 1: 32-bit ones by half-precision parts where that is faster,
    2: as 1, and 64-bit solves by a 32-bit factor and refinement. The names are in _layout.

    None asks JAX's own setting, ``jax_default_matmul_precision``.
    """
    if precision is None:
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        return 0 if str(precision).lower() in NATIVE else 1
    name = getattr(precision, "name", precision)
    name = name.lower() if isinstance(name, str) else name
    if name not in PRECISIONS:
        raise ValueError(f"precision: got {precision!r}; accepted are {(None, *PRECISIONS)}.")
    if name == "mixed":
        return 2
    return 0 if name in NATIVE else 1


def broadcast_batches(routine: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the batch of a matrix batch `a` and a right-hand side batch `b`."""
    try:
        return jnp.broadcast_shapes(a, b)
    except ValueError as error:
        raise ValueError(
            f"{routine}: b has batch axes {b} beside matrices with batch axes {a}; accepted are "
            "axes that broadcast."
        ) from error


def triangle_of(lower: Any) -> int:
    """-1: all of A is valid, 0: the lower triangle, 1: the upper one."""
    if lower is None:
        return -1
    if lower is True or lower is False or isinstance(lower, np.bool_):
        return 0 if lower else 1
    raise ValueError(f"lower: got {lower!r}; accepted are None, True and False.")


@functools.lru_cache(maxsize=64)
def _devices(mesh: Mesh) -> frozenset[Any]:
    return frozenset(mesh.devices.flat)


def _concrete_mesh(layout: Layout) -> Mesh | None:
    if isinstance(layout.mesh, Mesh):
        return layout.mesh
    get = getattr(jax.sharding, "get_mesh", None)
    if layout.mesh is None or get is None:
        return None
    try:
        mesh = get()
    except ValueError:  # under jit only the abstract mesh is known
        return None
    return mesh if isinstance(mesh, Mesh) and not mesh.empty else None


def _check_devices(x: Any, name: str, mesh: Mesh) -> None:
    """Raises for an array that is spread over other devices than those of the mesh."""
    have = x.sharding.device_set
    if len(have) > 1 and have != _devices(mesh):
        raise ValueError(
            f"{name}: lies on {len(have)} devices, {sorted(d.id for d in have)}, and the mesh of "
            f"the call has {mesh.size}, {sorted(d.id for d in _devices(mesh))}. Move it with "
            "jax.device_put first, or give mesh= the mesh of the array."
        )


def release(given: Any) -> None:
    """Deletes an array that the caller gave away, also if a copy of it was worked on.

    One that JAX took as donated is deleted once more: only then does JAX refuse it by a message
    wherever it is used. A program that was compiled before would crash (jax 0.10).
    """
    if is_concrete(given):
        given.delete()


@contextlib.contextmanager
def giving_away(*given: Any) -> Iterator[None]:
    """Around a call that may take over the buffers of arrays, which are gone afterwards."""
    with warnings.catch_warnings():
        # A matrix that must be moved or padded first cannot be overwritten; it is only freed.
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield
    for x in given:
        release(x)


def place_matrix(a: Any, layout: Layout, n: int) -> Any:
    """Brings a matrix that is on the host, or whole on one device, to the mesh, rows split."""
    mesh = _concrete_mesh(layout) if layout.kind == "dist" else None
    on_host = isinstance(a, np.ndarray)
    if mesh is None or not (on_host or is_concrete(a)):
        return jnp.asarray(a) if on_host else a
    if not on_host:
        _check_devices(a, "a", mesh)
        if len(a.sharding.device_set) > 1 or a.sharding.device_set == _devices(mesh):
            return a
    rows = -(-n // layout.ranks) * layout.ranks
    if a.shape[0] < rows:
        pad = ((0, rows - a.shape[0]), (0, 0))
        a = np.pad(a, pad) if on_host else jnp.pad(a, pad)
    return jax.device_put(a, NamedSharding(mesh, layout.rows_spec))


def place_rhs(b: Any, layout: Layout) -> Any:
    """Brings a right-hand side that is on the host or on one device to the mesh, if it must be."""
    mesh = _concrete_mesh(layout) if layout.kind == "dist" else None
    on_host = isinstance(b, np.ndarray)
    if mesh is None or not (on_host or is_concrete(b)):
        return jnp.asarray(b) if on_host else b
    if not on_host:
        _check_devices(b, "b", mesh)
        if len(b.sharding.device_set) > 1 or b.sharding.device_set == _devices(mesh):
            return b
    if on_host or layout.explicit or getattr(b, "committed", True):
        return jax.device_put(b, NamedSharding(mesh, PartitionSpec()))
    return b
