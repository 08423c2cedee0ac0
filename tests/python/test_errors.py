"""Every exception and every row of the table of messages, brought about for real where that can be
done on a machine like this one."""

import ctypes
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmg
from jaxmg import _calls, _messages, _native, errors
from jaxmg._layout import Layout, resolve_plan
from matrices import spd
from meshes import line, put

ROOT = Path(__file__).resolve().parents[2]
ON_CPU = jax.default_backend() == "cpu"
cpu_only = pytest.mark.skipif(not ON_CPU, reason="brought about on CPU devices")


def failing(a, **options):
    with pytest.raises(errors.JaxMgError) as caught:
        jaxmg.potrs(a, np.ones(len(a)), check=True, **options)
    return caught.value


# --- exceptions --------------------------------------------------------------------------------


def test_not_positive_definite(mesh):
    a = np.eye(8)
    a[5, 5] = -1
    error = failing(a, mesh=mesh)
    assert type(error) is jaxmg.NotPositiveDefiniteError
    assert error.index == 6
    assert "order 6" in str(error)
    assert "jitter" in str(error)


def test_non_finite_input(mesh):
    a = np.eye(8)
    a[2, 3] = a[3, 2] = np.nan
    assert type(failing(a, mesh=mesh)) is jaxmg.NonFiniteInputError


def test_not_hermitian(mesh):
    error = failing(np.tril(spd(8)), mesh=mesh)
    assert type(error) is jaxmg.NotHermitianError
    assert "lower=" in str(error)


def test_insufficient_memory(mesh):
    a = jax.ShapeDtypeStruct((1 << 24, 1 << 24), np.float64)
    if jaxmg.plan("potrs", 8, "float64", mesh=mesh).bytes_available == 0:
        pytest.skip("the memory of these devices is not known")
    with pytest.raises(jaxmg.InsufficientMemoryError, match="largest n that fits") as caught:
        jax.eval_shape(lambda a: jaxmg.potrs(a, jnp.ones(1 << 24), mesh=mesh), a)
    error = caught.value
    assert error.needed > error.free > 0
    assert 0 < error.largest_n < 1 << 24


@cpu_only
def test_backend_unavailable():
    with pytest.raises(jaxmg.BackendUnavailableError, match="CUDA GPUs"):
        jaxmg.potrs(spd(8), np.ones(8), backend="cusolvermg")
    with pytest.raises(jaxmg.BackendUnavailableError, match="CUDA library is not available"):
        _native.require("cuda")


@pytest.mark.parametrize(
    ("info", "kind", "words"),
    [
        ([errors.SINGULAR, 3], jaxmg.SingularMatrixError, "equation 3"),
        ([errors.NO_CONVERGENCE, 2], jaxmg.ConvergenceError, "2 values"),
        ([errors.COMMUNICATION, 0], jaxmg.CommunicationError, "selftest"),
        ([errors.MEMORY, 0], jaxmg.InsufficientMemoryError, "plan"),
        ([errors.MISMATCHED_CALLS, 0], jaxmg.MismatchedCallsError, "same call"),
        ([77, 1], jaxmg.JaxMgError, "unknown failure"),
    ],
)
def test_kinds_that_devices_report(info, kind, words):
    error = errors.from_info([*info, 0, 0, 0, 0, 0, 0], "lu_solve")
    assert type(error) is kind
    assert "lu_solve" in str(error)
    assert words in str(error)


def test_hierarchy_is_what_is_exported_and_documented():
    page = (ROOT / "docs" / "errors.md").read_text()
    names = [n for n in errors.__all__ if n not in ("explain", "JaxMgWarning")]
    for name in names:
        kind = getattr(errors, name)
        assert getattr(jaxmg, name) is kind
        assert issubclass(kind, jaxmg.JaxMgError)
        assert name in page
    assert issubclass(jaxmg.JaxMgError, RuntimeError)


# --- messages ----------------------------------------------------------------------------------


def test_the_documented_table_is_the_one_that_is_used():
    assert _messages.markdown() in (ROOT / "docs" / "errors.md").read_text()


