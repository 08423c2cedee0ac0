"""precision="mixed": a 32-bit factor, 64-bit answers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxmg
import mixed_precision
from jaxmg import _native, linalg
from jaxmg._layout import MIXED, SPLIT, Layout, resolve_plan
from matrices import HARD, eps, from_spectrum, general, scaled, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from mixed_precision import (
    DEVICES_AND_SIZES,
    DTYPES,
    SPECS,
    assert_failure_is_reported,
    assert_not_finite_is_reported,
    assert_shardings_are_kept,
    assert_solved_as_natively,
)
from residuals import assert_solved, relative

mixed = functools.partial(mixed_precision.mixed, jaxmg.potrs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("devices", "n"), DEVICES_AND_SIZES)
def test_as_accurate_as_64_bits(dtype, devices, n):
    mesh = line(devices)
    a, b = spd(n, dtype), general(n, 2, dtype)
    x, (status, iterations, path) = mixed(a, b, mesh=mesh)
    assert (status, path) == (0, 1)
    assert 0 < iterations <= 4
    native = jaxmg.potrs(a, b, mesh=mesh)
    assert_solved_as_natively(a, x, native, b)
    assert relative(x, native) <= 1e3 * eps(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", HARD)
def test_hard_matrices(name, dtype, mesh):
    n = 64
    a, b = HARD[name](n, dtype), general(n, 1, dtype)[:, 0]
    x, (status, _, path) = mixed(put(a, mesh, "x", None), b)
    assert status == 0
    assert path == (0 if name == "ill_conditioned" else 1)
    assert_solved(a, x, b)


def test_condition_numbers(mesh):
    n = 64
    for decades in (2, 4, 6, 7, 8, 10, 12, 14):
        a, b = from_spectrum(np.logspace(0, -decades, n)), general(n, 2)
        x, (status, iterations, path) = mixed(put(a, mesh, "x", None), b)
        assert status == 0
        assert_solved(a, x, b)
        if decades <= 4:
            assert path == 1
        if decades >= 10:  # not positive definite in 32 bits, or no convergence
            assert path == 0 and iterations in (-3, -31)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_beyond_the_range_of_32_bits(dtype, mesh):
    n = 40
    powers = np.round(np.linspace(-300, 300, n))
    a, b = scaled(spd(n, dtype), 2.0**powers), general(n, 2, dtype)
    b *= 2.0 ** powers[:, None]
    x, (status, iterations, path) = mixed(put(a, mesh, "x", None), b)
    assert (status, path) == (0, 1) and iterations <= 4
    assert_solved(a, x, b)
    # The scaled system is solved just as well.
    y, rhs = np.asarray(x) * 2.0 ** powers[:, None], b / 2.0 ** powers[:, None]
    assert_solved(spd(n, dtype), y, rhs)
    for factor in (1e-290, 1e290):
        x, (status, _, path) = mixed(put(spd(n, dtype) * factor, mesh, "x", None), rhs)
        assert (status, path) == (0, 1)
        assert_solved(spd(n, dtype), np.asarray(x) * factor, rhs)


def test_status_is_that_of_64_bits(mesh):
    a = np.eye(16)
    a[6, 6] = -1
    assert_failure_is_reported(jaxmg.potrs, a, mesh, 7, jaxmg.NotPositiveDefiniteError)
    for smallest in (-1e-3, -1e-12):
        b = from_spectrum(np.r_[np.logspace(0, -2, 15), smallest])
        x, (status, _, path) = mixed(put(b, mesh, "x", None), np.ones(16))
        _, native = jaxmg.potrs(put(b, mesh, "x", None), np.ones(16), return_status=True)
        assert int(native) > 0
        if path == 0:
            assert status == int(native)
        else:
            # Only just not positive definite: 32 bits may not tell, and the solution is right.
            assert smallest == -1e-12 and status == 0
            assert_solved(b, x, np.ones(16))


def test_not_finite(mesh):
    assert_not_finite_is_reported(jaxmg.potrs, spd(16), mesh, (3, 3))


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("spec", SPECS)
def test_shardings(kind, spec):
    assert_shardings_are_kept(jaxmg.potrs, spd(16), kind, spec, paths=(1,))


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_one_device(kind):
    a, b = spd(17), general(17, 2)
    x, (status, _, path) = mixed(put(a, line(1, kind=kind), "x", None), b)
    assert (status, path) == (0, 1)
    assert_solved(a, x, b)


def test_two_axes_and_uneven_rows():
    need(6)
    a, b = spd(13), general(13, 1)
    x, (status, _, path) = mixed(a, b, mesh=grid(2, 3), in_specs=P("x", "y"))
    assert (status, path) == (0, 1)
    assert_solved(a, x, b)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_triangle(lower, dtype, mesh):
    a, b = spd(48, dtype), general(48, 2, dtype)
    valid = np.tri(48, dtype=bool) if lower else ~np.tri(48, k=-1, dtype=bool)
    half = np.where(valid, a, np.nan)
    x, (status, iterations, path) = mixed(put(half, mesh, "x", None), b, lower=lower)
    assert (status, path) == (0, 1) and iterations <= 4
    assert_solved(a, x, b)


def test_imaginary_diagonal_does_not_count(mesh):
    a, b = spd(16, "complex128"), general(16, 1, "complex128")
    x, (_, _, path) = mixed(put(a + 3j * np.diag(np.arange(16.0)), mesh, "x", None), b)
    assert path == 1
    assert_solved(a, x, b)


@pytest.mark.parametrize("cond", [1e2, 1e11])
@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives(dtype, cond, mesh):
    n = 16
    a = from_spectrum(np.logspace(0, -np.log10(cond), n), dtype)
    b, c = general(n, 1, dtype)[:, 0], general(n, 1, dtype, seed=4)[:, 0]

    def loss(a, b, **options):
        return jnp.real(jnp.vdot(c, jaxmg.potrs(a, b, **options)))

    placed = put(a, mesh, "x", None)
    got = jax.jit(jax.grad(lambda a, b: loss(a, b, precision="mixed"), (0, 1)))(placed, b)
    want = jax.jit(jax.grad(loss, (0, 1)))(placed, b)
    limit = 1e4 * cond * eps(dtype)
    assert relative(got[0], want[0]) < limit and relative(got[1], want[1]) < limit
    assert got[0].sharding.is_equivalent_to(want[0].sharding, 2)


def test_derivatives_beside_the_status_and_of_second_order(mesh):
    a, b = put(spd(16), mesh, "x", None), general(16, 1)[:, 0]

    def f(s, **options):
        x, status = jaxmg.potrs(a * s, b, return_status=True, **options)
        return jnp.sum(x**2), status

    (value, status), slope = jax.jit(
        jax.value_and_grad(lambda s: f(s, precision="mixed"), has_aux=True)
    )(1.5)
    (want, _), expected = jax.value_and_grad(f, has_aux=True)(1.5)
    assert int(status) == 0
    assert np.allclose([value, slope], [want, expected], rtol=1e-11)
    second = jax.hessian(lambda s: f(s, precision="mixed")[0])(1.5)
    assert np.allclose(second, 6 * value / 1.5**2, rtol=1e-10)


def test_vmap(mesh):
    a, batch = spd(16), np.stack([spd(16, seed=k) for k in range(3)])
    b = general(16, 5)
    placed = put(a, mesh, "x", None)
    x = jax.vmap(lambda v: jaxmg.potrs(placed, v, precision="mixed"), 1, 1)(b)
    assert_solved(a, x, b)
    x = jax.vmap(lambda m: jaxmg.potrs(m, b, mesh=mesh, precision="mixed"))(batch)
    for one, solution in zip(batch, x, strict=True):
        assert_solved(one, solution, b)


def test_one_low_precision_factorisation_and_no_other(mesh):
    a, b = put(spd(16), mesh, "x", None), np.ones(16)
    f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jaxmg.potrs(a, b, precision="mixed"))))
    jax.block_until_ready(f(a))
    before = _native.counter("potrf")
    jax.block_until_ready(f(a))
    assert _native.counter("potrf") == before + 1


def test_low_precision_factor_has_its_own_tile(mesh):
    gpus = Layout("dist", mesh, ("x",), (), "cuda")
    for dtype, tile in (("float64", 1024), ("complex128", 512)):
        r = resolve_plan(gpus, 65536, dtype, precision=MIXED)
        assert r.mixed and r.tile == 1024 and r.low.tile == tile and r.low.precision == SPLIT
        assert resolve_plan(gpus, 65536, dtype, tile=256, precision=MIXED).low.tile == 256


def test_nothing_is_gathered(mesh):
    need(8)
    n = 256
    a = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=put(np.eye(8), mesh, "x").sharding)
    b = jax.ShapeDtypeStruct((n,), jnp.float64)
    text = (
        jax.jit(lambda a, b: jaxmg.potrs(a, b, precision="mixed")).lower(a, b).compile().as_text()
    )
    gathers = [line for line in text.splitlines() if "all-gather(" in line]
    assert gathers and not any(f"[{n},{n}]" in line for line in gathers)


def test_memory(mesh):
    need(8)
    n = 1 << 17
    native = jaxmg.plan("potrs", n, "float64", mesh=8)
    plan = jaxmg.plan("potrs", n, "float64", mesh=8, precision="mixed")
    matrix = n * n // 8
    assert 12 * matrix <= plan.bytes_needed <= 12.8 * matrix
    assert 16 * matrix <= plan.bytes_needed_with_copy <= 16.8 * matrix
    assert native.bytes_needed < plan.bytes_needed < native.bytes_needed_with_copy
    assert "float32 factor" in plan.arithmetic and "lower precision" in str(plan)
    same = jaxmg.plan("potrs", n, "float32", mesh=8, precision="mixed")
    assert same.bytes_needed == jaxmg.plan("potrs", n, "float32", mesh=8).bytes_needed


def test_program_takes_what_is_planned(mesh):
    need(8)
    n = 512
    sharding = put(np.eye(8), mesh, "x").sharding
    a = jax.ShapeDtypeStruct((n, n), jnp.float64, sharding=sharding)
    b = jax.ShapeDtypeStruct((n,), jnp.float64)
    kept = jax.jit(lambda a, b: jaxmg.potrs(a, b, precision="mixed")).lower(a, b).compile()
    used = kept.memory_analysis()
    plan = jaxmg.plan("potrs", n, "float64", mesh=8, precision="mixed")
    assert used.argument_size_in_bytes + used.temp_size_in_bytes <= plan.bytes_needed_with_copy


def test_donated(mesh):
    for a in (spd(16), from_spectrum(np.logspace(0, -11, 16))):
        given, b = put(a, mesh, "x", None), general(16, 1)
        x = jaxmg.potrs(given, b, precision="mixed", donate=True)
        assert given.is_deleted()
        assert_solved(a, x, b)
    kept = put(spd(16), mesh, "x", None)
    jaxmg.potrs(kept, np.ones(16), precision="mixed")
    assert np.array_equal(kept, spd(16))


@pytest.mark.parametrize("devices", [1, 8])
def test_factor_object(devices):
    mesh = line(devices)
    a, b = spd(24), general(24, 2)
    factor = linalg.cho_factor(put(a, mesh, "x", None), precision="mixed")
    assert factor.parts.work.dtype == jnp.float32
    assert int(factor.status) == 0
    assert_solved(a, factor.solve(b), b)
    assert_solved(a, jax.jit(lambda f, b: f.solve(b))(factor, b), b)
    assert np.allclose(factor.logdet(), np.linalg.slogdet(a)[1], rtol=1e-14)
    assert np.allclose(factor.inv() @ a, np.eye(24), atol=1e-12)
    hard = from_spectrum(np.logspace(0, -11, 24))
    factor = linalg.cho_factor(put(hard, mesh, "x", None), precision="mixed")
    assert int(factor.status) == 0  # as it is in 64 bits
    assert_solved(hard, factor.solve(b), b)
    hard[4, 4] = -1
    assert int(linalg.cho_factor(put(hard, mesh, "x", None), precision="mixed").status) == 5


def test_linalg_solve(mesh):
    a, b = spd(24), general(24, 2)
    x = linalg.solve(put(a, mesh, "x", None), b, assume_a="pos", precision="mixed")
    assert_solved(a, x, b)
    batch = np.stack([spd(8, seed=k) for k in range(2)])
    x = linalg.solve(batch, b[:8], assume_a="pos", mesh=mesh, precision="mixed")
    assert_solved(batch[1], x[1], b[:8])


def test_other_dtypes_and_results(mesh):
    a, b = spd(16), np.ones(16)
    placed = put(a, mesh, "x", None)
    x, logdet = jaxmg.potrs(placed, b, precision="mixed", return_logdet=True)
    assert_solved(a, x, b)
    assert np.allclose(logdet, np.linalg.slogdet(a)[1], rtol=1e-14)
    x = jaxmg.potrs(placed.astype("float32"), b.astype("float32"), precision="mixed")
    assert x.dtype == jnp.float32
    assert_solved(a.astype("float32"), x, b.astype("float32"))
    empty, info = mixed(np.zeros((0, 0)), np.zeros((0,)), mesh=mesh)
    assert empty.shape == (0,) and info == [0, 0, 0]
    with pytest.raises(ValueError, match="mixed"):
        jaxmg.potri(placed, precision="mixed")
