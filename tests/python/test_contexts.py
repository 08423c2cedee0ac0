"""Meshes and specs in every accepted form, beside whatever mesh the context names."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
import reference
from matrices import general, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved, relative
from test_compile import compiled, largest_collective

N = 16
A, B = spd(N), general(N, 2)
WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
SPECS = [("x",), ("x", None), (None, "x"), ("x", "y"), (("x", "y"), None), ("y",), ()]


def mixed(first, second):
    need(8)
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    return Mesh(devices, ("x", "y"), axis_types=(first, second))


def solved(own, spec, wrap, context=None, **options):
    """Solves with A on a mesh; the result has been checked."""
    placed, right = put(A, own, *spec), put(B, own)
    with jax.set_mesh(context) if context is not None else contextlib.nullcontext():
        x = wrap(lambda a, b: jaxmg.potrs(a, b, **options))(placed, right)
    assert_solved(A, x, B)
    return x


@WRAPS
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("kinds", [(AUTO, EXPLICIT), (EXPLICIT, AUTO)], ids=["AE", "EA"])
def test_axes_of_both_kinds(kinds, spec, wrap):
    mesh = mixed(*kinds)
    for context in (None, mesh):
        assert solved(mesh, spec, wrap, context).sharding.device_set == set(mesh.devices.flat)


@WRAPS
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_transposed_devices(kind, wrap):
    need(8)
    devices = np.array(jax.devices()[:8]).reshape(2, 4).T
    mesh = Mesh(devices, ("x", "y"), axis_types=(kind, kind))
    for spec in SPECS:
        solved(mesh, spec, wrap)


EMPTY = [AbstractMesh((), ()), Mesh(np.empty((), object), ())]


@WRAPS
@pytest.mark.parametrize("mesh", EMPTY, ids=["abstract", "concrete"])
def test_empty_mesh_is_passed_over(mesh, wrap):
    assert len(solved(line(8), ("x",), wrap, mesh=mesh).sharding.device_set) == 8
    assert len(jaxmg.potrs(A, B, mesh=mesh).sharding.device_set) == 1


@WRAPS
def test_mesh_that_lacks_an_axis_of_the_spec_is_passed_over(wrap):
    own, other = line(8, "a"), grid(4, 2)
    for mesh in (other, other.abstract_mesh):
        solved(own, ("a",), wrap, mesh=mesh, in_specs=P("a", None))
    with jax.set_mesh(line(8, "c")):
        x = jaxmg.potrs(jnp.asarray(A), B, mesh=other, in_specs=P("c"))
        assert len(x.sharding.device_set) == 8
    with pytest.raises(ValueError, match=r"\['q'\].*\('x', 'y'\)"):
        jaxmg.potrs(A, B, mesh=other, in_specs=P("q"))


@WRAPS
def test_abstract_mesh(wrap):
    mesh = grid(4, 2)
    for given in (mesh.abstract_mesh, line(8, "z").abstract_mesh):
        assert len(solved(mesh, ("x", None), wrap, mesh=given).sharding.device_set) == 8


@WRAPS
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_matrix_on_another_mesh_than_that_of_the_context(kind, wrap):
    own = line(8, "a", kind=kind)
    for context in (line(8, "c"), grid(4, 2), line(8, "a"), line(8, "a", kind=EXPLICIT)):
        solved(own, ("a", None), wrap, context)


def test_context_with_other_devices():
    own = line(8, "a")
    for context in (line(4, "b"), line(2, "b", order=[5, 1])):
        solved(own, ("a", None), lambda f: f, context)
        with jax.set_mesh(context):
            placed = put(A, own, "a", None)
            logdet = jaxmg.linalg.cho_factor(placed).logdet()
            assert float(logdet) == pytest.approx(np.linalg.slogdet(A)[1])
            assert_solved(A, jaxmg.linalg.cho_factor(placed).solve(B), B)


def test_part_of_a_program_on_a_mesh_of_its_own():
    """The devices are those of the context, their axes others; as libraries do that want a grid."""
    need(8)
    outer, inner = line(8, "s"), grid(4, 2)

    @jax.jit
    def program(a, b):
        a = jax.device_put(a, NamedSharding(inner, P("x", "y")))
        b = jax.device_put(b, NamedSharding(inner, P()))
        with jax.sharding.use_abstract_mesh(inner.abstract_mesh):
            x = jax.lax.with_sharding_constraint(jaxmg.potrs(a, b), P())
        return jax.device_put(x, P())

    with jax.set_mesh(outer):
        assert_solved(A, program(put(A, outer, "s", None), put(B, outer)), B)


@WRAPS
@pytest.mark.parametrize("lower", [None, True, False])
@pytest.mark.parametrize("spec", [("x", None), (None, "x"), ("x", "y"), ()], ids=str)
def test_derivatives_where_shardings_are_types(spec, lower, wrap):
    mesh = grid(4, 2, kind=EXPLICIT)

    def value(function):
        def f(a, b):
            x, logdet = function(a, b)
            return jnp.sum(jnp.sin(x)) + logdet

        return f

    mine = value(lambda a, b: jaxmg.potrs(a, b, lower=lower, return_logdet=True))
    theirs = value(lambda a, b: reference.solve_logdet(a, b, lower))
    with jax.set_mesh(mesh):
        placed, right = put(A, mesh, *spec), put(B, mesh)
        found, gradients = wrap(jax.value_and_grad(mine, (0, 1)))(placed, right)
        _, slope = wrap(lambda a, b: jax.jvp(mine, (a, b), (a, b)))(placed, right)
        assert jax.typeof(gradients[0]).sharding.spec == jax.typeof(placed).sharding.spec
    expected, other = jax.value_and_grad(theirs, (0, 1))(A, B)
    assert float(found) == pytest.approx(float(expected))
    assert max(map(relative, gradients, other)) < 1e-12
    assert float(slope) == pytest.approx(float(jax.jvp(theirs, (A, B), (A, B))[1]))


# --- nothing of the size of the matrix moves --------------------------------------------------

BIG = 512
ROW_FORMS = {
    "line": (lambda kind: line(8, kind=kind), ("x",)),
    "line, two entries": (lambda kind: line(8, kind=kind), ("x", None)),
    "line, shuffled": (lambda kind: line(8, order=[3, 1, 0, 2, 7, 4, 6, 5], kind=kind), ("x",)),
    "line, part": (lambda kind: line(4, order=[6, 2, 5, 3], kind=kind), ("x",)),
    "grid, both axes": (lambda kind: grid(4, 2, kind=kind), (("x", "y"), None)),
    "grid, both axes swapped": (lambda kind: grid(4, 2, kind=kind), (("y", "x"), None)),
    "grid, one axis": (lambda kind: grid(4, 2, kind=kind), ("x", None)),
    "axis of size 1": (lambda kind: grid(8, 1, kind=kind), ("x", None)),
    "axis of size 1 first": (lambda kind: grid(1, 8, kind=kind), ("y", None)),
}
CALLS = {
    "solve": jaxmg.potrs,
    "one triangle": lambda a, b: jaxmg.potrs(a, b, lower=True),
    "all results": lambda a, b: jaxmg.potrs(a, b, return_logdet=True, return_status=True),
    "gradient": jax.grad(lambda a, b: jnp.sum(jnp.sin(jaxmg.potrs(a, b)))),
    "right-hand sides": jax.vmap(jaxmg.potrs, (None, 1), 1),
    "factor": lambda a, b: jaxmg.linalg.cho_factor(a).solve(b),
}


def shape(mesh, spec, *sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float64, sharding=NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("form", ROW_FORMS)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_matrix_split_by_rows_stays_where_it_is(kind, form):
    make, spec = ROW_FORMS[form]
    mesh = make(kind)
    swapped = form == "grid, both axes swapped" and kind == AUTO  # the type does not tell
    program = compiled(jaxmg.potrs, shape(mesh, spec, BIG, BIG), shape(mesh, (), BIG, 2))
    if not swapped:
        assert largest_collective(program) <= 2 * BIG
        shard = BIG * BIG * 8 / mesh.size
        assert program.memory_analysis().temp_size_in_bytes < 1.4 * shard
    assert not any(
        f"f64[{BIG},{BIG}]" in line_ for line_ in program.as_text().splitlines() if "all-" in line_
    )


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_no_call_gathers_the_matrix(kind, call):
    mesh = line(8, kind=kind)
    program = compiled(CALLS[call], shape(mesh, ("x",), BIG, BIG), shape(mesh, (), BIG, 2))
    assert largest_collective(program) <= 2 * BIG
