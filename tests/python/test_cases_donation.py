"""The caller's arrays: unchanged and alive unless given away, and gone if they were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from jaxmg import linalg
from matrices import general, spd
from meshes import put
from residuals import assert_solved, relative

N = 16
A, B = spd(N), general(N, 2)


def fresh(a=A):
    """On one device, in memory of its own."""
    return jnp.asarray(a) + 0


GIVING = {
    "potrs": lambda a, mesh: jaxmg.potrs(a, B, mesh=mesh, donate=True),
    "solve": lambda a, mesh: linalg.solve(a, B, assume_a="pos", mesh=mesh, overwrite_a=True),
    "cho_factor": lambda a, mesh: linalg.cho_factor(a, mesh=mesh, overwrite_a=True).solve(B),
}
STATES = {
    "in place": lambda mesh: put(A, mesh, "x", None),
    "columns split": lambda mesh: put(A, mesh, None, "x"),
    "on one device": lambda mesh: fresh(),
    "of another type": lambda mesh: fresh().astype(jnp.float32),
    "integers": lambda mesh: fresh(np.rint(8 * A)).astype(jnp.int32),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("routine", GIVING)
def test_matrix_that_is_given_away_is_gone(routine, state, mesh):
    """Also if a converted or moved copy of it was worked on: the same rule in every case."""
    a = STATES[state](mesh)
    kept = np.asarray(a).astype(np.float64)
    x = GIVING[routine](a, mesh) if state != "of another type" else None
    if x is None:
        with_64 = {
            "potrs": lambda: jaxmg.potrs(a, B, mesh=mesh, donate=True),
            "solve": lambda: linalg.solve(a, B, assume_a="pos", mesh=mesh, overwrite_a=True),
            "cho_factor": lambda: linalg.cho_factor(a, mesh=mesh, overwrite_a=True).solve(
                B.astype(np.float32)
            ),
        }
        x = with_64[routine]()
    assert a.is_deleted()
    assert relative(np.asarray(x), np.linalg.solve(kept, B)) < 1e-5
    with pytest.raises(RuntimeError, match="deleted"):
        jaxmg.potrs(a, B, mesh=mesh)


def test_cyclic_storage_that_is_given_away_is_gone(mesh):
    for a in (put(A, mesh, "x", None), fresh()):
        moved = jaxmg.cyclic_1d(a, 1, mesh, donate=True)
        assert a.is_deleted()
        jaxmg.uncyclic_1d(moved, 1, mesh, donate=True)
        assert moved.is_deleted()


def test_empty_matrix_that_is_given_away_is_gone():
    for function in (
        lambda a: jaxmg.potrs(a, np.zeros((0, 2)), donate=True),
        lambda a: linalg.cho_factor(a, overwrite_a=True),
    ):
        a = jnp.zeros((0, 0))
        function(a)
        assert a.is_deleted()


@pytest.mark.parametrize("routine", GIVING)
def test_memory_of_numpy_is_never_written(routine, mesh):
    for n in (N, 256):
        a, b = spd(n), B
        if n != N:
            b = general(n, 1)
        for m in (None, mesh):
            for given in (a, jnp.asarray(a), jax.device_put(a)):
                if routine == "potrs":
                    jax.block_until_ready(jaxmg.potrs(given, b, mesh=m, donate=True))
                elif routine == "solve":
                    x = linalg.solve(given, b, assume_a="pos", mesh=m, overwrite_a=True)
                    jax.block_until_ready(x)
                else:
                    jax.block_until_ready(linalg.cho_factor(given, mesh=m, overwrite_a=True).parts)
                assert (a == spd(n)).all()


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_twice_with_the_same_matrix(wrap, mesh):
    a, b = put(A, mesh, "x", None), put(B, mesh)
    solve = wrap(lambda a, b: jaxmg.potrs(a, b))
    first, second = np.asarray(solve(a, b)), np.asarray(solve(a, b))
    assert (first == second).all()
    assert (np.asarray(a) == A).all()
    assert (np.asarray(b) == B).all()


@pytest.mark.parametrize("spec", [("x", None), (None, "x"), ()], ids=str)
def test_matrix_as_its_own_right_hand_side(spec, mesh):
    for donate in (False, True):
        a = put(A, mesh, *spec)
        x = jaxmg.potrs(a, a, donate=donate)
        assert relative(x, np.eye(N)) < 1e-13
        assert a.is_deleted() == donate
    a = put(A, mesh, *spec)
    assert relative(jax.jit(lambda a: jaxmg.potrs(a, a))(a), np.eye(N)) < 1e-13
    assert (np.asarray(a) == A).all()


def test_donation_under_jit_with_the_work_returned(mesh):
    step = jax.jit(lambda a, b: jaxmg.potrs_shardmap_ctx(a, b)[:2], donate_argnums=0)
    a = put(A, mesh, "x", None)
    _, x = step(a, B)
    assert a.is_deleted()
    assert_solved(A, x, B)


def test_loop_that_gives_away_one_matrix_after_the_other(mesh):
    """Buffers that come back at once are not read by the call before."""
    xs = [jaxmg.potrs(put(spd(N, seed=s), mesh, "x", None), B, donate=True) for s in range(30)]
    for seed, x in enumerate(xs):
        assert_solved(spd(N, seed=seed), x, B)
