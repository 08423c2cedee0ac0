"""The QR factor as an object that users keep, pass around and solve with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from . import _cholesky, _lstsq, _qr
from ._arguments import (
    cast,
    check_tile,
    common_dtype,
    dtype_of_factor,
    host_or_device,
    place_matrix,
    place_rhs,
)
from ._cholesky import Factor
from ._context import on_own_mesh
from ._dot import dot
from ._layout import AnyMesh
from ._memory import check_qr_memory
from ._operands import gathered, on_mesh, pad_rows, reshard
from ._preparation import Specs
from ._qr_api import check_rectangular, layout_of
from ._qr_layout import QrLayout, resolve_qr
from ._qr_primitives import ormqr_p
from ._resolve import check_specs, is_concrete


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _factorise(r: QrLayout, a: Array) -> Factor:
    return _qr.factor(r, _qr.enter(r, a))


def _rows(r: QrLayout, x: Array, rows: int) -> Array:
    x = pad_rows(on_mesh(r.layout, x), rows)
    return reshard(r.layout, x, r.layout.rows_spec)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _multiply(r: QrLayout, adjoint: bool, a: Array, c: Array, f: Factor) -> Array:
    (out,) = ormqr_p.bind(*f, c, r=r, adjoint=adjoint)
    return out


@_multiply.defjvp
def _multiply_jvp(r: QrLayout, adjoint: bool, primals: Any, tangents: Any) -> Any:
    """From Q in full, which has a derivative."""
    a, c, f = primals

    def in_full(a: Array, c: Array) -> Array:
        q, _ = _qr.q_and_r(r, a, *f)
        out = _qr.adjoint_product(r, q, c) if adjoint else dot(q, gathered(r.layout, c)[: r.rank])
        return _rows(r, out, r.padded_rank) if adjoint else out

    _, tangent = jax.jvp(in_full, (a, c), tuple(tangents[:2]))
    return _multiply(r, adjoint, a, c, f), tangent


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1))
def _apply(r: QrLayout, adjoint: bool, a: Array, f: Factor, c: Array) -> Array:
    c = _rows(r, c, r.padded_rows if adjoint else r.padded_rank)
    f = Factor(*(jax.lax.stop_gradient(x) for x in f))
    return _multiply(r, adjoint, _qr.enter(r, a), c, f)


@on_own_mesh
@functools.partial(jax.jit, static_argnums=(0, 1))
def _solve(r: QrLayout, adjoint: bool, a: Array, f: Factor, b: Array) -> Array:
    tall, t = _lstsq.Tall(f), _qr.enter(r, a)
    if adjoint:
        y, _ = _lstsq.minimum_norm(r, t, gathered(r.layout, on_mesh(r.layout, b)), tall)
        return y
    x, _ = _lstsq.least_squares(r, t, _rows(r, b, r.padded_rows), tall)
    return x


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _q(r: QrLayout, a: Array, f: Factor) -> Array:
    return _qr.q_and_r(r, _qr.enter(r, a), *(jax.lax.stop_gradient(x) for x in f))[0]


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _r(r: QrLayout, a: Array, f: Factor) -> Array:
    return _qr.r_alone(r, _qr.enter(r, a), *(jax.lax.stop_gradient(x) for x in f))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["a", "parts"], meta_fields=["qr"])
@dataclasses.dataclass(frozen=True, eq=False)
class QRFactor:
    """A QR factorisation that stays spread over the devices. A pytree.

    Made by :func:`jaxmg.linalg.qr_factor`. It passes through ``jit``, ``grad``, ``vmap`` and
    ``scan``; derivatives flow through the matrix that it was made of.

    Attributes:
        a: the matrix, shape (m, n).
        parts: the arrays of the factor, in a form of its own.
        qr: layout, sizes and element type.
    """

    a: Any
    parts: Factor
    qr: QrLayout

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix, batch axes first."""
        return (*self.parts.work.shape[:-2], self.qr.m, self.qr.n)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return jnp.dtype(self.qr.dtype)

    @property
    def status(self) -> Array:
        """0, or -1 if the matrix holds NaN or an infinity."""
        return _cholesky.jitted_status(self.parts.info)

    def q(self) -> Array:
        """Q, shape (m, k) with k = min(m, n), its rows on the devices as those of the matrix."""
        out: Array = self._mapped(lambda f: _qr.trim(f.qr, _q(f.qr, f.a, f.parts), f.qr.m))
        return out

    def r(self) -> Array:
        """R, shape (k, n)."""
        out: Array = self._mapped(lambda f: _qr.trim(f.qr, _r(f.qr, f.a, f.parts), f.qr.rank))
        return out

    def apply_q(self, c: Any) -> Array:
        """Q c for c of shape (k,) or (k, p): (m,) or (m, p). Q is not formed. LAPACK: xORMQR."""
        return self._on_columns("apply_q", c, self.qr.rank, self.qr.m, _apply, False)

    def apply_qh(self, c: Any) -> Array:
        """Q^H c for c of shape (m,) or (m, p): (k,) or (k, p). Q is not formed. LAPACK: xORMQR."""
        return self._on_columns("apply_qh", c, self.qr.m, self.qr.rank, _apply, True)

    def solve(self, b: Any) -> Array:
        """The solution x = R^-1 Q^H b of min ||A x - b||, for m >= n and A of full rank.

        Args:
            b: shape (m,) or (m, p).

        Returns:
            x, shape (n,) or (n, p); NaN if R has a zero on its diagonal.
        """
        self._require_tall("solve", "solve_adjoint")
        return self._on_columns("solve", b, self.qr.m, self.qr.n, _solve, False)

    def solve_adjoint(self, c: Any) -> Array:
        """The solution y = Q R^-H c of least norm of A^H y = c, for m >= n and A of full rank.

        Args:
            c: shape (n,) or (n, p).

        Returns:
            y, shape (m,) or (m, p); NaN if R has a zero on its diagonal.
        """
        self._require_tall("solve_adjoint", "solve")
        return self._on_columns("solve_adjoint", c, self.qr.n, self.qr.m, _solve, True)

    def _require_tall(self, name: str, other: str) -> None:
        if self.qr.m < self.qr.n:
            raise ValueError(
                f"{name}: the matrix has shape {self.shape}, with more columns than rows. Factor "
                f"its adjoint and use {other} of that."
            )

    def _mapped(self, function: Callable[..., Any]) -> Any:
        for _ in range(int(self.parts.work.ndim) - 2):
            function = jax.vmap(function)
        return function(self)

    def _on_columns(
        self, name: str, c: Any, rows: int, result: int, function: Any, adjoint: bool
    ) -> Array:
        if self.parts.work.ndim > 2:
            raise ValueError(f"{name}: a batch of factors is used by jax.vmap.")
        c = host_or_device(c, "b")
        if c.ndim not in (1, 2) or c.shape[0] != rows:
            raise ValueError(
                f"{name}: got shape {tuple(c.shape)} beside a factor of {self.shape}; accepted are "
                f"({rows},) and ({rows}, p)."
            )
        dtype = dtype_of_factor(name, self, b=c)
        c = place_rhs(cast(c, dtype), self.qr.layout)
        vector = c.ndim == 1
        c = c[:, None] if vector else c
        if c.shape[1] == 0:
            return jnp.zeros((result, 0), dtype)
        out = function(self.qr, adjoint, self.a, self.parts, c)
        out = _qr.trim(self.qr, out, result)
        return out[:, 0] if vector else out


