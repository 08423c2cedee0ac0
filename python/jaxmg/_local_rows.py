"""A Hermitian matrix of which each device holds some rows: products with thin arrays.

For use inside `shard_map`, or on one device. Nothing n x n is gathered, transposed or copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ._dot import dot
from ._hermitian import transposed, valid_part
from ._layout import Resolved
from ._operands import pad_rows

# Rows that are masked at a time when only one triangle of A is valid.
_CHUNK = 256


@dataclasses.dataclass(frozen=True)
class LocalRows:
    """A Hermitian matrix whose rows `block` belong to this device, inside shard_map or alone.

    Attributes:
        r: the resolved factorisation.
        block: the rows; those beyond n are not looked at.
    """

    r: Resolved
    block: Array

    @property
    def axes(self) -> tuple[str, ...]:
        return self.r.layout.axes if self.r.layout.kind != "single" else ()

    @property
    def first(self) -> Any:
        return lax.axis_index(self.axes) * self.block.shape[0] if self.axes else 0

    @property
    def index(self) -> Array:
        """The indices in A of the rows."""
        return self.first + jnp.arange(self.block.shape[0])

    def own(self, x: Array) -> Array:
        """The rows of x that belong to this device; zeros beyond n."""
        rows = self.block.shape[0]
        return lax.dynamic_slice_in_dim(pad_rows(x, rows * self.r.layout.ranks), self.first, rows)

    def whole(self, x: Array) -> Array:
        """The (n, ...) of which every device has its rows."""
        return (lax.all_gather(x, self.axes, tiled=True) if self.axes else x)[: self.r.n]

    def total(self, x: Array) -> Array:
        return lax.psum(x, self.axes) if self.axes else x

    def diagonal(self) -> Array:
        """The diagonal elements of this device's rows."""
        columns = jnp.minimum(self.index, self.r.n - 1)
        return jnp.take_along_axis(self.block, columns[:, None], axis=1)[:, 0]

    def agree(self, flag: Array) -> Array:
        """True only if it is on all devices: they must not part ways."""
        if not self.axes:
            return flag
        return lax.pmin(flag.astype(jnp.int32), self.axes) > 0

    def _of_one_triangle(self, function: Callable[[Array], Array], x: Array) -> Array:
        """(P + P^H) x, P being `function` of the valid part, of which few rows exist at a time."""
        rows, n = self.block.shape
        mine = self.own(x)

        def add(first: Any, count: int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            chunk = lax.dynamic_slice_in_dim(self.block, first, count)
            part = function(valid_part(self.r.triangle, chunk, first_row=self.first + first))
            near = lax.dynamic_update_slice_in_dim(sums[0], dot(part, x), first, 0)
            return near, sums[1] + transposed(part, lax.dynamic_slice_in_dim(mine, first, count))

        sums = jnp.zeros((rows, x.shape[1]), x.dtype), jnp.zeros((n, x.shape[1]), x.dtype)
        count = min(rows, _CHUNK)
        full = rows // count if count else 0
        if full:
            sums = lax.fori_loop(0, full, lambda i, s: add(i * count, count, s), sums)
        if count and rows % count:
            sums = add(full * count, rows % count, sums)
        near, far = sums
        return self.whole(near) + self.total(far)

    def product(self, x: Array) -> Array:
        """A x."""
        if self.r.triangle >= 0:
            return self._of_one_triangle(lambda part: part, x)
        y = dot(self.block, x)
        if self.r.is_complex:  # imaginary parts of the diagonal do not count
            y = y - 1j * jnp.imag(self.diagonal())[:, None] * self.own(x)
        return self.whole(y)

    def absolute_product(self, x: Array) -> Array:
        """|A| x for a real x >= 0 of shape (n, k)."""
        if self.r.triangle >= 0:
            return self._of_one_triangle(jnp.abs, x)
        # |a x| and not |a| x: the product is a part of its sum then, and |A| is never stored.
        columns = [jnp.sum(jnp.abs(self.block * column), axis=1) for column in x.T]
        return self.whole(jnp.stack(columns, axis=1))
