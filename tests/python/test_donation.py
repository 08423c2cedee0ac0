"""The caller's matrix is kept bit by bit unless it is given away, and then its memory is reused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from matrices import DTYPES, general, spd
from meshes import AUTO, EXPLICIT, grid, line, put
from residuals import assert_solved, relative

N = 64


def buffers(x):
    return {shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards}


def made(a, mesh, *spec):
    """`a` in memory of a program: what NumPy shares could not be reused."""
    return jax.jit(lambda x: x + 0)(put(a, mesh, *spec))


CALLS = {
    "potrs": jaxmg.potrs,
    "triangle": lambda a, b: jaxmg.potrs(a, b, lower=True),
    "all results": lambda a, b: jaxmg.potrs(a, b, return_logdet=True, return_status=True),
    "potri": lambda a, b: jaxmg.potri(a),
    "context form": lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, 8),
    "factor": lambda a, b: jaxmg.linalg.cho_factor(a).solve(b),
    "logdet": lambda a, b: jaxmg.linalg.logdet(a),
    "gradient": jax.grad(lambda a, b: jaxmg.potrs(a, b).sum()),
    "cyclic": lambda a, b: jaxmg.cyclic_1d(a, 2),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_matrix_is_kept(kind, call, mesh):
    a, b = spd(N), general(N, 2)
    mesh = line(8, kind=kind)
    placed, right = made(a, mesh, "x", None), made(b, mesh)
    with jax.set_mesh(mesh):  # of Explicit axes JAX itself wants that outside of jit
        for function in (CALLS[call], jax.jit(CALLS[call])):
            for _ in range(2):
                jax.block_until_ready(function(placed, right))
    assert (np.asarray(placed) == a).all()
    assert (np.asarray(right) == b).all()


def test_matrix_is_kept_in_loops(mesh):
    a, b = spd(N), general(N, 2)
    placed = made(a, mesh, "x", None)
    loop = jax.jit(lambda a, b: lax.fori_loop(0, 5, lambda _, x: jaxmg.potrs(a, x), b))
    first = np.asarray(loop(placed, b))
    for _ in range(3):
        assert (np.asarray(loop(placed, b)) == first).all()
    assert (np.asarray(placed) == a).all()
    expected = b
    for _ in range(5):
        expected = np.linalg.solve(a, expected)
    assert relative(first, expected) < 1e-11


def test_matrix_that_is_used_again_in_the_program_is_kept(mesh):
    a, b = spd(N), general(N, 2)

    @jax.jit
    def solve_and_check(a, b):
        a = a * 2.0
        x = jaxmg.potrs(a, b)
        return x, a @ x - b

    x, rest = solve_and_check(put(a, mesh, "x", None), b)
    assert_solved(2 * a, x, b)
    assert float(jnp.max(jnp.abs(rest))) < 1e-10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_donated_matrix(kind, dtype):
    mesh = line(8, kind=kind)
    a, b = spd(N, dtype), general(N, 2, dtype)
    placed, right = made(a, mesh, "x", None), put(b, mesh)
    x, status = jaxmg.potrs(placed, right, donate=True, return_status=True)
    assert_solved(a, x, b)
    assert int(status) == 0
    assert placed.is_deleted()
    assert not right.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        placed + 1


USES = {
    "potrs": jaxmg.potrs,
    "again": lambda a, b: jaxmg.potrs(a, b, donate=True),
    "jit": jax.jit(jaxmg.potrs),
    "program of the user": jax.jit(lambda a, b: a @ b),
}


@pytest.mark.parametrize("taken_by", ["potrs", "potri", "cho_factor"])
@pytest.mark.parametrize("use", USES)
def test_use_of_a_donated_matrix(use, taken_by, mesh):
    """JAX's own message, also from programs that were compiled before."""
    a, b = put(spd(N), mesh, "x", None), put(general(N, 2), mesh)
    other = made(spd(N, seed=1), mesh, "x", None)
    for _ in range(2):
        jax.block_until_ready(jaxmg.potrs(a, b) if use == "again" else USES[use](other, b))
    take = {
        "potrs": lambda: jaxmg.potrs(a, b, donate=True),
        "potri": lambda: jaxmg.potri(a, donate=True),
        "cho_factor": lambda: jaxmg.linalg.cho_factor(a, overwrite_a=True),
    }
    jax.block_until_ready(take[taken_by]())
    with pytest.raises(RuntimeError, match="deleted"):
        USES[use](a, b)