def qr_factor(
    a: Any, *, mesh: AnyMesh | None = None, in_specs: Specs = None, T_A: int | None = None
) -> QRFactor:
    """Factors A = Q R for later use, without forming Q.

    Args:
        a: the matrix, shape (m, n), of any sharding, with at least one row and one column.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: columns that are eliminated together. None lets the plan choose.

    Returns:
        A :class:`QRFactor`.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import qr_factor
        >>> factor = qr_factor(jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
        >>> factor.solve(jnp.array([1.0, 3.0, 5.0])).round(4).tolist()
        [1.0, 2.0]
    """
    a = host_or_device(a, "a")
    check_rectangular("qr_factor", a)
    a = cast(a, common_dtype("qr_factor", a=a))
    m, n = a.shape
    if m == 0 or n == 0:
        raise ValueError(f"qr_factor: a has shape {tuple(a.shape)}; accepted are m, n >= 1.")
    layout = layout_of("qr_factor", a, None, m, mesh, check_specs(in_specs)[0])
    r = resolve_qr(layout, m, n, str(a.dtype), tile=check_tile(T_A), exposed=True)
    check_qr_memory("qr_factor", r, 1, in_place=not is_concrete(a))
    a = place_matrix(a, layout, m)
    return QRFactor(a, _factorise(r, jax.lax.stop_gradient(a)), r)
