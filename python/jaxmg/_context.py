"""The mesh of a call as the one that JAX's context names.

A matrix is worked on over its own mesh, whatever mesh ``jax.set_mesh`` has set. JAX however checks
what it traces against the context, so that is changed for the time of a call.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh

from ._layout import Layout

F = TypeVar("F", bound=Callable[..., Any])
_UNCHANGED: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


def differs(layout: Layout) -> bool:
    """Whether the context names a mesh, and another one than the layout."""
    if layout.kind != "dist":
        return False
    context = jax.sharding.get_abstract_mesh()
    return not context.empty and context != layout.abstract_mesh


def lowered_elsewhere(layout: Layout) -> bool:
    """As differs, while a program is lowered: the devices of the context count as well."""
    if layout.kind != "dist":
        return False
    get_mesh = getattr(jax.sharding, "get_mesh", None)
    if get_mesh is None:  # jax < 0.8 does not tell: the careful way is right with any context
        return not jax.sharding.get_abstract_mesh().empty
    with contextlib.suppress(ValueError):  # something is being traced all the same
        mesh = get_mesh()
        if not mesh.empty and mesh.abstract_mesh != layout.abstract_mesh:
            return True
    return differs(layout)


def tracing_on(layout: Layout) -> contextlib.AbstractContextManager[Any]:
    """While something is traced: the abstract mesh of the layout as the context.

    JAX lets that only be another view of as many devices.
    """
    if not differs(layout):
        return _UNCHANGED
    if jax.sharding.get_abstract_mesh().size != layout.abstract_mesh.size:
        return _UNCHANGED
    return jax.sharding.use_abstract_mesh(layout.abstract_mesh)


def calling_on(layout: Layout) -> contextlib.AbstractContextManager[Any]:
    """Around a call that may be eager: the devices of the layout as the context too."""
    if not differs(layout):
        return _UNCHANGED
    if isinstance(layout.mesh, Mesh):
        with contextlib.suppress(ValueError):  # only abstract meshes can be set under jit
            return jax.set_mesh(layout.mesh)
    return tracing_on(layout)


def on_own_mesh(function: F) -> F:
    """`function`, whose first argument is a resolved factorisation, called on the mesh of that."""

    @functools.wraps(function)
    def call(r: Any, *arguments: Any) -> Any:
        with calling_on(r.layout):
            return function(r, *arguments)

    return call  # type: ignore[return-value]
