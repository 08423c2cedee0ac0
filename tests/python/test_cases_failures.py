"""One verdict for one matrix: whatever the mesh, the tile, the call form and the repetition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import child
import jaxmg
from jaxmg import errors, linalg
from matrices import DTYPES, eps, general, is_complex, kernel, spd
from meshes import grid, line, need, put
from residuals import assert_solved, relative

N = 16


def with_element(i, j, value):
    a = spd(N)
    a[i, j] = a[j, i] = value
    return a


MATRICES = {
    "good": (spd(N), 0),
    "minor": (with_element(4, 4, -1), 5),
    "first": (-np.eye(N), 1),
    "last": (with_element(N - 1, N - 1, -1), N),
    "zero": (np.zeros((N, N)), 1),
    "ones": (np.ones((N, N)), 2),
    "nan": (with_element(3, 9, np.nan), errors.NON_FINITE),
    "nan on the diagonal": (with_element(15, 15, np.nan), errors.NON_FINITE),
    "infinity": (with_element(3, 9, np.inf), errors.NON_FINITE),
    "triangle": (np.tril(spd(N)), errors.NOT_HERMITIAN),
}
B = general(N, 2)


def _in_shard_map(a, mesh):
    solve = lambda a, b: jaxmg.potrs(a, b, return_status=True)  # noqa: E731
    specs = {"in_specs": (P("x", None), P()), "out_specs": (P(), P())}
    return jax.jit(jax.shard_map(solve, mesh=mesh, check_vma=False, **specs))(a, B)


def _factor(a, **options):
    factor = linalg.cho_factor(a, **options)
    return factor.solve(B), factor.status


WAYS = {
    "host": lambda a, mesh: jaxmg.potrs(a, B, mesh=mesh, return_status=True),
    "one device": lambda a, mesh: jaxmg.potrs(a, B, return_status=True),
    "jit": lambda a, mesh: jax.jit(lambda a: jaxmg.potrs(a, B, return_status=True))(
        put(a, mesh, "x", None)
    ),
    "donated": lambda a, mesh: jaxmg.potrs(
        put(a, mesh, "x", None), B, donate=True, return_status=True
    ),
    "shard_map": _in_shard_map,
    "factor": lambda a, mesh: _factor(a, mesh=mesh),
    "factor in place": lambda a, mesh: _factor(put(a, mesh, "x", None), overwrite_a=True),
    "batch": lambda a, mesh: jax.tree.map(
        lambda x: x[1],
        jax.vmap(lambda a: jaxmg.potrs(a, B, mesh=mesh, return_status=True))(np.stack([spd(N), a])),
    ),
    "many": lambda a, mesh: jax.tree.map(
        lambda x: x[-1],
        jax.vmap(lambda a: jaxmg.potrs(a, B, mesh=mesh, return_status=True))(
            np.stack([spd(N)] * 8 + [a])
        ),
    ),
    "no right-hand sides": lambda a, mesh: (
        np.full(1, np.nan if name_of(a) != "good" else 0.0),
        jaxmg.potrs(a, B[:, :0], mesh=mesh, return_status=True)[1],
    ),
}


def name_of(a):
    return next(name for name, (matrix, _) in MATRICES.items() if matrix is a)


@pytest.mark.parametrize("way", WAYS)
def test_status_does_not_depend_on_how_one_calls(way):
    need(8)
    mesh = line(8)
    for name, (a, expected) in MATRICES.items():
        x, status = WAYS[way](a, mesh)
        assert int(status) == expected, name
        assert np.isnan(np.asarray(x)).all() == (expected != 0), name
        assert np.isfinite(np.asarray(x)).all() == (expected == 0), name


def test_every_routine_gives_nan_for_every_failure(mesh):
    for name, (a, expected) in MATRICES.items():
        if expected:
            for value in (
                linalg.logdet(a, mesh=mesh),
                linalg.cho_factor(a, mesh=mesh).logdet(),
                linalg.cho_factor(a, mesh=mesh).inv(),
                linalg.cho_factor(a, mesh=mesh).factor()[0],
                linalg.solve(a, B, assume_a="pos", mesh=mesh),
                jax.grad(lambda a: jaxmg.potrs(a, B, mesh=mesh).sum())(a),
            ):
                assert np.isnan(np.asarray(value)).any(), name
    assert_solved(spd(N), jaxmg.potrs(spd(N), B, mesh=mesh), B)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2)], ids=str)
def test_every_minor_is_found(shape):
    """On every device, as the index of the element, not of its block."""
    mesh = grid(*shape)
    solve = jax.jit(lambda a: jaxmg.potrs(a, jnp.ones(64), 8, mesh=mesh, return_status=True)[1])
    dense = spd(64)
    for k in range(1, 65):
        for a in (np.eye(64), dense):
            a = a.copy()
            a[k - 1, k - 1] = -1
            status = solve(a)
            for shard in status.addressable_shards:
                assert int(shard.data) == k


def test_table_of_jitters():
    """Above rounding every mesh must accept, and far below zero every mesh must refuse."""
    meshes = [line(1), line(min(4, jax.device_count()))]
    n = 200
    for dtype in ("float32", "float64"):
        k = kernel(n, "float64", jitter=0.0)
        noise = n * eps(dtype) * np.linalg.norm(k, 2)
        for jitter, definite in ((-3 * noise, False), (3 * noise, True), (1e-2, True)):
            a = (k + jitter * np.eye(n)).astype(dtype)
            found = [jaxmg.potrs(a, np.ones(n, dtype), mesh=m, return_status=True) for m in meshes]
            for x, status in found:
                assert (int(status) == 0) == definite, (dtype, jitter)
                assert np.isfinite(np.asarray(x)).all() == definite
                if definite:
                    assert_solved(a, x, np.ones(n, dtype))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_fifty_times_the_same_verdict(dtype, mesh):
    """A Gram matrix on the edge: whatever the answer is, it is the same bits every time."""
    m = general(192, 192, dtype)
    gram = m @ m.conj().T
    a = (gram / np.max(np.abs(gram))).astype(dtype)
    a = ((a + a.conj().T) / 2).astype(dtype)
    b = general(192, 1, dtype)
    for matrix in (a, a - 1e-3 * np.eye(192, dtype=dtype)):
        placed = put(matrix, mesh, "x", None)
        x, status = map(np.asarray, jaxmg.potrs(placed, b, return_status=True))
        for _ in range(50):
            again, verdict = jaxmg.potrs(placed, b, return_status=True)
            assert int(verdict) == int(status)
            assert (np.asarray(again).view(np.uint8) == x.view(np.uint8)).all()


def test_verdict_is_the_same_in_fresh_processes():
    need(2)
    program = """
