"""A failure gives NaN on every device and the same status, and the next good call works."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import jaxmg
from matrices import DTYPES, general, spd
from meshes import grid, line, put
from residuals import assert_solved

MESHES = {
    "1": lambda: line(1),
    "2": lambda: line(2),
    "4": lambda: line(4),
    "8": lambda: line(8),
    "2x2": lambda: grid(2, 2),
}


def solve(a, b=None, **options):
    b = np.ones(a.shape[0], a.dtype) if b is None else b
    x, logdet, status = jaxmg.potrs(a, b, return_logdet=True, return_status=True, **options)
    return np.asarray(x), float(logdet), int(status)


def good_call(mesh):
    a, b = spd(20), general(20, 1)
    assert_solved(a, jaxmg.potrs(a, b, mesh=mesh), b)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("tile", [8, 3])
def test_first_failing_minor(devices, tile):
    mesh = MESHES[devices]()
    for k in (1, 8, 9, 33, 64):
        a = np.eye(64)
        a[k - 1, k - 1] = -1
        x, logdet, status = solve(a, mesh=mesh, T_A=tile)
        assert status == k
        assert np.isnan(x).all()
        assert np.isnan(logdet)
    good_call(mesh)


@pytest.mark.parametrize("dtype", DTYPES)
def test_first_failing_minor_of_dense_matrices(dtype, mesh):
    """The index is that of A itself, not of the order in which rows are eliminated."""
    for k in (2, 17, 30):
        a = spd(33, dtype)
        a[k - 1, k - 1] = 0
        a[k:, k:] -= 50 * np.eye(33 - k)  # later minors fail too
        _, _, status = solve(a, mesh=mesh, T_A=2)
        assert status == k


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_small_indefinite_matrices(ranks):
    mesh = line(ranks)
    x, _, status = solve(np.ones((2, 2)), mesh=mesh)
    assert status == 2
    assert np.isnan(x).all()
    x, _, status = solve(np.arange(9.0).reshape(3, 3), mesh=mesh, lower=True)
    assert status == 1
    assert np.isnan(x).all()
    assert solve(np.zeros((3, 3)), mesh=mesh)[2] == 1


def nan_last(n=64):
    a = np.eye(n)
    a[-1, -1] = np.nan
    return a


def inf_off_diagonal(n=64):
    a = np.eye(n)
    a[5, 40] = a[40, 5] = np.inf
    return a


NON_FINITE = {
    "all nan": np.full((2, 2), np.nan),
    "inf": np.array([[np.inf]]),
    "last nan": nan_last(),
    "inf off diagonal": inf_off_diagonal(),
}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("a", NON_FINITE.values(), ids=NON_FINITE)
def test_non_finite_input_is_told_apart(a, ranks):
    mesh = line(ranks)
    x, logdet, status = solve(a, mesh=mesh)
    assert status == jaxmg.errors.NON_FINITE
    assert np.isnan(x).all()
    assert np.isnan(logdet)
    with pytest.raises(jaxmg.NonFiniteInputError, match="NaN"):
        jaxmg.potrs(a, np.ones(len(a)), mesh=mesh, check=True)
    good_call(mesh)


def test_matrix_that_is_not_hermitian(mesh):
    a = np.tril(spd(40))
    x, _, status = solve(a, mesh=mesh)
    assert status == jaxmg.errors.NOT_HERMITIAN
    assert np.isnan(x).all()
    with pytest.raises(jaxmg.NotHermitianError, match="lower="):
        jaxmg.potrs(a, np.ones(40), mesh=mesh, check=True)
    good_call(mesh)


def test_check_raises_with_the_index(mesh):
    a = np.eye(16)
    a[8, 8] = -2
    with pytest.raises(jaxmg.NotPositiveDefiniteError, match="order 9") as caught:
        jaxmg.potrs(put(a, mesh, "x", None), np.ones(16), check=True)
    assert caught.value.index == 9
    good_call(mesh)


def test_status_under_jit_and_donation(mesh):
    a = np.eye(32)
    a[20, 20] = -1
    jitted = jax.jit(lambda a: jaxmg.potrs(a, jnp.ones(32), return_status=True))
    x, status = jitted(put(a, mesh, "x", None))
    assert int(status) == 21
    assert np.isnan(np.asarray(x)).all()
    placed = put(a, mesh, "x", None)
    x, status = jaxmg.potrs(placed, np.ones(32), donate=True, return_status=True)
    assert placed.is_deleted()
    assert int(status) == 21


def test_failing_matrix_is_unchanged(mesh):
    a = spd(32)
    a[20, 20] = -1
    placed = put(a, mesh, "x", None)
    assert solve(placed)[2] == 21
    assert (np.asarray(placed) == a).all()


def test_results_are_nan_on_every_device(mesh):
    a = np.eye(16)
    a[3, 3] = -1
    x = jaxmg.potrs(put(a, mesh, "x", None), np.ones((16, 2)))
    assert len(x.addressable_shards) == len(jax.devices())
    for shard in x.addressable_shards:
        assert np.isnan(np.asarray(shard.data)).all()
    b = put(np.ones((16, 2)), mesh, "x", None)
    assert np.isnan(np.asarray(jaxmg.potrs(put(a, mesh, "x", None), b))).all()


def test_members_of_a_batch_fail_alone(mesh):
    batch = np.stack([np.eye(16)] * 3)
    batch[1, 4, 4] = -1
    x, status = jax.vmap(lambda a: jaxmg.potrs(a, jnp.ones(16), mesh=mesh, return_status=True))(
        batch
    )
    assert np.asarray(status).tolist() == [0, 5, 0]
    assert np.isnan(np.asarray(x)).all(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize("routine", ["potrs", "potri", "lu_solve"])
def test_checkify_reports_what_is_to_be_checked(routine, mesh):
    bad = np.eye(16)
    bad[6, 6] = 0 if routine == "lu_solve" else -1

    def function(a):
        if routine == "potri":
            return jaxmg.potri(a, check=True)
        return getattr(jaxmg, routine)(a, jnp.ones(16), check=True)

    checked = jax.jit(checkify.checkify(function))
    error, _ = checked(put(bad, mesh, "x", None))
    assert "status 7" in (error.get() or "")
    error, _ = checked(put(np.eye(16), mesh, "x", None))
    assert error.get() is None


def test_jitter_can_be_retried_under_jit(mesh):
    """Looks for a multiple of the identity that makes an indefinite matrix definite."""
    a = np.eye(16)
    a[0, 0] = -0.5

    def step(state):
        jitter, _ = state
        jitter = 10 * jitter
        _, status = jaxmg.potrs(
            a + jitter * jnp.eye(16), jnp.ones(16), mesh=mesh, return_status=True
        )
        return jitter, status

    search = jax.jit(lambda: jax.lax.while_loop(lambda s: s[1] != 0, step, (1e-3, jnp.int32(1))))
    jitter, status = search()
    assert float(jitter) == pytest.approx(1.0)
    assert int(status) == 0
