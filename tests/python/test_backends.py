"""The choice of who does the work, and what is said where that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native
from jaxmg._layout import entries
from matrices import general, spd
from meshes import line, put
from residuals import LIMIT, assert_solved, inverse_residual, relative

ON_CPU = jax.default_backend() == "cpu"
cpu_only = pytest.mark.skipif(not ON_CPU, reason="says what happens without GPUs")

CALLS = {
    "potrs": lambda a, **o: jaxmg.potrs(a, np.ones(a.shape[0]), **o),
    "potri": lambda a, **o: jaxmg.potri(a, **o),
}


@cpu_only
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("devices", [1, 4])
def test_cusolvermg_needs_gpus(call, devices):
    a, mesh = spd(16), line(devices)
    with pytest.raises(jaxmg.BackendUnavailableError, match="CUDA GPUs.*CPUs.*Leave backend out"):
        call(a, mesh=mesh, backend="cusolvermg")
    with pytest.raises(jaxmg.BackendUnavailableError, match="cusolvermg"):
        jax.jit(lambda a: call(a, mesh=mesh, backend="cusolvermg"))(a)
    call(a, mesh=mesh)  # the next call works


@cpu_only
def test_plan_says_the_same():
    with pytest.raises(jaxmg.BackendUnavailableError, match="CPUs"):
        jaxmg.plan("potrs", 100, "float64", backend="cusolvermg")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("backend", ["mystery", "cuSOLVERMg", 3, True])
def test_other_names_are_refused_with_those_that_are_known(call, backend):
    with pytest.raises(ValueError, match="backend: got .*'native', 'cusolvermg'"):
        call(spd(8), backend=backend)


def test_routines_that_the_library_is_not_used_for_say_so():
    for call in (
        lambda: jaxmg.lu_solve(spd(8), np.ones(8), backend="cusolvermg"),
        lambda: jaxmg.plan("cyclic_1d", 8, "float64", backend="cusolvermg"),
    ):
        with pytest.raises(ValueError, match="backend: got 'cusolvermg' for .*None, 'native'"):
            call()


def test_none_is_native(mesh):
    a, b = spd(24), np.ones(24)
    assert_solved(a, jaxmg.potrs(a, b, mesh=mesh, backend=None), b)
    assert (jaxmg.potri(a, mesh=mesh) == jaxmg.potri(a, mesh=mesh, backend="native")).all()


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(_native, "require", lambda platform: None)
    monkeypatch.setattr(_native, "optional_library", lambda name: ("libcusolverMg.so.12", None))
    with pytest.raises(jaxmg.BackendUnavailableError, match=r"libcusolverMg\.so\.12.*nvidia-cus"):
        _native.require_backend("cusolvermg", "cuda")


@cpu_only
def test_info_tells_why_it_is_not_there():
    found = jaxmg.info()["backends"]["cusolvermg"]
    assert found["available"] is False
    assert found["reason"]


@pytest.mark.parametrize("n", [1, 10, 1000, 1001, 8192, 40000])
@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("tile", [0, 7, 512])
def test_sizes_of_block_cyclic_storage(n, ranks, tile):
    """The factor has room for whole tiles, round robin, and hardly more than A where it can."""
    plan = entries("potrf", n, "float64", ranks, "cuda", tile=tile, backend="cusolvermg")
    rows, chosen = -(-n // ranks), plan["tile"]
    assert 1 <= chosen <= rows
    if tile:
        assert chosen == min(tile, rows)
    tiles = -(-n // chosen)
    assert plan["factor_rows"] == -(-tiles // ranks) * chosen
    assert plan["aux_count"] == 1
    buffers = {e["buffer"]: e["count"] for e in plan["entries"]}
    assert buffers["matrix"] == plan["factor_rows"] * n
    assert buffers["send_staging"] >= max(rows, chosen**2)


def test_native_sizes_are_those_of_the_shards():
    plan = entries("potrf", 1001, "float64", 4, "cpu")
    assert plan["factor_rows"] == 251


def test_the_engine_on_cpus_refuses_it_too():
    """What Python should not let through is refused by the engine, on all ranks alike."""
    if not ON_CPU:
        pytest.skip("says what happens without GPUs")
    from jaxmg import _calls
    from jaxmg._layout import Layout, resolve_plan

    r = resolve_plan(Layout(platform="cpu"), 8, "float64", backend="cusolvermg")
    call = jax.jit(lambda a: _calls.potrf(r, _calls.context(r.layout, 1), a))
    with pytest.raises(Exception, match="attribute backend = 1"):
        jax.block_until_ready(call(jnp.eye(8)))


# --- the way of arrays to the library and back, with JAX in the library's place -----------------


def _everything(block, ranks):
    return block if ranks == 1 else jax.lax.all_gather(block, "x", axis=0, tiled=True)


def stand_in(mesh_size):
    """What the foreign calls return for backend 1, made by JAX: rows of the factor lie in natural
    order in blocks of factor_rows, which is another storage than that of A if n is uneven."""

    def call(target, results, aliases, ctx, first, *rest, n, backend, **attributes):
        assert backend == 1
        ranks, rank = ctx[2], ctx[0]
        in_group = 1 if first.shape[0] >= n and mesh_size == 1 else mesh_size
        whole = _everything(first, in_group)
        held = first.shape[0]

        def mine(x):
            padded = jnp.pad(x, ((0, held * in_group - n), (0, 0)))
            return jax.lax.dynamic_slice_in_dim(padded, rank * held, held)

        if target == "jaxmg_potrf":
            rows = -(-n // in_group)
            a = whole.reshape(in_group, held, n)[:, :rows].reshape(-1, n)[:n]
            shapes = [result.shape for result in results]
            assert shapes[0] == first.shape
            info = jnp.zeros(8, jnp.int32).at[5].set(ranks)
            return mine(jnp.linalg.cholesky(a)), jnp.zeros(shapes[1], a.dtype), info
        factor = whole[:n]
        if target == "jaxmg_logdet":
            return 2 * jnp.sum(jnp.log(jnp.real(jnp.diagonal(factor))))
        if target == "jaxmg_potri":
            inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(n, dtype=factor.dtype))
            rows = -(-n // in_group)
            padded = jnp.pad(inverse, ((0, rows * in_group - n), (0, 0)))
            block = jax.lax.dynamic_slice_in_dim(padded, rank * rows, rows)
            return jnp.pad(block, ((0, held - rows), (0, 0)))
        assert target == "jaxmg_potrs"
        b = rest[2]
        if attributes["replicated"]:
            return jax.scipy.linalg.cho_solve((factor, True), b)
        x = jax.scipy.linalg.cho_solve((factor, True), _everything(b, in_group)[:n])
        padded = jnp.pad(x, ((0, b.shape[0] * in_group - n), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(padded, rank * b.shape[0], b.shape[0])

    return call


@pytest.fixture
def library(monkeypatch):
    from jaxmg import _calls

    def use(devices):
        monkeypatch.setattr(_calls, "call", stand_in(devices))
        monkeypatch.setattr(_native, "require_backend", lambda backend, platform: None)

    yield use
    jax.clear_caches()  # no program made with the stand-in may be used again


@cpu_only
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("devices", "n", "tile"), [(1, 10, 3), (4, 16, 4), (4, 22, 5), (3, 7, 2)])
def test_shapes_on_the_way(library, devices, n, tile, dtype):
    library(devices)
    mesh, a = line(devices), spd(n, dtype)
    options = {"mesh": mesh, "T_A": tile, "backend": "cusolvermg"}
    for b in (general(n, 1, dtype)[:, 0], general(n, 3, dtype)):
        x, logdet, status = jaxmg.potrs(a, b, return_logdet=True, return_status=True, **options)
        assert_solved(a, x, b)
        assert logdet == pytest.approx(np.linalg.slogdet(a)[1])
        assert int(status) == 0
    inverse = jaxmg.potri(a, **options)
    assert inverse.shape == (n, n)
    assert inverse_residual(a, inverse) <= LIMIT

    def loss(solve):
        return lambda a: jnp.sum(jnp.real(solve(a, jnp.ones(n, dtype))) ** 2)

    def theirs(a, b):
        return jnp.linalg.solve((a + jnp.conj(a).T) / 2, b)

    placed = jnp.asarray(a)
    got = jax.grad(loss(lambda a, b: jaxmg.potrs(a, b, **options)))(placed)
    assert relative(got, jax.grad(loss(theirs))(placed)) < 1e-11


@cpu_only
def test_split_right_hand_sides_and_batches_on_the_way(library):
    library(4)
    mesh, n = line(4), 20
    options = {"T_A": 3, "backend": "cusolvermg"}
    a, b = put(spd(n), mesh, "x", None), put(general(n, 2), mesh, "x", None)
    x = jaxmg.potrs(a, b, in_specs=(P("x", None), P("x", None)), **options)
    assert x.sharding.spec == b.sharding.spec
    assert_solved(spd(n), x, np.asarray(b))
    batch = np.stack([general(n, 2, seed=s) for s in range(3)])
    xs = jax.jit(jax.vmap(lambda b: jaxmg.potrs(a, b, **options)))(batch)
    for x, b in zip(xs, batch, strict=True):
        assert_solved(spd(n), x, b)


@cpu_only
def test_the_benchmark_says_why_it_has_no_such_peer():
    from jaxmg.bench import potrs
    from jaxmg.bench.matrices import row_mesh
    from jaxmg.bench.records import Case

    case = Case("potrs", 64, "float64", 1, 1, 0)
    mesh = row_mesh(jax.devices()[:1])
    (solver,) = [s for s in potrs.solvers(case, mesh, ["cusolvermg"], []) if s.needs]
    assert solver.name == "cusolvermg"
    assert "CUDA GPUs" in solver.needs