def test_donated_matrices_that_must_be_moved():
    mesh = grid(4, 2)
    a, b = spd(N), general(N, 2)
    for spec in [(None, "x"), ("x", "y"), ("x", None), ()]:
        placed = made(a, mesh, *spec)
        assert_solved(a, jaxmg.potrs(placed, b, donate=True), b)
        assert placed.is_deleted()


def test_buffer_of_a_matrix_donated_under_jit(mesh):
    """Returned in the place of A, the work buffer is that of A."""
    a, b = spd(N), general(N, 2)
    solve = jax.jit(lambda a, b: jaxmg.potrs_shardmap_ctx(a, b)[:2], donate_argnums=0)
    placed = made(a, mesh, "x", None)
    before = buffers(placed)
    work, x = solve(placed, b)
    assert_solved(a, x, b)
    assert placed.is_deleted()
    assert buffers(work) == before
    factor = jax.jit(lambda a: jaxmg.linalg.cho_factor(a, overwrite_a=True), donate_argnums=0)
    placed = made(a, mesh, "x", None)
    before = buffers(placed)
    made_of = factor(placed)
    assert_solved(a, made_of.solve(b), b)
    assert placed.is_deleted()
    assert buffers(made_of.parts.work) == before


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("n", [64, 61, 9])
def test_padded_matrix_donated_under_jit(n, kind):
    """A size that divides by nothing is in place as well, if the rows are padded."""
    mesh = line(8, kind=kind)
    a, b = spd(n), general(n, 2)
    padded = np.zeros((-(-n // 8) * 8, n))
    padded[:n] = a
    right = put(b, mesh)
    solve = jax.jit(lambda a, b: jaxmg.potrs_shardmap_ctx(a, b, n=n), donate_argnums=0)
    placed = made(padded, mesh, "x", None)
    before = buffers(placed)
    work, x, status = solve(placed, right)
    assert_solved(a, x, b)
    assert int(status[0]) == 0
    assert placed.is_deleted()
    assert buffers(work) == before
    for invert in (
        lambda a: jaxmg.potri(a, n=n),
        lambda a: jaxmg.potri_shardmap_ctx(a, n=n)[0],
    ):
        placed = made(padded, mesh, "x", None)
        before = buffers(placed)
        inverse = jax.jit(invert, donate_argnums=0)(placed)
        assert relative(np.asarray(inverse)[:n], np.linalg.inv(a)) < 1e-10
        assert not np.asarray(inverse)[n:].any()
        assert placed.is_deleted()
        assert buffers(inverse) == before


def test_donated_through_shard_map(mesh):
    a, b = spd(1024), general(1024, 1)
    rows, whole = P("x", None), P()

    def body(a, b):
        x, status = jaxmg.potrs_shardmap_ctx(a, b)
        return x, status

    call = jax.shard_map(
        body, mesh=mesh, in_specs=(rows, whole), out_specs=(whole, P(None)), check_vma=False
    )

    def solve(a, b):
        return call(a * 1.0 + jnp.eye(1024), b)  # an intermediate: dead after the call

    arguments = (
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, rows)),
        jax.ShapeDtypeStruct(b.shape, b.dtype, sharding=NamedSharding(mesh, whole)),
    )
    program = jax.jit(solve).lower(*arguments).compile()
    shard = 1024 * 1024 * 8 / mesh.size
    assert program.memory_analysis().temp_size_in_bytes < 1.4 * shard
    x, status = program(put(a, mesh, "x", None), put(b, mesh))
    assert_solved(a + np.eye(1024), x, b)
    assert int(status[0]) == 0


def test_matrix_as_its_own_right_hand_side(mesh):
    a = spd(N)
    for function in (jaxmg.potrs, jax.jit(jaxmg.potrs)):
        placed = made(a, mesh, "x", None)
        assert relative(function(placed, placed), np.eye(N)) < 1e-12
        assert (np.asarray(placed) == a).all()
    placed = made(a, mesh, "x", None)
    assert relative(jaxmg.potrs(placed, placed, donate=True), np.eye(N)) < 1e-12
