"""A spectral decomposition as an object that users keep, pass around and solve with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import _cholesky
from ._arguments import cast, check_rhs, dtype_of_factor, host_or_device, place_rhs
from ._context import on_own_mesh
from ._eig_primitives import ResolvedEig
from ._layout import AnyMesh
from ._lu_factor import SlogdetResult
from ._operands import on_mesh
from ._preparation import Specs
from ._products import applied, gram
from ._resolve import is_concrete
from ._syevd import eigen, prepare_eigen


def _scaled(r: ResolvedEig, factors: Array, v: Array, b: Array) -> Array:
    """V diag(factors) V^H b."""
    return applied(r.layout, v, factors[:, None].astype(v.dtype) * gram(r.layout, v, b))


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _solve(r: ResolvedEig, a: Array, w: Array, v: Array, b: Array) -> Array:
    a, b = on_mesh(r.layout, a), on_mesh(r.layout, b)
    inverse, v = lax.stop_gradient(1 / w), lax.stop_gradient(v)
    x, _ = _cholesky.linear_solve(
        r, a, b, lambda rhs, _: (_scaled(r, inverse, v, rhs), None), split=False
    )
    return x


@on_own_mesh
@functools.partial(jax.jit, static_argnums=0)
def _multiply(r: ResolvedEig, factors: Array, v: Array, b: Array) -> Array:
    return _scaled(r, factors, v, on_mesh(r.layout, b))


@jax.jit
def _slogdet(w: Array) -> SlogdetResult:
    sign = jnp.where(jnp.isnan(w).any(), jnp.nan, jnp.prod(jnp.sign(w)))
    return SlogdetResult(sign, jnp.sum(jnp.log(jnp.abs(w))))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["a", "w", "v", "info"], meta_fields=["r"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class EighFactor:
    """A = V diag(w) V^H of a Hermitian matrix, with V spread over the devices. A pytree.

    Made by :func:`jaxmg.linalg.eigh_factor`. It passes through ``jit``, ``grad``, ``vmap`` and
    ``scan``, and unpacks as the pair (w, V); derivatives flow to the matrix that it was made of.

    Attributes:
        a: the matrix, shape (n, n).
        w: eigenvalues, ascending.
        v: eigenvectors, one a column.
        info: how the decomposition went, in a form of its own; see `status`.
        r: layout, size and element type.
    """

    a: Any
    w: Array
    v: Array
    info: Array
    r: ResolvedEig

    def __iter__(self) -> Iterator[Array]:
        return iter((self.w, self.v))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return (self.r.n, self.r.n)

    @property
    def dtype(self) -> Any:
        """Element type of the matrix."""
        return jnp.dtype(self.r.dtype)

    @property
    def status(self) -> Array:
        """0, or as the status of :func:`jaxmg.syevd`; all results are NaN then."""
        return _cholesky.jitted_status(self.info)

    def solve(self, b: Any) -> Array:
        """x = V diag(1/w) V^H b, the solution of A x = b, for b of shape (n,) or (n, k).

        Two products with V; a derivative costs as much again, whatever the eigenvalues. Infinite or
        NaN if A is singular.
        """
        return self._on_columns("solve", b, lambda b: _solve(self.r, self.a, self.w, self.v, b))

    def apply(self, function: Callable[[Array], Array], b: Any) -> Array:
        """f(A) b = V diag(f(w)) V^H b for b of shape (n,) or (n, k).

        Args:
            function: from all eigenvalues to the numbers that take their place, such as `jnp.sqrt`.
            b: what f(A) is multiplied with.
        """
        factors = function(self.w)
        return self._on_columns("apply", b, lambda b: _multiply(self.r, factors, self.v, b))

    def slogdet(self) -> SlogdetResult:
        """Sign and logarithm of the absolute value of the determinant."""
        found: SlogdetResult = _slogdet(self.w)
        return found

    def logdet(self) -> Array:
        """The logarithm of the determinant, real; NaN if that is negative."""
        sign, value = self.slogdet()
        return jnp.where(sign < 0, jnp.nan, value)

    def inv(self) -> Array:
        """A^-1, shape (n, n)."""
        return self.solve(jnp.eye(self.r.n, dtype=self.r.dtype))

    def _on_columns(self, name: str, b: Any, function: Callable[[Array], Array]) -> Array:
        b = host_or_device(b, "b")
        check_rhs(name, b, self.r.n)
        dtype = dtype_of_factor(name, self, b=b)
        vector = b.ndim == 1
        b = place_rhs(cast(b, dtype), self.r.layout)
        b = b[:, None] if vector else b
        x = function(b) if b.size else b
        return x[:, 0] if vector else x


def eigh_factor(
    a: Any,
    *,
    lower: bool | None = None,
    mesh: AnyMesh | None = None,
    in_specs: Specs = None,
    T_A: int | None = None,
) -> EighFactor:
    """Decomposes a Hermitian matrix for later use: solutions, determinants, functions of it.

    Args:
        a: the matrix, shape (n, n), of any sharding. All of it must be valid unless `lower` is
            given.
        lower: True or False says that only the lower or upper triangle of `a` is valid.
        mesh: the mesh to work on; None finds it from `a` or the context.
        in_specs: the spec of `a`.
        T_A: rows that are worked on together. None lets the plan choose.

    Returns:
        An :class:`EighFactor`. Cost and memory are those of :func:`jaxmg.syevd`; the factor keeps
        A and V, split by rows as A is.

    Raises:
        ValueError, TypeError: an argument is not acceptable; the message names it.
        InsufficientMemoryError: the problem cannot fit.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmg.linalg import eigh_factor
        >>> factor = eigh_factor(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> factor.solve(jnp.array([3.0, 3.0])).round(4).tolist()
        [1.0, 1.0]
        >>> factor.apply(jnp.sqrt, factor.apply(jnp.sqrt, jnp.array([1.0, 0.0]))).round(4).tolist()
        [2.0, 1.0]
    """
    call, a = prepare_eigen(
        "eigh_factor",
        a,
        T_A,
        mesh=mesh,
        in_specs=in_specs,
        matrix_specs=None,
        pad=True,
        lower=lower,
        n=None,
        vectors=True,
        in_place=not is_concrete(a),
    )
    if call.r.layout.kind == "manual":
        raise ValueError(
            "eigh_factor: not available inside shard_map. Call it outside, on the global array."
        )
    out = eigen(call, a)
    v = call.operand.leave(out.right, call.r.n)
    return EighFactor(a, out.values, v, out.info, call.r)
