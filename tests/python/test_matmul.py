"""Products of matrices split by rows: values, derivatives, memory, meshes and contexts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

import jaxmg
from jaxmg import _matmul, _ring
from jaxmg._context import calling_on
from jaxmg._layout import Layout
from jaxmg._matmul import Ring
from jaxmg._resolve import distributed
from matrices import DTYPES, eps, general, orthonormal
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import relative

WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])


def ring(mesh):
    return Ring(distributed(mesh, None, 0, "mesh"))


def products(r, a, b, c, d):
    """A B, A C^H, A^H D, A^H for A (m, k), B (k, n), C (n, k), D (m, n)."""
    m, n = d.shape
    return (
        _matmul.times(r, a, b),
        _matmul.times_adjoint(r, a, c, n),
        _matmul.adjoint_times(r, a, d, m),
        _matmul.adjoint(r, a, m),
    )


def operands(m, k, n, dtype):
    shapes = ((m, k), (k, n), (n, k), (m, n))
    return [general(*shape, dtype, seed) for seed, shape in enumerate(shapes)]


def expected(a, b, c, d):
    return a @ b, a @ c.conj().T, a.conj().T @ d, a.conj().T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_products(dtype, devices):
    r = ring(line(devices))
    for m, k, n in ((7, 5, 3), (3, 17, 9)):
        arrays = operands(m, k, n, dtype)
        for got, want in zip(products(r, *arrays), expected(*arrays), strict=True):
            assert got.shape == (-(-want.shape[0] // devices) * devices, want.shape[1])
            assert relative(got[: want.shape[0]], want) <= 8 * max(m, k, n) * eps(dtype)
            assert not np.any(got[want.shape[0] :])


def test_numbers_beyond_the_end_are_not_read(mesh):
    """Rows that pad an operand may hold anything."""
    r = ring(mesh)
    a, b, c, d = operands(9, 5, 11, "float64")
    padded = [np.pad(x, ((0, 24 - len(x)), (0, 0)), constant_values=np.nan) for x in (b, c, d)]
    pa = np.pad(a, ((0, 7), (0, 0)), constant_values=np.nan)
    pb, pc, pd = padded[0][:8], padded[1][:16], padded[2][:16]
    got = (
        _matmul.times(r, a, pb),
        _matmul.times_adjoint(r, a, pc, 11),
        _matmul.adjoint_times(r, pa, pd, 9),
        _matmul.adjoint(r, pa, 9),
    )
    for x, want in zip(got, expected(a, b, c, d), strict=True):
        assert relative(x[: want.shape[0]], want) < 1e-14


@WRAPS
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_meshes(kind, wrap):
    for mesh, spec in ((line(8, kind=kind), ("x",)), (grid(4, 2, kind=kind), (("x", "y"),))):
        arrays = operands(16, 8, 24, "complex128")
        placed = [put(x, mesh, *spec, None) for x in arrays]
        r = ring(mesh)
        out = wrap(lambda *xs, r=r: products(r, *xs))(*placed)
        for got, want in zip(out, expected(*arrays), strict=True):
            assert relative(got, want) < 1e-14
            assert len(got.sharding.device_set) == 8
            assert got.addressable_shards[0].data.shape == (want.shape[0] // 8, want.shape[1])


@WRAPS
def test_beside_another_mesh_of_the_context(wrap):
    mesh = line(8)
    arrays = operands(16, 8, 24, "float64")
    placed = [put(x, mesh, "x", None) for x in arrays]

    r = ring(mesh)

    def run(*xs):
        with calling_on(r.layout):
            return products(r, *xs)

    with jax.set_mesh(grid(4, 2, names=("p", "q"))):
        out = wrap(run)(*placed)
    for got, want in zip(out, expected(*arrays), strict=True):
        assert relative(got, want) < 1e-14


def test_compiled_for_one_device_though_the_type_shows_a_mesh(mesh):
    r = ring(mesh)
    arrays = operands(9, 5, 11, "float64")
    placed = [put(np.pad(x, ((0, -len(x) % 8), (0, 0))), mesh, "x", None) for x in arrays]

    def run(s):
        a, b, c, d = (x * s for x in placed)
        return (
            _matmul.times(r, a, b),
            _matmul.times_adjoint(r, a, c, 11),
            _matmul.adjoint_times(r, a, d, 9),
            _matmul.adjoint(r, a, 9),
        )

    for got, want in zip(jax.jit(run)(1.0), expected(*arrays), strict=True):
        assert relative(got[: want.shape[0]], want) < 1e-14


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("devices", [1, 3])
def test_derivatives(dtype, devices):
    r = ring(line(devices))
    arrays = operands(5, 4, 3, dtype)

    def run(*xs):
        return [x[: w.shape[0]] for x, w in zip(products(r, *xs), expected(*arrays), strict=True)]

    check_grads(jax.jit(run), arrays, order=2, modes=["fwd", "rev"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [2, 9])
def test_vmap(count, mesh):
    r = ring(mesh)
    batches = [np.stack([x + k for k in range(count)]) for x in operands(5, 4, 3, "float64")]
    out = jax.jit(jax.vmap(lambda *xs: products(r, *xs)))(*batches)
    for k in range(count):
        want = expected(*(x[k] for x in batches))
        for got, exact in zip(out, want, strict=True):
            assert relative(got[k, : exact.shape[0]], exact) < 1e-14
    a, b = batches[0], batches[1]
    one = jax.vmap(lambda b: _matmul.times(r, a[0], b))(b)
    assert relative(one[:, :5], a[0] @ b) < 1e-14
    two = jax.vmap(lambda a: _matmul.times(r, a, b[0]))(a)
    assert relative(two[:, :5], a @ b[0]) < 1e-14


def test_no_device_gathers_an_operand():
    need(8)
    mesh = line(8)
    r = ring(mesh)
    n = 64
    placed = [put(x, mesh, "x", None) for x in operands(n, n, n, "float64")]
    for i in range(4):
        program = jax.jit(lambda *xs, i=i: products(r, *xs)[i]).lower(*placed).compile()
        text = program.as_text()
        assert "all-gather" not in text
        assert f"f64[{n},{n}]" not in text
        memory = program.memory_analysis()
        if memory is not None:
            assert memory.temp_size_in_bytes <= 5 * n * n // 8 * 8, memory


def test_inside_shard_map():
    """The same programs on blocks, with the check of replication on."""
    need(4)
    mesh = line(4)
    a, b, c, d = operands(8, 4, 12, "float64")

    def body(a, b, c, d):
        layout = Layout("manual", jax.sharding.get_abstract_mesh(), ("x",))
        rank = jax.lax.axis_index("x")
        return (
            _ring.times(layout, rank, a, b, 4),
            _ring.times_transposed(layout, rank, a, c, 12),
            _ring.transposed_times(layout, rank, a, d, 8),
            _ring.transposed(layout, rank, a, 8),
        )

    spec = P("x", None)
    mapped = jax.shard_map(body, mesh=mesh, in_specs=(spec,) * 4, out_specs=(spec,) * 4)
    out = jax.jit(mapped)(a, b, c, d)
    for got, want in zip(out, expected(a, b, c, d), strict=True):
        assert relative(got, want) < 1e-14
    assert jnp.isfinite(out[0]).all()


def hermitian(mesh, a, b, count=0):
    """A^H B of matrices whose product is Hermitian, padded rows included."""
    layout = distributed(mesh, None, 0, "mesh")

    def body(a, b, size=a.shape[0]):
        rank = jax.lax.axis_index("x")
        return _ring.hermitian_times(layout, rank, a, b, size, count)

    rows = -(-a.shape[0] // mesh.size) * mesh.size
    padding = ((0, rows - a.shape[0]), (0, 0))
    a, b = (np.pad(x, padding, constant_values=np.nan) for x in (a, b))
    spec = P("x", None)
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(spec, spec), out_specs=spec)), a, b


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_hermitian_products(devices, dtype):
    for (m, n), count in zip(((13, 13), (9, 6), (40, 24), (5, 1)), (1, 2, 3, 0), strict=True):
        a, c = orthonormal(m, dtype)[:, :n].astype(dtype), general(n, n, dtype, 1)
        b = (a @ (c + c.conj().T)).astype(dtype)  # A^H B is Hermitian as A^H A = I
        run, *operands = hermitian(line(devices), a, b, count)
        got, want = np.asarray(run(*operands)), a.conj().T @ b
        assert got.shape == (-(-n // devices) * devices, n)
        assert relative(got[:n], want) <= 8 * m * eps(dtype)
        assert not np.any(got[n:])
        if devices * count > 2:
            assert np.array_equal(got[:n], got[:n].conj().T)


def multiplications(jaxpr):
    """Of all products in a program, each counted once."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            ((left,), _), _ = eqn.params["dimension_numbers"]
            a, out = eqn.invars[0].aval, eqn.outvars[0].aval
            total += out.size * a.shape[left]
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                total += multiplications(inner) if hasattr(inner, "eqns") else 0
    return total


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_hermitian_products_take_half_of_the_operations(devices):
    n, count = 64, 16 // devices
    a = general(n, n)
    run, *operands = hermitian(line(devices), a, a, count)
    found = count * multiplications(jax.make_jaxpr(run)(*operands).jaxpr)
    # In loops over the strips of one device: for its own block of the result and, in a loop over
    # the others, for one that passes by.
    passes = 1 if devices == 1 else 2
    assert found == passes * n**3 // devices**2 * 9 // 16


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("routine", [jaxmg.syevd, jaxmg.polar, jaxmg.gesvd])
def test_no_device_holds_a_matrix_whole_in_derivatives(routine, kind):
    need(8)
    n = 64
    a = put(general(n, n), line(8, kind=kind), "x", None)

    def function(a):
        return sum(jnp.sum(jnp.abs(x) ** 4) for x in routine(a))

    text = jax.jit(jax.grad(function)).lower(a).compile().as_text()
    assert f"[{n},{n}]" not in text
