"""Vectors, matrices, batches, nothing at all; and the arrays that users really pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import child
import jaxmg
from jaxmg import linalg
from matrices import DTYPES, general, spd
from residuals import LIMIT, assert_solved, solve_residual

EYE = np.eye(2)
TWO, ONE = np.stack([EYE, EYE]), EYE[None]
SHAPES = [
    (EYE, (2,), (2,)),
    (EYE, (2, 2), (2, 2)),
    (EYE, (3, 2, 5), (3, 2, 5)),
    (TWO, (2, 2), (2, 2, 2)),
    (TWO, (2,), (2, 2)),
    (TWO, (2, 2, 1), (2, 2, 1)),
    (TWO, (1, 2, 3), (2, 2, 3)),
    (TWO, (4, 1, 2, 3), (4, 2, 2, 3)),
    (ONE, (3, 2), None),
    (ONE, (4, 2, 3), (4, 2, 3)),
    (TWO, (3, 2, 1), None),
    (EYE, (3,), None),
    (EYE, (), None),
    (TWO, (), None),
    (TWO, (3,), None),
]


@pytest.mark.parametrize(("a", "shape", "expected"), SHAPES, ids=lambda x: str(np.shape(x))[:20])
def test_table_of_shapes(a, shape, expected, mesh):
    """Only a b of one axis is a vector."""
    b = np.ones(shape)
    for solve in (
        lambda: linalg.solve(a, b, assume_a="pos", mesh=mesh),
        lambda: linalg.cho_solve(linalg.cho_factor(a, mesh=mesh), b),
    ):
        if expected is None:
            with pytest.raises(ValueError, match=r"b has (shape|batch axes)"):
                solve()
        else:
            assert solve().shape == expected


def test_empty_in_every_routine_does_not_hang():
    child.run(
        """
from jaxmg import linalg
for mesh in (None, line(1), line(4)):
    for lower in (None, True, False):
        for dtype in ("float32", "complex128"):
            nothing = np.zeros((0, 0), dtype)
            for shape in ((0,), (0, 3)):
                b = np.zeros(shape, dtype)
                x, logdet, status = jaxmg.potrs(
                    nothing, b, mesh=mesh, lower=lower, return_logdet=True, return_status=True)
                assert (x.shape, x.dtype) == (shape, dtype)
                assert (float(logdet), int(status)) == (0, 0)
            factor = linalg.cho_factor(nothing, lower, mesh=mesh)
            assert (factor.shape, factor.dtype, int(factor.status)) == ((0, 0), dtype, 0)
            assert factor.solve(np.zeros((0, 3), dtype)).shape == (0, 3)
            assert float(factor.logdet()) == 0
            assert [x.shape for x in factor.factor()] == [(0, 0), (0,)]
            assert factor.inv().shape == (0, 0)
            assert float(linalg.logdet(nothing, lower=lower, mesh=mesh)) == 0
        full = spd(4)
        x, status = jaxmg.potrs(full, np.zeros((4, 0)), mesh=mesh, lower=lower, return_status=True)
        assert (x.shape, int(status)) == ((4, 0), 0)
    solve = lambda a, b: linalg.solve(a, b, assume_a="pos", mesh=mesh).shape
    assert solve(np.zeros((3, 0, 0)), np.zeros((0, 2))) == (3, 0, 2)
    assert solve(np.zeros((0, 4, 4)), np.zeros((0, 4, 2))) == (0, 4, 2)
    assert linalg.logdet(np.zeros((0, 4, 4)), mesh=mesh).shape == (0,)
    assert (np.asarray(linalg.logdet(np.zeros((3, 0, 0)), mesh=mesh)) == 0).all()
    assert linalg.cho_factor(np.zeros((0, 4, 4)), mesh=mesh).solve(np.ones(4)).shape == (0, 4)
    jitted = jax.jit(lambda a: jaxmg.potrs(a, jnp.zeros((0, 2)), mesh=mesh, return_logdet=True))
    assert jitted(np.zeros((0, 0)))[0].shape == (0, 2)
    if mesh is not None:
        for shape in ((0, 0), (8, 0)):
            assert jaxmg.cyclic_1d(np.zeros(shape), 2, mesh).shape == shape
            assert jaxmg.uncyclic_1d(np.zeros(shape), 2, mesh, n=shape[0]).shape == shape
