"""The LU family inside the caller's own shard_map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import linalg
from matrices import general
from meshes import line, put
from residuals import assert_solved, relative
from test_lu_derivatives import well

N = 16
CHECKED = pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])


def mapped(function, mesh, outs, checked):
    """`function` of the rows of A on each device, and of b."""
    specs = {"in_specs": (P("x", None), P()), "out_specs": outs, "check_vma": checked}
    return jax.jit(jax.shard_map(function, mesh=mesh, **specs))


@CHECKED
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_solution(dtype, checked):
    mesh = line(4)
    a, b = general(N, N, dtype), general(N, 2, dtype)
    solve = lambda a, b: jaxmg.lu_solve(a, b, return_status=True)  # noqa: E731
    x, status = mapped(solve, mesh, (P(), P()), checked)(put(a, mesh, "x", None), b)
    assert int(status) == 0
    assert_solved(a, x, b)
    a[5] = 0
    x, status = mapped(solve, mesh, (P(), P()), checked)(put(a, mesh, "x", None), b)
    assert int(status) == 6
    assert np.isnan(x).all()


@CHECKED
def test_factor(checked):
    mesh = line(4)
    a, b = general(N, N, "complex128"), general(N, 2, "complex128")

    def body(a, b):
        factor = linalg.lu_factor(a)
        return [factor.solve(b, trans) for trans in (0, 1, 2)], factor.slogdet()

    xs, (sign, log) = mapped(body, mesh, P(), checked)(put(a, mesh, "x", None), b)
    for form, x in zip((a, a.T, a.conj().T), xs, strict=True):
        assert_solved(form, x, b)
    expected = np.linalg.slogdet(a)
    assert relative(sign, expected[0]) < 1e-12
    assert relative(log, expected[1]) < 1e-12


@CHECKED
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(dtype, checked):
    mesh = line(4)
    a, b = well(N, dtype), general(N, 2, dtype)

    def value(solve, slogdet):
        def f(a, b):
            sign, log = slogdet(a)
            return jnp.real(jnp.sum(jnp.sin(solve(a, b))) + 0.3 * log + (1 + 2j) * sign)

        return f

    ours = value(jaxmg.lu_solve, lambda a: linalg.lu_factor(a).slogdet())
    theirs = value(jnp.linalg.solve, jnp.linalg.slogdet)
    outside = mapped(ours, mesh, P(), checked)
    found = jax.grad(outside, (0, 1))(put(a, mesh, "x", None), b)
    assert max(map(relative, found, jax.grad(theirs, (0, 1))(a, b))) < 1e-11


def test_batches_inside():
    mesh = line(4)
    a = general(N, N)
    bs = np.stack([general(N, 2, seed=k) for k in range(3)])
    solve = jax.vmap(jaxmg.lu_solve, (None, 0))
    x = mapped(solve, mesh, P(), False)(put(a, mesh, "x", None), bs)
    assert relative(x, np.linalg.solve(a, bs)) < 1e-10


def test_what_is_not_there():
    mesh = line(4)
    for call in (lambda f: f.inv(), lambda f: f.rcond()):
        with pytest.raises(ValueError, match="shard_map"):
            mapped(lambda a, b, call=call: call(linalg.lu_factor(a)), mesh, P(), False)(
                put(general(N, N), mesh, "x", None), np.ones(N)
            )
