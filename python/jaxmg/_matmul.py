"""Products and transposes of matrices on global arrays, split by rows, without gathering them.

Results have the padded number of rows, ranks * ceil(rows / ranks), and zeros beyond the true one;
operands may be padded or not. The three products and the transpose are closed under derivatives,
of any order: the cotangent of a factor is a product of another of the three forms.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad
from jax.sharding import PartitionSpec

from . import _ring
from ._batching import batch_factor_operation
from ._layout import Layout
from ._operands import pad_rows, reshard
from ._operation import Operation, define, rows_spec, typed
from ._rows import keep_rows


@dataclasses.dataclass(frozen=True)
class Ring:
    """The ranks over which the rows of the operands lie."""

    layout: Layout
    call_id: int = 0
    exposed: bool = False

    @functools.cached_property
    def on_one_rank(self) -> Ring:
        return Ring(Layout(platform=self.layout.platform))

    def padded(self, size: int) -> int:
        return self.layout.ranks * _ring.block_rows(self.layout, size)


Form = Callable[[Layout, Any, Array, Array, int], Array]
_FORMS: dict[str, Form] = {
    "nn": _ring.times,
    "nt": _ring.times_transposed,
    "tn": _ring.transposed_times,
}


def _sizes(form: str, a: Any, b: Any, size: int) -> tuple[int, int]:
    """Rows (as stored, for forms that keep those of A) and columns of a product."""
    if form == "nn":
        return a.shape[0], b.shape[1]
    if form == "nt":
        return a.shape[0], size
    return a.shape[1], b.shape[1]


def _product_type(a: Any, b: Any, *, r: Ring, form: str, size: int) -> list[Any]:
    rows, columns = _sizes(form, a, b, size)
    return [typed(a, r.layout, (r.padded(rows), columns), a.dtype, rows_spec(r.layout))]


def _pad_both(r: Ring, a: Array, b: Array, *, form: str, size: int) -> list[Array]:
    return [pad_rows(a, r.padded(a.shape[0])), pad_rows(b, r.padded(b.shape[0]))]


def _product_block(r: Ring, ctx: Array, a: Array, b: Array, *, form: str, size: int) -> list[Array]:
    return [_FORMS[form](r.layout, ctx[0], a, b, size)]


def _product_one_device(r: Ring, a: Array, b: Array, *, form: str, size: int) -> list[Array]:
    rows, _ = _sizes(form, a, b, size)
    if form == "tn":
        a = a[:size]
    out = _FORMS[form](r.on_one_rank.layout, 0, a, b[:size], size)
    return [pad_rows(out, r.padded(rows))]


product_p = define(
    "jaxmg_product",
    Operation(
        block=_product_block,
        one_device=_product_one_device,
        pad=_pad_both,
        specs=lambda layout, form, size: ((rows_spec(layout),) * 2, (rows_spec(layout),)),
    ),
    _product_type,
    batch_factor_operation,
)

transpose_p = define(
    "jaxmg_transpose",
    Operation(
        block=lambda r, ctx, a, size: [_ring.transposed(r.layout, ctx[0], a, size)],
        one_device=lambda r, a, size: [pad_rows(a[:size].T, r.padded(a.shape[1]))],
        pad=lambda r, a, size: [pad_rows(a, r.padded(a.shape[0]))],
        specs=lambda layout, size: ((rows_spec(layout),), (rows_spec(layout),)),
    ),
    lambda a, *, r, size: [
        typed(a, r.layout, (r.padded(a.shape[1]), size), a.dtype, rows_spec(r.layout))
    ],
    batch_factor_operation,
)


# --- derivatives -----------------------------------------------------------------------------


def _sum_of_terms(terms: Sequence[Any], aval: Any) -> list[Any]:
    return [functools.reduce(jnp.add, terms) if terms else ad.Zero(aval)]


def _product_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    a, b = primals
    da, db = tangents
    (out,) = product_p.bind(a, b, **params)
    terms = []
    if not isinstance(da, ad.Zero):
        terms += product_p.bind(da, b, **params)
    if not isinstance(db, ad.Zero):
        terms += product_p.bind(a, db, **params)
    return [out], _sum_of_terms(terms, _tangent_type(out))


def _tangent_type(x: Any) -> Any:
    return jax.typeof(x).to_tangent_aval()


def _cut(x: Array, like: Any) -> Array:
    return x if x.shape[0] == like.shape[0] else x[: like.shape[0]]


def _product_transpose(
    cotangents: Sequence[Any], a: Any, b: Any, *, r: Ring, form: str, size: int
) -> list[Any]:
    """Sum over all elements of c * f(A, B), seen as a linear function of A or of B."""
    (c,) = cotangents
    linear_a = ad.is_undefined_primal(a)
    if isinstance(c, ad.Zero):
        return [ad.Zero(a.aval) if linear_a else None, None if linear_a else ad.Zero(b.aval)]

    def go(form: str, x: Array, y: Array, size: int) -> Array:
        out: Array = product_p.bind(x, y, r=r, form=form, size=size)[0]
        return out

    shape = (a if linear_a else b).aval
    if form == "nn":  # C = A B
        out = go("nt", c, b, size) if linear_a else go("tn", a, c, a.shape[0])
    elif form == "nt":  # C = A B^T
        out = go("nn", c, b, size) if linear_a else go("tn", c, a, a.shape[0])
    elif linear_a:  # C = A^T B
        out = go("nt", b, c, shape.shape[1])
    else:
        out = go("nn", a, c, a.shape[1])
    out = _cut(out, shape)
    return [out, None] if linear_a else [None, out]


ad.primitive_jvps[product_p] = _product_jvp
ad.primitive_transposes[product_p] = _product_transpose


def _transpose_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    out = transpose_p.bind(*primals, **params)
    if isinstance(tangents[0], ad.Zero):
        return out, [ad.Zero(_tangent_type(out[0]))]
    return out, transpose_p.bind(*tangents, **params)


def _transpose_transpose(cotangents: Sequence[Any], a: Any, *, r: Ring, size: int) -> list[Any]:
    (c,) = cotangents
    if isinstance(c, ad.Zero):
        return [ad.Zero(a.aval)]
    (out,) = transpose_p.bind(c, r=r, size=a.aval.shape[1])
    return [pad_rows(_cut(out, a.aval), a.aval.shape[0])]


ad.primitive_jvps[transpose_p] = _transpose_jvp
ad.primitive_transposes[transpose_p] = _transpose_transpose


# --- what the rest of the package calls -------------------------------------------------------


def conj(x: Array) -> Array:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def rows(r: Ring, x: Array) -> Array:
    """`x` with its rows, and those of its cotangent, split over the ranks."""
    if r.layout.kind != "dist":
        return x
    if r.layout.explicit:
        return reshard(r.layout, x, PartitionSpec(r.layout.axes, *(None,) * (x.ndim - 1)))
    out: Array = keep_rows(r, x)
    return out


def _bind(r: Ring, form: str, a: Array, b: Array, size: int) -> Array:
    out: Array = product_p.bind(a, b, r=r, form=form, size=size)[0]
    return out


def times(r: Ring, a: Array, b: Array) -> Array:
    """A B."""
    return _bind(r, "nn", a, b, a.shape[1])


def times_adjoint(r: Ring, a: Array, b: Array, size: int) -> Array:
    """A B^H. `size`: true number of rows of B."""
    return _bind(r, "nt", a, conj(b), size)


def adjoint_times(r: Ring, a: Array, b: Array, size: int) -> Array:
    """A^H B. `size`: true number of rows of both."""
    return _bind(r, "tn", conj(a), b, size)


def adjoint(r: Ring, a: Array, size: int) -> Array:
    """A^H. `size`: true number of rows of A."""
    out: Array = transpose_p.bind(conj(a), r=r, size=size)[0]
    return out
