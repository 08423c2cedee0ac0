"""Programs that are kept: compiled ahead, exported, serialised, cached on disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import child
import jaxmg
from jaxmg import _native
from matrices import general, spd
from meshes import EXPLICIT, line, put
from residuals import assert_solved, relative

N = 16
A, B = spd(N), general(N, 2)


def objective(a, b):
    x, logdet = jaxmg.potrs(a, b, return_logdet=True)
    return jnp.sum(jnp.sin(x)) + logdet


def shapes(mesh):
    return (
        jax.ShapeDtypeStruct((N, N), A.dtype, sharding=NamedSharding(mesh, P("x", None))),
        jax.ShapeDtypeStruct((N, 2), B.dtype, sharding=NamedSharding(mesh, P())),
    )


@pytest.mark.parametrize("kind", [None, EXPLICIT], ids=["auto", "explicit"])
def test_compiled_ahead_of_time(kind):
    mesh = line(8) if kind is None else line(8, kind=kind)
    gradient = jax.jit(jax.value_and_grad(objective)).lower(*shapes(mesh)).compile()
    for seed in range(2):
        a = spd(N, seed=seed)
        value, g = gradient(put(a, mesh, "x", None), put(B, mesh))
        expected = jax.grad(lambda a: objective((a + a.T) / 2, B))(jnp.asarray(a))
        assert relative(g, expected) < 1e-11
        assert np.isfinite(float(value))
    assert gradient.input_shardings[0][0].is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)


def exported(function, *arguments):
    export = pytest.importorskip("jax.export")
    pytest.importorskip("flatbuffers")
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in _native.TARGETS]
    program = export.export(jax.jit(function), disabled_checks=checks)(*arguments)
    return export.deserialize(program.serialize())


def test_exported_value_gradient_and_batch():
    mesh, other = line(8), line(8, name="other", order=[3, 1, 0, 2, 7, 4, 6, 5])
    placed, right = put(A, other, "other", None), put(B, other)
    value = exported(jaxmg.potrs, *shapes(mesh))
    assert_solved(A, jax.jit(value.call)(placed, right), B)
    assert np.isnan(np.asarray(value.call(put(-A, other, "other", None), right))).all()
    g = exported(jax.grad(objective), *shapes(mesh)).call(placed, right)
    assert relative(g, jax.grad(objective)(put(A, mesh, "x", None), B)) < 1e-12
    columns = exported(jax.vmap(jaxmg.potrs, (None, 1), 1), *shapes(mesh))
    assert_solved(A, columns.call(placed, right), B)


def test_export_is_refused_in_one_sentence_without_a_word_from_the_user():
    """JAX wants to be told that the targets of the calls will still be there."""
    export = pytest.importorskip("jax.export")
    pytest.importorskip("flatbuffers")
    with pytest.raises(ValueError, match="jaxmg_potrf"):
        export.export(jax.jit(jaxmg.potrs))(*shapes(line(8))).serialize()


def test_exported_status():
    """With the search for the failing minor, and from all forms that return a status."""
    mesh, other = line(8), line(8, name="other", order=[3, 1, 0, 2, 7, 4, 6, 5])
    right = put(B, other)
    failing = A - 3 * np.diag(np.arange(N) == 5) * A[5, 5]
    expected = int(jaxmg.potrs(put(failing, mesh, "x", None), B, return_status=True)[1])
    assert expected > 0

    def with_a_factor(a, b):
        factor = jaxmg.linalg.cho_factor(a)
        return factor.solve(b), factor.status

    forms = {
        "potrs": lambda a, b: jaxmg.potrs(a, b, return_status=True),
        "context form": lambda a, b: jaxmg.potrs_shardmap_ctx(a, b)[1:],
        "potri": lambda a, b: jaxmg.potri(a, return_status=True),
        "factor": with_a_factor,
    }
    for name, form in forms.items():
        program = exported(form, *shapes(mesh))
        x, status = program.call(put(A, other, "other", None), right)
        assert int(np.ravel(status)[0]) == 0, name
        assert relative(x, np.linalg.solve(A, np.eye(N) if name == "potri" else B)) < 1e-12
        x, status = program.call(put(failing, other, "other", None), right)
        assert int(np.ravel(status)[0]) == expected, name
        assert np.isnan(np.asarray(x)).all()


def test_exported_status_of_lu_and_eigenvalues():
    mesh, other = line(8), line(8, name="other", order=[3, 1, 0, 2, 7, 4, 6, 5])
    right = put(B, other)
    solve = exported(lambda a, b: jaxmg.lu_solve(a, b, return_status=True), *shapes(mesh))
    x, status = solve.call(put(A, other, "other", None), right)
    assert int(status) == 0
    assert_solved(A, x, B)
    singular = A.copy()
    singular[5] = 0
    x, status = solve.call(put(singular, other, "other", None), right)
    assert int(status) == int(jaxmg.lu_solve(singular, B, mesh=mesh, return_status=True)[1]) == 6
    assert np.isnan(np.asarray(x)).all()
    values = exported(
        lambda a, _: jaxmg.syevd(a, return_eigenvectors=False, return_status=True), *shapes(mesh)
    )
    w, status = values.call(put(A, other, "other", None), right)
    assert int(status) == 0
    assert relative(w, np.linalg.eigvalsh(A)) < 1e-12
    w, status = values.call(put(np.nan * A, other, "other", None), right)
    assert int(status) == -1
    assert np.isnan(np.asarray(w)).all()


def test_export_of_a_check_is_refused_in_one_sentence():
    """It is one of checkify."""
    with pytest.raises(NotImplementedError, match="ErrorEffect"):
        exported(lambda a, b: jaxmg.potrs(a, b, check=True), *shapes(line(8)))
    with pytest.raises(NotImplementedError, match="ErrorEffect"):
        exported(lambda a, b: jaxmg.lu_solve(a, b, check=True), *shapes(line(8)))


def test_serialised_executable(mesh):
    from jax.experimental import serialize_executable as kept

    program = jax.jit(jaxmg.potrs).lower(*shapes(mesh)).compile()
    again = kept.deserialize_and_load(*kept.serialize(program))
    assert_solved(A, again(put(A, mesh, "x", None), put(B, mesh)), B)


CACHED = """
import sys
hits = []
jax.monitoring.register_event_listener(
    lambda name, **_: hits.append(name) if name.endswith("/cache_hits") else None)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
mesh = line(4)
a, b = spd(16), general(16, 2)
f = jax.jit(jax.value_and_grad(lambda a, b: (jaxmg.potrs(a, b) ** 2).sum()))
value, g = f(put(a, mesh, "x", None), put(b, mesh))
before = len(hits)
x = jaxmg.potrs(put(a, mesh, "x", None), put(b, mesh))
assert_solved(a, x, b)
failing = jaxmg.potrs(put(-a, mesh, "x", None), put(b, mesh), return_status=True)[1]
assert int(failing) == 1
print("hits", before, len(hits), float(value))
"""


def test_cache_on_disk(tmp_path):
    first = child.run(CACHED, tmp_path).split()[-3:]
    second = child.run(CACHED, tmp_path).split()[-3:]
    assert int(second[0]) > int(first[0])
    assert int(second[1]) > int(second[0])
    assert float(first[2]) == float(second[2])
