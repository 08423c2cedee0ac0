"""Cholesky factors of matrices that grow by rows and columns at the end.

    [A    B]   [L       ] [L^H  W]
    [B^H  C] = [W^H  L_S] [   L_S^H],    W = L^-1 B,    S = C - W^H W = L_S L_S^H

The factor of A stays as it is and where it is; S has a factor of its own, and W keeps the rows of
A on their devices. What can be appended to is anything that has the two halves of a solution, so
that matrices grow as often as wanted. Halves, and not A^-1 B, since S would lose digits by the
condition of A otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ._arguments import cast, check_rhs, dtype_of_factor, host_or_device, place_rhs
from ._context import calling_on
from ._dot import dot
from ._factor_object import CholeskyFactor, factorise
from ._layout import Layout, resolve_plan
from ._operands import gathered, on_mesh
from ._products import applied, contracted, gram


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["base", "b", "c", "w", "corner"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, eq=False)
class BorderedFactor:
    """A Cholesky factorisation to which rows and columns have been appended. A pytree.

    Made by :func:`jaxmg.linalg.cho_append`; used like a :class:`CholeskyFactor`.

    Attributes:
        base: the factor of A, a :class:`CholeskyFactor` or another :class:`BorderedFactor`.
        b: B, shape (n, m), and
        c: C, shape (m, m), through which derivatives flow.
        w: L^-1 B in the numbering of A's rows, in pieces: those of each part of A lie on the
            devices as the part does.
        corner: the factor of C - w^H w.
    """

    base: Any
    b: Any
    c: Any
    w: tuple[Any, ...]
    corner: CholeskyFactor

    def __iter__(self) -> Iterator[Any]:
        yield self
        yield self.lower

    @property
    def n(self) -> int:
        """Size of the matrix."""
        return int(self.base.n + self.corner.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return (self.n, self.n)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.base.dtype

    @property
    def lower(self) -> bool | None:
        """Which triangle of the first matrix was read (None: all of it)."""
        lower: bool | None = self.base.lower
        return lower

    @property
    def layout(self) -> Layout:
        layout: Layout = self.base.layout
        return layout

    @property
    def status(self) -> Array:
        """0, or the order of the first leading minor that is not positive definite, or a kind."""
        first, last = self.base.status, self.corner.status
        return jnp.where(first != 0, first, jnp.where(last > 0, last + self.base.n, last))

    @property
    def has_matrix(self) -> bool:
        """Whether derivatives with respect to the matrix are known."""
        return bool(self.base.has_matrix)

    @property
    def precision(self) -> int:
        return int(self.base.precision)

    def forward(self, x: Array, split: bool = False) -> tuple[Array, ...]:
        """Y with L Y = X for X of shape (n, k), in pieces like `w`; `split`: by rows."""
        n, layout = self.base.n, self.layout
        pieces = self.base.forward(x[:n], split)
        rest = x[n:]
        for w, y in zip(self.w, pieces, strict=True):
            known = gram(layout, w, y) if split else contracted(layout, jnp.conj(w), y)
            rest = rest - known
        return (*pieces, *self.corner.forward(rest, split))

    def backward(self, pieces: tuple[Array, ...]) -> Array:
        """X with L^H X = Y."""
        last = self.corner.backward(pieces[-1:])
        first = zip(pieces[:-1], self.w, strict=True)
        rest = tuple(y - applied(self.layout, w, last) for y, w in first)
        return jnp.concatenate([self.base.backward(rest), last])

    def product(self, x: Array) -> Array:
        """The matrix times X, linear in `base`, `b` and `c` too."""
        n, layout = self.base.n, self.layout
        first, last = x[:n], x[n:]
        c = (self.c + jnp.conj(self.c.T)) / 2
        top = self.base.product(first) + applied(layout, self.b, last)
        bottom = contracted(layout, jnp.conj(self.b), first) + applied(layout, c, last)
        return jnp.concatenate([top, bottom])

    def solve(self, b: Any) -> Array:
        """Solves A x = b for b of shape (n,) or (n, k); x has the shape of `b`."""
        b = right_hand_side(self, b)
        with calling_on(self.layout):
            x: Array = _solve(self, b)
        return x

    def logdet(self) -> Array:
        """log(det(A)), real."""
        out: Array = self.base.logdet() + self.corner.logdet()
        return out

    def inv(self) -> Array:
        """The inverse of the matrix, Hermitian, split by rows if n is divisible."""
        with calling_on(self.layout):
            x: Array = _inverse(self)
        return x

    def factor(self) -> tuple[Array, Array]:
        """L and the order p with A[p][:, p] = L L^H, collected from all devices."""
        first, order = self.base.factor()
        last, last_order = self.corner.factor()
        first, last = (gathered(self.layout, x) for x in (first, last))
        w = jnp.concatenate([gathered(self.layout, piece) for piece in self.w])
        side = jnp.conj(w.T)[last_order][:, order]
        corner = jnp.zeros((first.shape[0], last.shape[0]), first.dtype)
        lower = jnp.block([[first, corner], [side, last]])
        return lower, jnp.concatenate([order, last_order + self.base.n])


def right_hand_side(factor: Any, b: Any, routine: str = "cho_solve") -> Any:
    b = host_or_device(b, "b")
    dtype = dtype_of_factor(routine, factor, b=b)
    check_rhs(routine, b, factor.n)
    return place_rhs(cast(b, dtype), factor.layout)


@jax.jit
def _solve(factor: BorderedFactor, b: Array) -> Array:
    layout = factor.layout
    vector = b.ndim == 1
    b = gathered(layout, on_mesh(layout, b[:, None] if vector else b))
    fixed = jax.tree.map(lax.stop_gradient, factor)

    def run(_: Any, rhs: Array) -> Array:
        return fixed.backward(fixed.forward(rhs))

    def back(_: Any, rhs: Array) -> Array:
        return jnp.conj(run(_, jnp.conj(rhs)))

    def product(x: Array) -> Array:
        # Without the matrix nothing but the type of this product is ever used.
        return factor.product(x) if factor.has_matrix else x

    if b.shape[1] > 0:
        b = lax.custom_linear_solve(product, b, run, transpose_solve=back)
    return b[:, 0] if vector else b


@jax.jit
def _inverse(factor: BorderedFactor) -> Array:
    # With Z = A^-1 B:  [A^-1 + Z S^-1 Z^H   -Z S^-1]
    #                   [     -S^-1 Z^H        S^-1 ]
    layout = factor.layout
    z = gathered(layout, factor.base.solve(gathered(layout, factor.b)))
    last = gathered(layout, factor.corner.inv())
    side = dot(-z, last)
    first = gathered(layout, factor.base.inv()) - dot(side, jnp.conj(z.T))
    return jnp.block([[first, side], [jnp.conj(side.T), last]])


@jax.custom_jvp
def _schur(base: Any, b: Array, c: Array, w: tuple[Array, ...]) -> Array:
    """S = C - W^H W with W = L^-1 B."""
    layout = base.layout
    s = gathered(layout, (c + jnp.conj(c.T)) / 2)
    for piece in w:
        s = s - gram(layout, piece, piece)
    return s


@_schur.defjvp
def _schur_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Array]:
    # dS = dC - dB^H Z - Z^H dB + Z^H dA Z with Z = A^-1 B
    base, b, c, w = primals
    layout = base.layout
    change, db, dc, _ = tangents
    z = base.solve(gathered(layout, b))
    half = contracted(layout, jnp.conj(db), z)
    ds = (dc + jnp.conj(dc.T)) / 2 - half - jnp.conj(half.T)
    if base.has_matrix:
        ds = ds + contracted(layout, jnp.conj(z), change.product(z))
    return _schur(base, b, c, w), gathered(layout, ds)


@jax.jit
def _border(base: Any, b: Array, c: Array) -> tuple[tuple[Array, ...], Array]:
    """W with its rows on their devices, and S."""
    fixed = jax.tree.map(lax.stop_gradient, base)
    w = fixed.forward(lax.stop_gradient(b), split=True)
    return w, _schur(base, b, c, w)


def append(base: Any, b: Array, c: Array) -> BorderedFactor:
    """The factor of [[A, B], [B^H, C]] from that of A."""
    layout = base.layout
    with calling_on(layout):
        b, c = on_mesh(layout, b), on_mesh(layout, c)
        w, s = _border(base, b, c)
    r = resolve_plan(
        layout,
        c.shape[0],
        str(base.dtype),
        exposed=True,
        precision=base.precision,
    )
    return BorderedFactor(base, b, c, w, CholeskyFactor(s, factorise(r, lax.stop_gradient(s)), r))
