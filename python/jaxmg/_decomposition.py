"""One call of a decomposition (eigenvalues, singular values, polar factors), and running it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax import Array

from . import _cholesky, errors
from ._arguments import giving_away
from ._context import calling_on
from ._matrix_operand import Operand
from ._resolve import is_concrete

R = TypeVar("R")
W = TypeVar("W")


@dataclasses.dataclass(frozen=True)
class Call(Generic[R, W]):
    """Everything static about one call.

    Attributes:
        r: the decomposition.
        operand: the matrix.
        wanted: what is returned of it, and in which form.
        report: whether a failure is an error under checkify.
    """

    r: R
    operand: Operand
    wanted: W
    report: bool = False


@dataclasses.dataclass
class Results:
    """What a call computed; what was not asked for is None. A pytree.

    Attributes:
        values: eigenvalues or singular values.
        left: U.
        right: V^H, eigenvectors, or the Hermitian factor.
        info: how it went, as the engine tells it.
    """

    values: Any = None
    left: Any = None
    right: Any = None
    info: Any = None


jax.tree_util.register_dataclass(
    Results, data_fields=["values", "left", "right", "info"], meta_fields=[]
)


class Program(Generic[R, W]):
    """The compiled programs of a routine: one for each Call, and one that overwrites the matrix.

    Args:
        routine: the name to use in messages.
        compute: (call, a) -> results, for the matrix as the caller gave it.
    """

    def __init__(self, routine: str, compute: Callable[[Call[R, W], Array], Results]) -> None:
        def program(call: Call[R, W], a: Array) -> Results:
            out = compute(call, a)
            if call.report:
                _cholesky.report(routine, out.info)
            return out

        self.routine = routine
        self.run: Callable[[Call[R, W], Any], Results] = jax.jit(program, static_argnums=0)
        self._run_donating = jax.jit(program, static_argnums=0, donate_argnums=1)

    def __call__(
        self, call: Call[R, W], a: Any, *, given: Any = None, check: bool = False
    ) -> Results:
        """Runs a call; eagerly raises what `check` asks for.

        `given`: what the caller gives away with the matrix (None: nothing).
        """
        with calling_on(call.operand.layout):
            if given is not None and is_concrete(a):
                with giving_away(a, given):
                    out: Results = self._run_donating(call, a)
            else:
                out = self.run(call, a)
        if check and is_concrete(out.info):
            failure = errors.from_info(np.asarray(out.info).tolist(), self.routine)
            if failure is not None:
                raise failure
        return out
