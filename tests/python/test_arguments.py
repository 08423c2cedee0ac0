"""Types are promoted as in JAX; what is not acceptable raises and says what is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmg
from matrices import DTYPES, general, spd
from meshes import need, put
from residuals import LIMIT, solve_residual


@pytest.mark.parametrize("left", [*DTYPES, "int32", "int64", "bool"])
@pytest.mark.parametrize("right", DTYPES)
def test_promotion(left, right, mesh):
    a = (10 * np.eye(8)).astype(left) if left in ("int32", "int64", "bool") else spd(8, left)
    b = general(8, 1, right)
    expected = jnp.promote_types(left, right)
    x = jaxmg.potrs(jnp.asarray(a), jnp.asarray(b), mesh=mesh)
    assert x.dtype == expected
    assert solve_residual(a, x, b) <= LIMIT * max(1, np.finfo(right).eps / np.finfo(x.dtype).eps)


def test_integers_alone(mesh):
    x = jaxmg.potrs(4 * np.eye(4, dtype=np.int32), np.ones(4, np.int32), mesh=mesh)
    assert x.dtype == np.float64
    assert (np.asarray(x) == 0.25).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_refused(name):
    a = jnp.eye(2, dtype=name)
    for left, right in ((a, a), (a, jnp.eye(2)), (jnp.eye(2), a)):
        with pytest.raises(TypeError, match="float32, float64, complex64, complex128") as caught:
            jaxmg.potrs(left, right)
        assert name in str(caught.value)


def test_shapes_of_the_right_hand_side():
    a = np.eye(2)
    assert jaxmg.potrs(a, np.ones(2)).shape == (2,)
    assert jaxmg.potrs(a, np.ones((2, 5))).shape == (2, 5)
    for b in (np.ones((3, 2)), np.ones(3), np.ones((1, 2, 2)), np.ones(())):
        with pytest.raises(ValueError, match="b has shape"):
            jaxmg.potrs(a, b)


@pytest.mark.parametrize("shape", [(4,), (2, 4, 4), (4, 5), (5, 4), ()], ids=str)
def test_shapes_of_the_matrix(shape):
    with pytest.raises(ValueError, match="a has shape"):
        jaxmg.potrs(np.ones(shape), np.ones(4))


BAD = [
    ({"T_A": 0}, "T_A"),
    ({"T_A": 2.5}, "T_A"),
    ({"T_A": "big"}, "T_A"),
    ({"lower": "L"}, "lower"),
    ({"precision": "rough"}, "precision"),
    ({"backend": "mystery"}, "backend"),
    ({"n": 7}, "n: got 7"),
]


@pytest.mark.parametrize(("options", "name"), BAD, ids=str)
def test_options(options, name):
    with pytest.raises(ValueError, match=name) as caught:
        jaxmg.potrs(np.eye(8), np.ones(8), **options)
    assert "accepted" in str(caught.value)


def test_precision_and_backend_that_are_accepted(mesh):
    a, b = spd(8), general(8, 1)
    for precision in (None, "highest", jax.lax.Precision.HIGHEST):
        x = jaxmg.potrs(a, b, mesh=mesh, precision=precision, backend="native")
        assert solve_residual(a, x, b) <= LIMIT


def test_padded_matrix_must_be_declared(mesh):
    need(8)
    padded = put(np.ones((16, 13)), mesh, "x", None)
    with pytest.raises(ValueError, match="n=13"):
        jaxmg.potrs(padded, np.ones(13))
    with pytest.raises(ValueError, match="calculate_padding"):
        jaxmg.potrs(padded, np.ones(13), 4, pad=False)


def test_objects_that_are_not_arrays():
    with pytest.raises(TypeError, match="a:"):
        jaxmg.potrs(object(), np.ones(2))
    with pytest.raises(TypeError, match="b:"):
        jaxmg.potrs(np.eye(2), [object(), object()])


def test_without_64_bits():
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        with pytest.warns(jaxmg.JaxMgWarning, match="float32"):
            x = jaxmg.potrs(np.eye(4), np.ones(4))
        assert x.dtype == np.float32
        assert np.asarray(x).tolist() == [1, 1, 1, 1]
