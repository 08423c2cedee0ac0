"""Benchmarks of the other routines: one entry of a table each.

jaxmg           the routine, A row-sharded, the whole call as a user makes it
jaxmg donated   the same with donate=True
jax             what jax.numpy.linalg has for it, compiled, on one device that holds all of A
jax_sharded     the same function, given the row-sharded A
cusolvermg      lu_solve and syevd with backend="cusolvermg", by NVIDIA's library
scipy           what scipy.linalg has for it, in place where that is possible

A is a general matrix, Hermitian for eigenvalues, and has twice as many rows as columns for least
squares. The error of a factorisation is || A z - F z || / (|| A || || z ||) in inf-norms, F being
the product of its factors and z a vector; for what solves a system it is that of the solution.
Operations are nominal where an algorithm has no fixed number: 9 n^3 for eigenvalues with vectors,
22 n^3 for singular values with vectors, 10 n^3 for the polar factors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.sharding import Mesh

import jaxmg
from jaxmg.bench import potrs
from jaxmg.bench.harness import Solver
from jaxmg.bench.matrices import (
    GeneralMatrix,
    TestMatrix,
    make,
    make_right_hand_sides,
    row_mesh,
)
from jaxmg.bench.records import Case, Target
from jaxmg.bench.residual import Residual, residual_of
from jaxmg.bench.vendor import by_cusolvermg

_HIGHEST = functools.partial(jnp.matmul, precision="highest")

Arrays = tuple[Any, ...]


@dataclass(eq=False)
class Entry:
    """One routine; a benchmark as `jaxmg.bench.routines.Routine` describes it.

    Attributes:
        NAME: of the benchmark and of the function of this package.
        reference: the same with JAX alone: (a [, b]) -> results.
        scipy: the same with SciPy: (scipy.linalg, a [, b]) -> results.
        count: operations of a real problem of size n.
        times: (results, z) -> F z; None if the result is the solution of A x = b.
        memory: matrices of A's size that a call needs.
        height: rows of A over its columns.
        hermitian: whether A is.
    """

    NAME: str
    reference: Callable[..., Any]
    scipy: Callable[..., Any]
    count: Callable[[float], float]
    times: Callable[[Any, jax.Array], jax.Array] | None
    memory: float
    height: int = 1
    hermitian: bool = False
    PEERS: tuple[str, ...] = ("jax", "jax_sharded", "scipy")
    TARGETS: list[Target] = field(default_factory=list)

    def defaults(self, platform: str, devices: int) -> dict[str, Any]:
        """What is run when nothing else is asked for."""
        sizes = {"n": [1024] if platform == "cpu" else [4096, 8192, 16384, 32768]}
        return potrs.defaults(platform, devices) | sizes

    def flops(self, case: Case) -> float:
        """Real operations; four times those of a real problem if complex."""
        return self.count(float(case.n)) * (4 if np.dtype(case.dtype).kind == "c" else 1)

    def solvers(
        self, case: Case, mesh: Mesh, against: Sequence[str], donate: Sequence[bool]
    ) -> list[Solver]:
        """Ours and the peers for one case."""
        matrix: TestMatrix = GeneralMatrix(case.n, case.dtype, case.seed, self.height)
        if self.hermitian:
            matrix = TestMatrix(case.n, case.dtype, case.seed)
        one = row_mesh([mesh.devices.flat[0]])
        compiled = jax.jit(self.reference)
        build = {
            "jax": lambda: self._solver("jax", matrix, case, one, compiled, self.memory),
            "jax_sharded": lambda: self._solver(
                "jax_sharded", matrix, case, mesh, compiled, self.memory + 1 / mesh.size
            ),
            "scipy": lambda: self._scipy(matrix, case, one),
            "cusolvermg": lambda: by_cusolvermg(ours(False), self.NAME, case, mesh),
        }

        def ours(given: bool) -> Solver:
            call = functools.partial(getattr(jaxmg, self.NAME), donate=given)
            name = "jaxmg donated" if given else "jaxmg"
            return self._solver(name, matrix, case, mesh, call, self.memory / mesh.size)

        found = [ours(given) for given in donate]
        return found + [build[peer]() for peer in against]

    def _operands(self, matrix: TestMatrix, case: Case, mesh: Mesh) -> Arrays:
        a = make(matrix, mesh)
        if self.times is not None:
            return (a,)
        return a, make_right_hand_sides(matrix, case.nrhs, mesh)

    def _solver(
        self,
        name: str,
        matrix: TestMatrix,
        case: Case,
        mesh: Mesh,
        call: Callable[..., Any],
        memory: float,
    ) -> Solver:
        return Solver(
            name=name,
            prepare=lambda: self._operands(matrix, case, mesh),
            call=call,
            check=lambda results: self._error(results, self._operands(matrix, case, mesh), mesh),
            memory=memory * matrix.nbytes,
            shared_by=potrs.sharers(mesh),
        )

    def _scipy(self, matrix: TestMatrix, case: Case, one: Mesh) -> Solver:
        try:
            import scipy.linalg as sl
        except ImportError:
            sl = None

        def check(results: Any) -> Residual:
            placed = jax.tree.map(jnp.asarray, results)
            return self._error(placed, self._operands(matrix, case, one), one)

        return Solver(
            name="scipy",
            prepare=lambda: tuple(
                np.array(x, order="F") for x in self._operands(matrix, case, one)
            ),
            call=lambda *arrays: self.scipy(sl, *arrays),
            check=check,
            memory=self.memory * matrix.nbytes,
            needs=None if sl is not None else "skipped: SciPy is not installed",
        )

    def _error(self, results: Any, operands: Arrays, mesh: Mesh) -> Residual:
        if self.times is None and self.height == 1:
            return residual_of(operands[0], results, operands[1], mesh)
        if self.times is None:
            found = float(_gradient_size(operands[0], results, operands[1]))
        else:
            found = float(_difference(self.times, operands[0], results))
        a = operands[0]
        return Residual(found, found / (float(jnp.finfo(a.dtype).eps) * a.shape[0]))


def _largest(x: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(x))


def _norm(a: jax.Array) -> jax.Array:
    return jnp.max(jnp.sum(jnp.abs(a), axis=1))


@functools.partial(jax.jit, static_argnums=0)
def _difference(times: Callable[..., Any], a: jax.Array, factors: Any) -> jax.Array:
    """|| A z - F z || / (|| A || || z ||)."""
    z = jnp.cos(1.0 + jnp.arange(a.shape[1], dtype=a.real.dtype))[:, None].astype(a.dtype)
    return _largest(_HIGHEST(a, z) - times(factors, z)) / (_norm(a) * _largest(z))


@jax.jit
def _gradient_size(a: jax.Array, x: jax.Array, b: jax.Array) -> jax.Array:
    """|| A^H r || / (|| A || (|| A || || x || + || b ||)): zero for a least-squares solution."""
    r = b - _HIGHEST(a, x)
    size = _norm(a) * _largest(x) + _largest(b)
    return _largest(_HIGHEST(jnp.conj(a.T), r)) / (_norm(jnp.conj(a.T)) * size)


def _solve(sl: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    factor = sl.lu_factor(a, overwrite_a=True, check_finite=False)
    return sl.lu_solve(factor, b, overwrite_b=True, check_finite=False)


def _least(sl: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    options = {"overwrite_a": True, "overwrite_b": True, "check_finite": False}
    return sl.lstsq(a, b, lapack_driver="gelsy", **options)[0]


_WITH_CUSOLVERMG = ("jax", "jax_sharded", "scipy", "cusolvermg")
_FAST = {"overwrite_a": True, "check_finite": False}

ENTRIES = (
    Entry(
        "lu_solve",
        jnp.linalg.solve,
        _solve,
        lambda n: 2 / 3 * n**3 + 2 * n**2,
        None,
        memory=2.1,
        PEERS=_WITH_CUSOLVERMG,
    ),
    Entry(
        "qr",
        lambda a: tuple(jnp.linalg.qr(a)),
        lambda sl, a: sl.qr(a, mode="economic", **_FAST),
        lambda n: 8 / 3 * n**3,
        lambda f, z: _HIGHEST(f[0], _HIGHEST(f[1], z)),
        memory=3.2,
    ),
    Entry(
        "least_squares",
        lambda a, b: jnp.linalg.lstsq(a, b)[0],
        _least,
        lambda n: (4 - 2 / 3) * n**3,
        None,
        memory=2.2,
        height=2,
    ),
    Entry(
        "syevd",
        lambda a: tuple(jnp.linalg.eigh(a)),
        lambda sl, a: sl.eigh(a, driver="evd", **_FAST),
        lambda n: 9 * n**3,
        lambda f, z: _HIGHEST(f[1], f[0][:, None] * _HIGHEST(jnp.conj(f[1].T), z)),
        memory=6.0,
        hermitian=True,
        PEERS=_WITH_CUSOLVERMG,
    ),
    Entry(
        "gesvd",
        lambda a: tuple(jnp.linalg.svd(a, full_matrices=False)),
        lambda sl, a: sl.svd(a, full_matrices=False, **_FAST),
        lambda n: 22 * n**3,
        lambda f, z: _HIGHEST(f[0], f[1][:, None] * _HIGHEST(f[2], z)),
        memory=8.0,
    ),
    Entry(
        "polar",
        jax.scipy.linalg.polar,
        lambda sl, a: sl.polar(a),
        lambda n: 10 * n**3,
        lambda f, z: _HIGHEST(f[0], _HIGHEST(f[1], z)),
        memory=6.0,
    ),
)
"""The routines beside `jaxmg.potrs` and `jaxmg.potri`, which have modules of their own."""
