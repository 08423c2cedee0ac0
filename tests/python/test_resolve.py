"""The mesh and its axes are found as documented, or the message names the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg._resolve import check_specs, distributed, resolve, rhs_spec, splits_rows
from matrices import general, spd
from meshes import AUTO, EXPLICIT, grid, line, need, put
from residuals import assert_solved

A = spd(16)


def under_jit(function, *arrays):
    """What `function` returns while it is traced."""
    seen = []

    def traced(*xs):
        seen.append(function(*xs))
        return xs

    jax.jit(traced).lower(*arrays)
    return seen[0]


EXPECTED_AXES = [
    (("x",), ("x", "y")),
    (("y", None), ("y", "x")),
    ((None, "x"), ("x", "y")),
    (("x", "y"), ("x", "y")),
    ((("y", "x"), None), ("y", "x")),
    ((), ("x", "y")),
]


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize(("spec", "axes"), EXPECTED_AXES, ids=str)
def test_concrete_array(kind, spec, axes):
    """The axes of the spec come first, those that it leaves unused after them."""
    mesh = grid(4, 2, kind=kind)
    layout = resolve(put(A, mesh, *spec), n=16)
    assert (layout.kind, layout.mesh, layout.axes) == ("dist", mesh, axes)
    assert layout.ranks == 8
    assert layout.explicit == (kind == EXPLICIT)


def test_auto_axes_under_jit_show_the_mesh_alone():
    mesh = grid(4, 2)
    for spec in (("x",), (None, "y"), ()):
        layout = under_jit(lambda a: resolve(a, n=16), put(A, mesh, *spec))
        assert layout.kind == "dist"
        assert layout.axes == ("x", "y")
        assert layout.mesh.shape_tuple == mesh.shape_tuple


@pytest.mark.parametrize(("spec", "axes"), EXPECTED_AXES, ids=str)
def test_explicit_axes_under_jit_show_the_spec(spec, axes):
    layout = under_jit(lambda a: resolve(a, n=16), put(A, grid(4, 2, kind=EXPLICIT), *spec))
    assert layout.axes == axes
    assert layout.explicit


def test_explicit_rows_are_not_split_unevenly():
    """12 rows over 4 are not split over 8, which would gather them first."""
    layout = resolve(put(spd(12), grid(4, 2, kind=EXPLICIT), "x", None), n=12)
    assert (layout.axes, layout.others) == (("x",), ("y",))


def test_order_of_precedence():
    first, second, third = line(8, "a"), line(4, "b"), line(2, "c")
    placed = put(A, first, "a")
    with jax.set_mesh(third):
        assert resolve(placed, n=16, mesh=second).axes == ("b",)
        assert resolve(placed, n=16).axes == ("a",)
        assert resolve(A, put(A, second, "b"), n=16).axes == ("b",)
        assert resolve(A, n=16).axes == ("c",)
        assert resolve(jnp.asarray(A), n=16).axes == ("c",)
    assert resolve(A, n=16).kind == "single"
    assert resolve(jnp.asarray(A), n=16).kind == "single"


def test_caller_may_name_the_axes():
    mesh = grid(4, 2)
    assert resolve(put(A, mesh, "x"), n=16, spec=P("y")).axes == ("y", "x")
    assert resolve(A, n=16, mesh=mesh, spec=P(None, "y")).axes == ("y", "x")
    assert resolve(A, n=16, mesh=mesh.abstract_mesh).ranks == 8


def test_made_inside_jit_without_a_mesh():
    assert under_jit(lambda s: resolve(jnp.eye(16) * s, n=16), 2.0).kind == "single"
    mesh = line(8)
    made = under_jit(lambda b: resolve(jnp.eye(16), b, n=16), put(general(16, 1), mesh))
    assert made.ranks == 8


def test_right_hand_side():
    mesh = grid(4, 2)
    layout = distributed(mesh, P("x"), 16, "in_specs")
    b = general(16, 2)
    rows = rhs_spec(put(b, mesh, ("x", "y"), None), None, layout)
    assert splits_rows(rows, layout)
    assert not splits_rows(rhs_spec(put(b, mesh, "x", None), None, layout), layout)
    assert rhs_spec(put(b, mesh), None, layout) is None
    assert rhs_spec(b, None, layout) is None
    assert splits_rows(rhs_spec(b, P(("x", "y")), layout), layout)
    narrow = distributed(grid(8, 1), P("x"), 16, "in_specs")
    assert splits_rows(P("x", None), narrow)
    assert splits_rows(P("x", "y"), narrow)


def test_specs_in_every_form():
    row, whole = P("x", None), P()
    assert check_specs(None) == (None, None)
    assert check_specs(row) == (row, None)
    for form in ((row,), [row]):
        assert check_specs(form) == (row, None)
        assert check_specs(None, form) == (row, None)
    assert check_specs((row, whole)) == (row, whole)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"in_specs": "x"}, TypeError, ["in_specs", "str", "PartitionSpec"]),
        ({"in_specs": (P("x"), 3)}, TypeError, ["in_specs", "3"]),
        ({"in_specs": ()}, ValueError, ["in_specs", "0 specs"]),
        ({"in_specs": (P(), P(), P())}, ValueError, ["in_specs", "3 specs"]),
        ({"in_specs": P("x", None, None)}, ValueError, ["in_specs", "3 entries"]),
        ({"in_specs": P("q")}, ValueError, ["in_specs", "q", "x"]),
        ({"in_specs": (P("x"), P("q"))}, ValueError, ["in_specs", "q", "x"]),
        ({"matrix_specs": P("x"), "in_specs": P("x")}, ValueError, ["matrix_specs", "one of"]),
        ({"mesh": "x"}, TypeError, ["mesh", "str"]),
    ],
    ids=str,
)
def test_messages_name_the_argument(options, error, words, mesh):
    with pytest.raises(error) as caught:
        jaxmg.potrs(put(A, mesh, "x"), np.ones(16), **options)
    for word in words:
        assert word in str(caught.value)


def test_spec_without_any_mesh():
    with pytest.raises(ValueError, match="set_mesh"):
        jaxmg.potrs(A, np.ones(16), in_specs=P("x"))


def test_closed_over_matrix_is_solved_where_jax_puts_it(mesh):
    """JAX compiles this for one device although the type of A shows eight."""
    placed, b = put(A, mesh, "x", None), general(16, 2)
    solve = jax.jit(lambda s: jaxmg.potrs(placed * s, b))
    assert_solved(1.3 * A, solve(1.3), b)
    with_status = jax.jit(lambda s: jaxmg.potrs(placed * s, b, return_status=True)[1])
    assert int(with_status(1.0)) == 0
    assert int(with_status(-1.0)) == 1
    gradient = jax.grad(lambda s: jaxmg.potrs(placed * s, b).sum())(1.3)
    assert float(gradient) == pytest.approx(-np.linalg.solve(A, b).sum() / 1.3**2)
    assert_solved(A, jax.jit(lambda s: jaxmg.potrs(placed, b) * s)(1.0), b)


def test_mesh_that_is_given_is_used_under_jit(mesh):
    """Operands that lie nowhere in particular do not make it a program for one device."""
    need(8)
    b = general(16, 2)
    for function in (
        lambda a, b: jaxmg.potrs(a, b, mesh=mesh),
        lambda a, b: jaxmg.linalg.cho_factor(a, mesh=mesh).solve(b),
        lambda a, b: jaxmg.uncyclic_1d(jaxmg.cyclic_1d(a, 1, mesh), 1, mesh),
    ):
        out = jax.jit(function)(A, b)
        assert len(out.sharding.device_set) == 8
    gradient = jax.grad(lambda a: jaxmg.potrs(a, b, mesh=mesh).sum())(jnp.asarray(A))
    assert len(gradient.sharding.device_set) == 8
    batch = jnp.stack([jnp.asarray(A)] * 3)
    x = jax.jit(jax.vmap(lambda a: jaxmg.potrs(a, jnp.ones(16), mesh=mesh)))(batch)
    assert len(x.sharding.device_set) == 8


def test_factor_made_on_one_device_is_not_used_on_eight(mesh):
    """The orders of elimination differ: NaN, not a wrong number."""
    need(2)
    placed, b = put(A, mesh, "x", None), general(16, 1)
    factor = jax.jit(lambda s: jaxmg.linalg.cho_factor(placed * s))(1.0)
    moved = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, P())), factor)
    moved = jax.tree.map(lambda x: x, moved)
    x = np.asarray(jax.jit(lambda f, b: f.solve(b))(moved, put(b, mesh)))
    assert np.isnan(x).all()


def test_arrays_ahead_of_time(mesh):
    sharded = jax.ShapeDtypeStruct((16, 16), A.dtype, sharding=NamedSharding(mesh, P("x")))
    whole = jax.ShapeDtypeStruct((16, 2), A.dtype, sharding=NamedSharding(mesh, P()))
    compiled = jax.jit(jaxmg.potrs).lower(sharded, whole).compile()
    b = general(16, 2)
    assert_solved(A, compiled(put(A, mesh, "x"), put(b, mesh)), b)
