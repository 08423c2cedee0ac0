"""What messages of other layers mean here, and what mends it: the table behind errors.explain.

docs/errors.md shows the same table (:func:`markdown`).
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One row.

    Attributes:
        patterns: parts of messages, any of which marks it; upper and lower case are the same.
        cause: why it happens.
        mend: what to do.
    """

    patterns: tuple[str, ...]
    cause: str
    mend: str


def _vendor(name: str, *libraries: str) -> tuple[str, ...]:
    return tuple(f"{library}_STATUS_{name}" for library in libraries)


_BOTH = ("CUSOLVER", "CUBLAS")

# The first row that fits is taken: special ones come before general ones.
MESSAGES = (
    # cuSOLVER, cuBLAS
    Message(
        _vendor("ALLOC_FAILED", *_BOTH),
        "a vendor library found no device memory, since JAX holds most of it",
        "lower `XLA_PYTHON_CLIENT_MEM_FRACTION`, or solve a smaller problem (`jaxmg.plan`)",
    ),
    Message(
        _vendor("NOT_INITIALIZED", *_BOTH),
        "a vendor library could not start; as a rule the device memory is full",
        "lower `XLA_PYTHON_CLIENT_MEM_FRACTION`; check that the driver fits CUDA (`nvidia-smi`)",
    ),
    Message(
        _vendor("INVALID_VALUE", *_BOTH),
        "a vendor routine refused an argument; most often a size beyond one of its limits (32-bit "
        "integers, a block size, the number of devices)",
        "leave `T_A` out, or use the built-in engine (`backend=None`): its sizes have 64 bits",
    ),
    Message(
        _vendor("ARCH_MISMATCH", *_BOTH),
        "the GPU is older than the vendor library supports",
        "install the CUDA packages of JAX that still support it, or use another GPU",
    ),
    Message(
        (*_vendor("EXECUTION_FAILED", *_BOTH), *_vendor("MAPPING_ERROR", *_BOTH)),
        "a kernel of a vendor library failed, often because of an earlier error of the process",
        "run with `CUDA_LAUNCH_BLOCKING=1` to find the first one",
    ),
    Message(
        _vendor("INTERNAL_ERROR", *_BOTH),
        "a vendor library failed inside; cuSOLVERMg also says so of matrices that it cannot factor",
        "look at the status of the call (`return_status=True`); use the built-in engine "
        "(`backend=None`)",
    ),
    Message(
        (
            *_vendor("NOT_SUPPORTED", *_BOTH),
            "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
            "CUSOLVER_STATUS_INVALID_WORKSPACE",
        ),
        "the version of a vendor library that was found does not have what is asked of it",
        "update JAX's CUDA packages together; `jaxmg info` shows the libraries that were found",
    ),
    Message(
        ("does not wait for a GPU that lags behind",),
        "cuSOLVERMg's factor was found to be wrong: it goes on while a GPU that other work shares "
        "still needs what it overwrites",
        "give it GPUs that nothing else uses, or use the built-in engine (`backend=None`)",
    ),
    # NCCL
    Message(
        ("ncclUnhandledCudaError", "NCCL_UNHANDLED_CUDA_ERROR", "unhandled cuda error"),
        "a CUDA call inside NCCL failed",
        "`NCCL_DEBUG=WARN` names the call; a container needs enough shared memory (`--shm-size`)",
    ),
    Message(
        ("ncclSystemError", "NCCL_SYSTEM_ERROR", "unhandled system error"),
        "NCCL could not use the network or shared memory",
        "`NCCL_DEBUG=WARN` names the call; `NCCL_SOCKET_IFNAME` chooses the network interface",
    ),
    Message(
        ("ncclRemoteError", "NCCL_REMOTE_ERROR"),
        "another process of the job has ended or hangs",
        "look at the output of that process",
    ),
    Message(
        ("ncclInvalidUsage", "ncclInvalidArgument", "ncclInternalError"),
        "processes called NCCL in different ways or orders, or two of them share a GPU",
        "let all processes run the same program, with a GPU of its own each",
    ),
    # XLA on CPU devices
    Message(
        ("Termination timeout for", "This thread has been waiting for"),
        "XLA's own collectives of several calls in flight wait for each other's threads, of which"
        " there are not many on CPU devices",
        "wait for results (`jax.block_until_ready`) before the next calls",
    ),
    # CUDA
    Message(
        ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"),
        "there is no device memory outside of JAX's pool, from which handles and events come",
        "lower `XLA_PYTHON_CLIENT_MEM_FRACTION`; see what else runs on the GPU (`nvidia-smi`)",
    ),
    Message(
        ("cudaErrorInsufficientDriver", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        "the driver is older than the CUDA version that JAX was installed for",
        "update the driver, or install `jax[cuda12]` instead of `jax[cuda13]`",
    ),
    Message(
        ("cudaErrorNoKernelImageForDevice", "cudaErrorUnsupportedPtxVersion", "no kernel image"),
        "the GPU library has not been compiled for this GPU",
        "`jaxmg info` shows library and GPU; build with `JAXMG_CUDA_ARCHITECTURES` set to it",
    ),
    Message(
        (
            "cudaErrorIllegalAddress",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "cudaErrorLaunchFailure",
            "CUDA_ERROR_LAUNCH_FAILED",
        ),
        "a kernel read or wrote where it must not; the process cannot use the GPU any more",
        "start the process again with `CUDA_LAUNCH_BLOCKING=1` and report where it happens",
    ),
    # XLA's foreign-function interface
    Message(
        ("No FFI handler registered",),
        "the library for this platform is missing, or was refused by this jaxlib",
        "`jaxmg.info()` says which libraries were found and why one was left out",
    ),
    Message(
        ("API version",),
        "a library built for a newer interface of XLA than the installed jaxlib's was registered",
        "install a matching pair; the wheel holds a library for every interface since jaxlib 0.7.2",
    ),
    Message(
        (
            "Wrong number of attributes",
            "Wrong number of arguments",
            "Failed to decode all FFI handler operands",
            "needs the attribute",
            "Python package and library do not match",
        ),
        "Python files and libraries, or an exported program and the library, are of different "
        "versions",
        "install again; export again",
    ),
    Message(
        ("Wrong buffer dtype", "Wrong buffer rank", "operand '", "result '", "operands and"),
        "an operand of a foreign call has another element type or shape than the call says, as in "
        "an exported or hand-written program",
        "call the functions of this package instead of the targets `jaxmg_...`; export again",
    ),
    # this engine
    Message(
        ("bytes of scratch", "no room for the scratch", "out of host memory"),
        "a device had no room for the scratch space beside the arrays that are alive",
        "`jaxmg plan` shows what is needed; `donate=True` saves one copy of A",
    ),
    Message(
        ("made another call than",),
        "devices of one program made different calls",
        "let all devices run the same program with the same shapes",
    ),
    Message(
        ("did not make the call within", "DEADLINE_EXCEEDED"),
        "some devices never made the call that the others wait in",
        "all devices of the mesh must run the program; look for one that failed before it",
    ),
    Message(
        ("of several processes are not supported", "belong to several processes"),
        "the devices of the mesh belong to several processes",
        "use a mesh of the devices of one process, such as `Mesh(jax.local_devices(), ('x',))`",
    ),
    Message(
        ("cannot open shared object file", "cannot be loaded", "undefined symbol"),
        "a shared library, or one that it needs, is missing or of another version",
        "`jaxmg info` shows where was looked; install JAX's CUDA packages, `LD_LIBRARY_PATH` last",
    ),
    # JAX
    Message(
        ("incompatible devices for jitted computation",),
        "A and b live on different sets of devices",
        "put b on the mesh of A, or leave it uncommitted",
    ),
    Message(
        ("IndivisibleError", "not divisible", "divisible by", "evenly divide"),
        "an array whose rows do not divide over the mesh",
        "pad it and say so with `n=`, give it whole, or make it inside `jit` (docs/sharding.md)",
    ),
    Message(
        ("has been deleted", "deleted or donated"),
        "an array is used after its memory was given away by `donate=True` or `donate_argnums`",
        "make a copy before, or do not donate it",
    ),
    Message(
        ("RESOURCE_EXHAUSTED", "out of memory"),
        "device memory is full",
        "`jaxmg plan` shows what a call needs; `donate=True` saves one copy of A",
    ),
)


def find(text: str) -> tuple[str, Message] | None:
    """The pattern that a message contains, and its row."""
    lowered = text.lower()
    for message in MESSAGES:
        for pattern in message.patterns:
            if pattern.lower() in lowered:
                return pattern, message
    return None


def markdown() -> str:
    """The table as it stands in the documentation."""
    rows = ["| message contains | cause | mend |", "|---|---|---|"]
    for message in MESSAGES:
        patterns = ", ".join(f"`{pattern.strip()}`" for pattern in message.patterns)
        rows.append(f"| {patterns} | {message.cause} | {message.mend} |")
    return "\n".join(rows) + "\n"