a = spd(40, "float32")
a[20, 20] = -1
x, status = jaxmg.potrs(a, np.ones(40, np.float32), mesh=line(4), return_status=True)
y = jaxmg.potrs(spd(40, "float32"), np.ones(40, np.float32), mesh=line(4))
print(int(status), np.asarray(y).tobytes().hex())
"""
    first, second = (child.run(program).splitlines()[-1] for _ in range(2))
    assert first == second
    assert first.startswith("21 ")


@pytest.mark.parametrize("ranks", [1, 4])
def test_message_tells_causes_apart(ranks):
    mesh = line(ranks)
    texts = {}
    for name in ("minor", "nan", "triangle"):
        with pytest.raises(jaxmg.JaxMgError) as caught:
            jaxmg.potrs(MATRICES[name][0], B, mesh=mesh, check=True)
        texts[name] = str(caught.value)
    assert "order 5 is not positive definite" in texts["minor"]
    assert "NaN" in texts["nan"]
    assert "positive definite" not in texts["nan"]
    assert "lower=" in texts["triangle"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_triangle_that_is_not_read_may_hold_anything(lower, dtype, mesh):
    a, b = spd(N, dtype), general(N, 2, dtype)
    keep = np.tri(N, dtype=bool) if lower else np.tri(N, dtype=bool).T
    dirty = np.where(keep, a, np.asarray(np.nan, dtype)).astype(dtype)
    logdet = np.linalg.slogdet(a)[1]
    tolerance = 1e3 * eps(dtype)
    assert_solved(a, linalg.solve(dirty, b, lower, assume_a="pos", mesh=mesh), b)
    factor = linalg.cho_factor(dirty, lower, mesh=mesh)
    assert_solved(a, factor.solve(b), b)
    assert abs(float(factor.logdet()) - logdet) < tolerance * abs(logdet)
    assert abs(float(linalg.logdet(dirty, lower=lower, mesh=mesh)) - logdet) < tolerance * abs(
        logdet
    )
    for function in (
        lambda a: linalg.logdet(a, lower=lower, mesh=mesh),
        lambda a: jnp.real(linalg.cho_factor(a, lower, mesh=mesh).solve(b)).sum(),
    ):
        g = np.asarray(jax.grad(function)(dirty))
        assert np.isfinite(g).all()
        assert (g[~keep] == 0).all()
    for count in (3, 8):  # one after the other, and spread over the devices
        batch = np.stack([dirty] * count)
        x = jax.vmap(lambda a: jaxmg.potrs(a, b, mesh=mesh, lower=lower))(batch)
        assert_solved(a, x[-1], b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_very_large_and_very_small_numbers(dtype):
    """Finite, positive definite input must not be called anything else."""
    limits = np.finfo(dtype)
    for scale in (float(limits.max) / 40, 100 * float(limits.tiny / limits.eps)):
        a = (np.eye(32) + 0.01 * (spd(32) - 4.5 * np.eye(32))).astype(dtype) * scale
        a = a.astype(dtype)
        b = general(32, 1, dtype)
        for ranks in (1, min(4, jax.device_count())):
            x, logdet, status = jaxmg.potrs(
                a,
                (b * scale).astype(dtype),
                mesh=line(ranks),
                return_logdet=True,
                return_status=True,
            )
            assert int(status) == 0
            exact = np.linalg.solve(a / scale, b)
            assert relative(np.asarray(x).astype(exact.dtype), exact) < 1e3 * eps(dtype)
            expected = np.linalg.slogdet(a / scale)[1] + 32 * np.log(scale)
            assert float(logdet) == pytest.approx(expected, rel=1e-4)


def test_columns_of_the_right_hand_side_fail_alone(mesh):
    b = general(N, 3)
    b[4, 1] = np.nan
    x, status = jaxmg.potrs(spd(N), b, mesh=mesh, return_status=True)
    assert int(status) == 0
    assert np.isnan(np.asarray(x)).all(axis=0).tolist() == [False, True, False]
    assert_solved(spd(N), np.asarray(x)[:, [0, 2]], b[:, [0, 2]])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_upper_triangle_is_not_conjugated(dtype):
    a = np.array([[2, 1j], [-1j, 2]]) if is_complex(dtype) else np.array([[2.0, 1], [1, 2]])
    b = np.array([1.0, 2.0]).astype(dtype)
    for ranks in (1, min(2, jax.device_count())):
        for lower in (True, False):
            half = np.tril(a) if lower else np.triu(a)
            x = jaxmg.potrs(half, b, mesh=line(ranks), lower=lower)
            assert relative(x, np.linalg.solve(a, b)) < 1e-15
            order_l, order = linalg.cho_factor(half, lower, mesh=line(ranks)).factor()
            l, p = np.asarray(order_l), np.asarray(order)  # noqa: E741
            assert relative(l @ l.conj().T, a[p][:, p]) < 1e-15
