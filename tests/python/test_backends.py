"""The choice of who does the work, and what is said where that cannot be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _native
from jaxmg._layout import entries
from matrices import general, hermitian, spd
from meshes import line, put
from residuals import (
    LIMIT,
    assert_solved,
    eigen_residual,
    inverse_residual,
    orthogonality,
    relative,
)

ON_CPU = jax.default_backend() == "cpu"
cpu_only = pytest.mark.skipif(not ON_CPU, reason="says what happens without GPUs")

CALLS = {
    "potrs": lambda a, **o: jaxmg.potrs(a, np.ones(a.shape[0]), **o),
    "potri": lambda a, **o: jaxmg.potri(a, **o),
    "lu_solve": lambda a, **o: jaxmg.lu_solve(a, np.ones(a.shape[0]), **o),
    "syevd": lambda a, **o: jaxmg.syevd(a, **o)[0],
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
    for routine in (*CALLS, "potrf", "logdet", "getrf"):
        with pytest.raises(jaxmg.BackendUnavailableError, match="CPUs"):
            jaxmg.plan(routine, 100, "float64", backend="cusolvermg")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("backend", ["mystery", "cuSOLVERMg", 3, True])
def test_other_names_are_refused_with_those_that_are_known(call, backend):
    with pytest.raises(ValueError, match="backend: got .*'native', 'cusolvermg'"):
        call(spd(8), backend=backend)


def test_routines_that_the_library_is_not_used_for_say_so():
    for call in (
        lambda: jaxmg.gesvd(spd(8), backend="cusolvermg"),
        lambda: jaxmg.polar(spd(8), backend="cusolvermg"),
        lambda: jaxmg.plan("slogdet", 8, "float64", backend="cusolvermg"),
        lambda: jaxmg.plan("cyclic_1d", 8, "float64", backend="cusolvermg"),
    ):
        with pytest.raises(ValueError, match="backend: got 'cusolvermg' for .*None, 'native'"):
            call()


def test_none_is_native(mesh):
    a, b = spd(24), np.ones(24)
    assert_solved(a, jaxmg.potrs(a, b, mesh=mesh, backend=None), b)
    for call in CALLS.values():
        assert (call(a, mesh=mesh) == call(a, mesh=mesh, backend="native")).all()


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(_native, "require", lambda platform: None)
    monkeypatch.setattr(_native, "optional_library", lambda name: ("libcusolverMg.so.12", None))
    with pytest.raises(jaxmg.BackendUnavailableError, match=r"libcusolverMg\.so\.12.*nvidia-cus"):
        _native.require_backend("cusolvermg", "cuda")


@cpu_only
@pytest.mark.parametrize("routine", CALLS)
def test_missing_library_is_named_by_every_routine(routine, monkeypatch):
    """As on a machine with GPUs, where nvidia-cusolver is not installed."""
    mesh = line(2, name=f"axis_of_{routine}")  # one whose layout nobody has asked for yet
    monkeypatch.setattr("jaxmg._resolve.platform_of", lambda mesh: "cuda")
    monkeypatch.setattr(_native, "require", lambda platform: None)
    monkeypatch.setattr(_native, "optional_library", lambda name: ("libcusolverMg.so.12", None))
    with pytest.raises(jaxmg.BackendUnavailableError, match=r"libcusolverMg\.so\.12.*nvidia-cus"):
        CALLS[routine](spd(8), mesh=mesh, backend="cusolvermg")


def test_more_devices_than_the_library_takes(monkeypatch):
    monkeypatch.setattr(_native, "require", lambda platform: None)
    monkeypatch.setattr(_native, "optional_library", lambda name: ("libcusolverMg.so.12", "there"))
    _native.require_backend("cusolvermg", "cuda", 32)
    with pytest.raises(jaxmg.BackendUnavailableError, match="at most 32 devices; the mesh has 33"):
        _native.require_backend("cusolvermg", "cuda", 33)
    with pytest.raises(jaxmg.BackendUnavailableError, match="at most 32 devices"):
        options = {"mesh": 64, "platform": "gpu", "backend": "cusolvermg"}
        jaxmg.plan("syevd", 100, "float64", **options)


@cpu_only
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_devices_of_several_processes_are_refused(call, library, monkeypatch):
    """Two processes are pretended, of which this one has half of the mesh."""
    from jaxmg._layout import Layout

    library(4)
    monkeypatch.setattr(jax, "process_count", lambda *_: 2)
    monkeypatch.setattr(Layout, "local_ranks", 2)
    with pytest.raises(jaxmg.BackendUnavailableError, match="several processes"):
        call(spd(16), mesh=line(4), backend="cusolvermg")


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


@pytest.mark.parametrize("n", [1, 10, 1001, 40000])
@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("tile", [0, 7, 4096])
def test_tiles_are_those_that_the_library_takes(n, ranks, tile):
    rows = -(-n // ranks)
    for routine, most in {"getrf": 512, "syevd": 1024}.items():
        plan = entries(routine, n, "float32", ranks, "cuda", tile=tile, backend="cusolvermg")
        assert 1 <= plan["tile"] <= min(rows, most)
        assert not tile or plan["tile"] == min(tile, rows, most)
        tiles = -(-n // plan["tile"])
        assert plan["factor_rows"] == -(-tiles // ranks) * plan["tile"]
    lu = entries("getrf", n, "float32", ranks, "cuda", tile=tile, backend="cusolvermg")
    assert lu["aux_count"] == 2 * lu["factor_rows"] * lu["tile"]


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


def decomposed(a, shapes, rank, rows, info, *, triangle, vectors, first, count, tile, precision):
    if triangle >= 0:
        half = jnp.tril(a) if triangle == 0 else jnp.triu(a)
        a = half + jnp.conj(half.T) - jnp.diag(jnp.real(jnp.diagonal(a)))
    w, v = jnp.linalg.eigh(a, symmetrize_input=False)
    held = shapes[1][0]
    if not vectors:
        return w, jnp.zeros(shapes[1], a.dtype), info
    # Rows of the contiguous storage, with whatever in the room beyond.
    padded = jnp.pad(v[:, first : first + count], ((0, rows * 8), (0, 0)))
    block = jax.lax.dynamic_slice_in_dim(padded, rank * rows, rows)
    if len(shapes) == 3:
        return w, jnp.pad(block, ((0, held - rows), (0, 0)), constant_values=jnp.nan), info
    return w, jnp.zeros(shapes[1], a.dtype), block, info


def stand_in(mesh_size):
    """What the foreign calls return for backend 1, made by JAX: rows of the factor lie in natural
    order in blocks of factor_rows, which is another storage than that of A if n is uneven."""

    def call(target, results, aliases, ctx, block, *rest, n, backend, **attributes):
        assert backend == 1
        ranks, rank = ctx[2], ctx[0]
        in_group = 1 if block.shape[0] >= n and mesh_size == 1 else mesh_size
        whole = _everything(block, in_group)
        held = block.shape[0]

        def mine(x):
            padded = jnp.pad(x, ((0, held * in_group - n), (0, 0)))
            return jax.lax.dynamic_slice_in_dim(padded, rank * held, held)

        if target in ("jaxmg_potrf", "jaxmg_getrf", "jaxmg_syevd"):
            rows = -(-n // in_group)
            a = whole.reshape(in_group, held, n)[:, :rows].reshape(-1, n)[:n]
            shapes = [result.shape for result in results]
            info = jnp.zeros(8, jnp.int32).at[5].set(ranks)
            if target == "jaxmg_syevd":
                assert shapes[1] == block.shape
                return decomposed(a, shapes, rank, rows, info, **attributes)
            assert shapes[0] == block.shape
            if target == "jaxmg_getrf":
                return mine(a), jnp.zeros(shapes[1], a.dtype), jnp.zeros(2 * n, jnp.int32), info
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
        b = rest[-1]
        if target == "jaxmg_getrs":
            a = factor.T if attributes["transpose"] else factor
            solve = functools.partial(jnp.linalg.solve, a)
        else:
            assert target == "jaxmg_potrs"
            solve = functools.partial(jax.scipy.linalg.cho_solve, (factor, True))
        if attributes["replicated"]:
            return solve(b)
        x = solve(_everything(b, in_group)[:n])
        padded = jnp.pad(x, ((0, b.shape[0] * in_group - n), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(padded, rank * b.shape[0], b.shape[0])

    return call


@pytest.fixture
def library(monkeypatch):
    from jaxmg import _calls, _lu_calls

    def use(devices):
        for module in (_calls, _lu_calls):
            monkeypatch.setattr(module, "call", stand_in(devices))
        monkeypatch.setattr(_native, "require_backend", lambda *_: None)

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
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("devices", "n", "tile"), [(1, 10, 3), (4, 16, 4), (4, 22, 5), (3, 7, 2)])
def test_shapes_on_the_way_of_lu(library, devices, n, tile, dtype):
    library(devices)
    mesh, a = line(devices), general(n, n, dtype) + 2 * np.eye(n)
    options = {"mesh": mesh, "T_A": tile, "backend": "cusolvermg"}
    for b in (general(n, 1, dtype)[:, 0], general(n, 3, dtype)):
        x, status = jaxmg.lu_solve(a, b, return_status=True, **options)
        assert_solved(a, x, b)
        assert int(status) == 0

    def loss(solve):
        return lambda a: jnp.sum(jnp.real(solve(a, jnp.ones(n, dtype))) ** 2)

    placed = jnp.asarray(a)
    got = jax.grad(loss(lambda a, b: jaxmg.lu_solve(a, b, **options)))(placed)
    assert relative(got, jax.grad(loss(jnp.linalg.solve))(placed)) < 1e-11


@cpu_only
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("devices", "n", "tile"), [(1, 10, 3), (4, 16, 4), (4, 22, 5), (3, 7, 2)])
def test_shapes_on_the_way_of_eigenvectors(library, devices, n, tile, dtype):
    library(devices)
    mesh, a = line(devices), hermitian(n, dtype)
    options = {"mesh": mesh, "T_A": tile, "backend": "cusolvermg"}
    for lower in (None, True, False):
        w, v, status = jaxmg.syevd(a, return_status=True, lower=lower, **options)
        assert int(status) == 0
        assert eigen_residual(a, w, v) <= LIMIT
        assert orthogonality(v) <= LIMIT
        values = jaxmg.syevd(a, return_eigenvectors=False, lower=lower, **options)
        assert relative(values, w) < 1e-12
    weights = jnp.arange(1.0, n + 1)
    got, want = (
        jax.grad(lambda a, call=call: jnp.sum(weights * call(a)))(jnp.asarray(a))
        for call in (
            lambda a: jaxmg.syevd(a, return_eigenvectors=False, **options),
            jnp.linalg.eigvalsh,
        )
    )
    assert relative(got, want) < 1e-10


@cpu_only
def test_split_right_hand_sides_and_batches_on_the_way(library):
    library(4)
    mesh, n = line(4), 20
    options = {"T_A": 3, "backend": "cusolvermg"}
    a, b = put(spd(n), mesh, "x", None), put(general(n, 2), mesh, "x", None)
    for solve in (jaxmg.potrs, jaxmg.lu_solve):
        x = solve(a, b, in_specs=(P("x", None), P("x", None)), **options)
        assert x.sharding.spec == b.sharding.spec
        assert_solved(spd(n), x, np.asarray(b))
    batch = np.stack([general(n, 2, seed=s) for s in range(3)])
    xs = jax.jit(jax.vmap(lambda b: jaxmg.potrs(a, b, **options)))(batch)
    for x, b in zip(xs, batch, strict=True):
        assert_solved(spd(n), x, b)


@cpu_only
@pytest.mark.parametrize("routine", CALLS)
def test_the_benchmark_says_why_it_has_no_such_peer(routine):
    from jaxmg.bench.matrices import row_mesh
    from jaxmg.bench.records import Case
    from jaxmg.bench.routines import ROUTINES

    case = Case(routine, 64, "float64", 1, 1, 0)
    mesh = row_mesh(jax.devices()[:1])
    assert "cusolvermg" in ROUTINES[routine].PEERS
    (solver,) = ROUTINES[routine].solvers(case, mesh, ["cusolvermg"], [])
    assert solver.name == "cusolvermg"
    assert "CUDA GPUs" in solver.needs


@cpu_only
def test_the_benchmark_on_cpus_goes_on_without_it(capsys):
    from jaxmg import bench

    report = bench.run(
        "lu_solve",
        n=[32],
        against=["cusolvermg", "jax"],
        devices=[1],
        dtype=["float64"],
        repeats=1,
        in_process=True,
        out=None,
        limits=False,
    )
    names = [m.solver for m in report.results[0].measurements if m.times]
    assert names == ["jaxmg", "jaxmg donated", "jax"]
    assert "backend='cusolvermg' drives CUDA GPUs" in capsys.readouterr().out