def test_every_pattern_finds_its_own_row():
    for message in _messages.MESSAGES:
        for pattern in message.patterns:
            found = _messages.find(f"INTERNAL: something {pattern.upper()} else")
            assert found is not None
            assert found[1] is message, pattern
            assert message.mend in errors.explain(pattern)
    patterns = list(itertools.chain(*(m.patterns for m in _messages.MESSAGES)))
    assert len(patterns) == len({p.lower() for p in patterns})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cusolverMgPotrf failed with CUSOLVER_STATUS_ALLOC_FAILED (x.cpp:1)", "MEM_FRACTION"),
        ("CUBLAS_STATUS_EXECUTION_FAILED", "CUDA_LAUNCH_BLOCKING"),
        ("CUSOLVER_STATUS_INVALID_VALUE", "backend=None"),
        ("NCCL operation failed: unhandled system error", "NCCL_SOCKET_IFNAME"),
        ("ncclRemoteError: A call failed possibly due to a network error", "another process"),
        ("RESOURCE_EXHAUSTED: cudaMalloc failed with cudaErrorMemoryAllocation", "nvidia-smi"),
        ("jaxmg_potrf: 123 bytes of scratch on device 0 are not to be had", "jaxmg plan"),
        ("OSError: libcusolver.so.12: cannot open shared object file", "jaxmg info"),
    ],
)
def test_messages_of_vendor_libraries(text, words):
    assert words in errors.explain(text)


def explained(action, *patterns):
    """The error that an action brings about is one of the table."""
    with pytest.raises(Exception) as caught:
        jax.block_until_ready(action())
    text = f"{type(caught.value).__name__}: {caught.value}"
    found = _messages.find(text)
    assert found is not None, text
    assert found[0] in patterns, (found[0], text)
    assert found[1].mend in errors.explain(caught.value)


def test_target_that_nobody_registered():
    call = jax.ffi.ffi_call("jaxmg_nothing", jax.ShapeDtypeStruct((2,), np.float32))
    explained(lambda: jax.jit(call)(jnp.ones(2, np.float32)), "No FFI handler registered")


def potrf_on_one_device(a):
    r = resolve_plan(Layout(platform="cpu" if ON_CPU else "cuda"), 8, "float64")
    return jax.jit(lambda a: _calls.potrf(r, _calls.context(r.layout, 1), a))(a)


def test_attribute_of_another_version(monkeypatch):
    assert int(potrf_on_one_device(jnp.eye(8))[2][0]) == 0
    call = _calls.call

    def older(*operands, triangle, **attributes):
        return call(*operands, **attributes)

    monkeypatch.setattr(_calls, "call", older)
    explained(lambda: potrf_on_one_device(jnp.eye(8)), "needs the attribute")


def test_operand_of_another_shape():
    explained(lambda: potrf_on_one_device(jnp.ones((8, 9))), "operand '", "result '")


def test_devices_that_do_not_come():
    if len(jax.devices()) < 2:
        pytest.skip("needs 2 devices")
    mesh = line(2)
    r = resolve_plan(Layout("dist", mesh, ("x",), (), "cpu" if ON_CPU else "cuda"), 8, "float64")

    def one_of_two(a):  # a program on one device that says it is one of two
        return _calls.potrf(r, _calls.context(r.layout, 1, place=(0, 0)), a)

    jaxmg.set_timeout(0.3)
    try:
        if not ON_CPU:
            pytest.skip("a GPU waits longer than a test")
        explained(lambda: jax.jit(one_of_two)(jnp.ones((4, 8))), "did not make the call within")
    finally:
        jaxmg.set_timeout(0)
    jaxmg.potrs(spd(8), np.ones(8), mesh=mesh)  # the next call works


def test_more_memory_than_there_is():
    explained(lambda: jnp.zeros((1 << 46,), np.float64) + 1, "RESOURCE_EXHAUSTED", "out of memory")


def test_operands_on_different_devices():
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 devices")
    first, second = line(2), line(2, order=[2, 3])
    a, b = put(spd(8), first, "x", None), put(np.ones(8), second, None)
    explained(lambda: jax.jit(jnp.dot)(a, b), "incompatible devices for jitted computation")


def test_rows_that_do_not_divide():
    if len(jax.devices()) < 2:
        pytest.skip("needs 2 devices")
    sharding = NamedSharding(line(2), P("x", None))
    patterns = ("IndivisibleError", "not divisible", "divisible by", "evenly divide")
    explained(lambda: jax.device_put(np.eye(7), sharding), *patterns)


def test_array_that_was_given_away(mesh):
    a = put(spd(16), mesh, "x", None)
    jaxmg.potrs(a, np.ones(16), donate=True)
    explained(lambda: a + 1, "has been deleted", "deleted or donated")


def test_library_that_is_not_there():
    explained(lambda: ctypes.CDLL("libjaxmg_nowhere.so.1"), "cannot open shared object file")


def test_own_errors_explain_themselves():
    error = jaxmg.NotPositiveDefiniteError(4)
    assert errors.explain(error) == f"NotPositiveDefiniteError: {error}"
    assert "Known are" in errors.explain(KeyError("what"))