gradient = jax.grad(lambda a: linalg.logdet(a))(jnp.zeros((0, 0)))
assert gradient.shape == (0, 0)
"""
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_refused_by_every_routine(name, mesh):
    a = jnp.eye(8, dtype=name)
    for function in (
        lambda: jaxmg.potrs(a, a),
        lambda: linalg.solve(a, a, assume_a="pos"),
        lambda: linalg.solve(a[None], a, assume_a="pos"),
        lambda: linalg.solve(np.eye(8), a, assume_a="pos"),
        lambda: linalg.cho_factor(a),
        lambda: linalg.cho_factor(a[None]),
        lambda: linalg.cho_factor(np.eye(8)).solve(a),
        lambda: linalg.logdet(a),
        lambda: jaxmg.cyclic_1d(a, 1, mesh),
        lambda: jaxmg.plan("potrs", 4, a.dtype),
    ):
        with pytest.raises(TypeError, match="float32, float64, complex64, complex128") as caught:
            function()
        assert name in str(caught.value)


@pytest.mark.parametrize("left", [*DTYPES, "int32", "bool"])
@pytest.mark.parametrize("right", [*DTYPES, "int64"])
def test_pairs_of_types(left, right, mesh):
    a = (5 * np.eye(6)).astype(left) if left in ("int32", "bool") else spd(6, left)
    b = np.ones((6, 1), right) if right == "int64" else general(6, 1, right)
    expected = jnp.linalg.solve(a, b).dtype
    x = linalg.solve(a, b, assume_a="pos", mesh=mesh)
    assert x.dtype == expected
    slack = max(np.finfo(d).eps for d in DTYPES if d in (left, right, "float64"))
    assert solve_residual(a, x, b) <= LIMIT * slack / np.finfo(x.dtype).eps
    factor = linalg.cho_factor(a, mesh=mesh)
    if jnp.promote_types(factor.dtype, right) == factor.dtype:
        assert factor.solve(b).dtype == factor.dtype
    else:
        with pytest.raises(TypeError, match="b has dtype") as caught:
            factor.solve(b)
        assert right in str(caught.value)
        assert str(factor.dtype) in str(caught.value)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {
    "columns first": np.asfortranarray,
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder("S")),
    "read only": read_only,
    "matrix": np.matrix,
    "list": lambda a: a.tolist(),
    "buffer": memoryview,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_host_arrays_of_any_layout(layout, mesh):
    a, b = spd(8), general(8, 2)
    for m in (None, mesh):
        x = jaxmg.potrs(LAYOUTS[layout](a), LAYOUTS[layout](b), mesh=m)
        assert_solved(a, x, b)
        assert_solved(a, linalg.cho_factor(LAYOUTS[layout](a), mesh=m).solve(b), b)


REFUSED = {
    "masked": (lambda a: np.ma.masked_array(a, a < 0), "masked"),
    "text": (lambda a: a.astype(str), "dtype"),
    "dates": (lambda a: np.zeros(a.shape, "datetime64[s]"), "dtype"),
    "objects": (lambda a: a.astype(object), "numbers"),
    "none": (lambda a: None, "NoneType"),
    "longdouble": (lambda a: a.astype(np.longdouble), "float128|longdouble|supported"),
    "shape only": (lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), "ShapeDtypeStruct"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_a_plain_array_of_numbers_is_refused_by_name(kind):
    make, words = REFUSED[kind]
    a = spd(8)
    for function in (
        lambda x: jaxmg.potrs(x, np.ones(8)),
        lambda x: linalg.cho_factor(x),
        lambda x: linalg.logdet(x),
        lambda x: jaxmg.cyclic_1d(x, 1),
    ):
        with pytest.raises(TypeError, match=words) as caught:
            function(make(a))
        assert str(caught.value).startswith("a:") or ": a has" in str(caught.value)
    with pytest.raises(TypeError, match=words):
        jaxmg.potrs(a, make(a))


def test_sparse_matrix_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="csr"):
        jaxmg.potrs(sparse.csr_matrix(spd(8)), np.ones(8))
