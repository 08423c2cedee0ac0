"""What objects that hold a factorisation have in common: shapes, batches, right-hand sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ._arguments import (
    broadcast_batches,
    cast,
    check_rhs,
    dtype_of_factor,
    host_or_device,
    place_rhs,
)
from ._layout import Resolved
from ._resolve import rhs_spec, splits_rows

# (split, spec, b) -> x for one matrix and b of shape (n,) or (n, k): whether the rows of b lie on
# the ranks as those of A do, and else how x is to be split.
SolveOne = Callable[[Any, bool, Any, Array], Array]


class FactorBase:
    """`r` describes one matrix; `parts.work` may have batch axes in front."""

    r: Resolved
    parts: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix, batch axes first."""
        return (*self.parts.work.shape[:-2], self.r.n, self.r.n)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return jnp.dtype(self.r.dtype)

    @property
    def _batch_axes(self) -> int:
        return int(self.parts.work.ndim) - 2

    def _mapped(self, function: Callable[..., Any]) -> Any:
        for _ in range(self._batch_axes):
            function = jax.vmap(function)
        return function(self)

    def _solve(self, routine: str, b: Any, one: SolveOne) -> Array:
        """The solution for any b whose batch axes broadcast with those of the factor."""
        b = host_or_device(b, "b")
        dtype = dtype_of_factor(routine, self, b=b)
        if b.ndim > 2 or self._batch_axes:
            return self._solve_batch(routine, b, one)
        check_rhs(routine, b, self.r.n)
        layout = self.r.layout
        b = cast(b, dtype)
        spec = rhs_spec(b, None, layout)
        even = self.r.n % layout.ranks == 0
        split = splits_rows(spec, layout) and (even or not layout.explicit)
        return one(self, split, None if split else spec, place_rhs(b, layout))

    def _solve_batch(self, routine: str, b: Any, one: SolveOne) -> Array:
        tail = b.shape if b.ndim == 1 else b.shape[-2:]
        mine = self.shape[:-2]
        batch = broadcast_batches(routine, mine, () if b.ndim == 1 else b.shape[:-2])
        b = jnp.broadcast_to(b, (*batch, *tail))
        # Axes that the factor lacks, or has with size 1 only, are not mapped over it.
        aligned = (*(None,) * (len(batch) - len(mine)), *mine)
        mapped = [have == size for have, size in zip(aligned, batch, strict=True)]
        drop = tuple(i for i, used in enumerate(mapped[len(batch) - len(mine) :]) if not used)
        factor = jax.tree.map(lambda x: jnp.squeeze(x, axis=drop), self) if drop else self

        def function(factor: FactorBase, b: Array) -> Array:
            return factor._solve(routine, b, one)

        for used in reversed(mapped):
            function = jax.vmap(function, (0 if used else None, 0))
        x: Array = function(factor, b)
        return x
