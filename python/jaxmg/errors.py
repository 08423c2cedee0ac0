"""What can go wrong, as exceptions, and what the numbers and vendor codes mean.

Numerical failures never raise inside ``jax.jit``: the results are NaN on every device and the
status says why. Outside of it, ``check=True`` turns the status into one of the exceptions below.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import _messages

__all__ = [
    "BackendUnavailableError",
    "CommunicationError",
    "ConvergenceError",
    "InsufficientMemoryError",
    "JaxMgError",
    "JaxMgWarning",
    "MismatchedCallsError",
    "NonFiniteInputError",
    "NotHermitianError",
    "NotPositiveDefiniteError",
    "SingularMatrixError",
    "explain",
]


class JaxMgWarning(UserWarning):
    """Something works, but not as well as it could."""


class JaxMgError(RuntimeError):
    """Base class of the failures that this package reports."""


class NotPositiveDefiniteError(JaxMgError):
    """The matrix is not positive definite.

    Attributes:
        index: 1-based order of the first leading minor that is not positive, as in LAPACK.
    """

    def __init__(self, index: int, routine: str = "potrs") -> None:
        self.index = index
        super().__init__(
            f"{routine}: the leading minor of order {index} is not positive definite. Add a "
            "multiple of the identity (jitter), or use a solver for indefinite matrices."
        )


class SingularMatrixError(JaxMgError):
    """The matrix is exactly singular.

    Attributes:
        index: 1-based number of the equation (row) that was found to depend on those eliminated
            before it, in the order of elimination.
    """

    def __init__(self, index: int, routine: str = "lu_solve") -> None:
        self.index = index
        super().__init__(
            f"{routine}: equation {index} depends on others: its pivot is exactly zero, and the "
            "matrix is singular. Remove it, or use a least-squares solver."
        )


class ConvergenceError(JaxMgError):
    """An iteration did not converge, as in the computation of eigenvalues and singular values."""


class NonFiniteInputError(JaxMgError):
    """The input holds NaN or an infinity."""


class NotHermitianError(JaxMgError):
    """The matrix is not Hermitian, for instance because only one triangle of it is valid."""


class MismatchedCallsError(JaxMgError):
    """The devices did not make the same call, or a factor is used where it was not made."""


class CommunicationError(JaxMgError):
    """The devices could not exchange data."""


class InsufficientMemoryError(JaxMgError):
    """The problem does not fit.

    Attributes:
        needed: bytes that one device would need.
        free: bytes that one device has.
        largest_n: the largest matrix that does fit (0 if unknown).
    """

    def __init__(self, message: str, needed: int = 0, free: int = 0, largest_n: int = 0) -> None:
        self.needed = needed
        self.free = free
        self.largest_n = largest_n
        super().__init__(message)


class BackendUnavailableError(JaxMgError):
    """A shared library that the call needs could not be loaded."""


# Kinds of ``info[0]``; the numbers are part of the interface (positive ones carry a position).
OK = 0
NOT_POSITIVE_DEFINITE = 1
SINGULAR = 2
NO_CONVERGENCE = 3
NON_FINITE = -1
NOT_HERMITIAN = -2
COMMUNICATION = -3
MEMORY = -4
MISMATCHED_CALLS = -5

_NEGATIVE = {
    NON_FINITE: (
        NonFiniteInputError,
        "the input holds NaN or an infinity. Look for it with jnp.isfinite before the call.",
    ),
    NOT_HERMITIAN: (
        NotHermitianError,
        "the matrix is not Hermitian. If only one triangle of it is valid, say which one with "
        "lower=True or lower=False; otherwise symmetrise it as (A + A^H) / 2.",
    ),
    COMMUNICATION: (
        CommunicationError,
        "the devices could not exchange data. jaxmg.selftest() tells which of them can.",
    ),
    MEMORY: (
        InsufficientMemoryError,
        "a device had no room for the scratch space. jaxmg.plan() shows what is needed.",
    ),
    MISMATCHED_CALLS: (
        MismatchedCallsError,
        "the devices did not make the same call, or a factor is used with other devices than "
        "those that made it. Factor again on the devices that solve.",
    ),
}


def from_info(info: Sequence[int], routine: str) -> JaxMgError | None:
    """The exception that belongs to the ``info`` of a call, or None if all went well."""
    kind, position = int(info[0]), int(info[1])
    if kind == OK:
        return None
    if kind == NOT_POSITIVE_DEFINITE:
        return NotPositiveDefiniteError(position, routine)
    if kind == SINGULAR:
        return SingularMatrixError(position, routine)
    if kind == NO_CONVERGENCE:
        return ConvergenceError(
            f"{routine}: {position} values did not converge. Scale the matrix to norm 1, or "
            "compute in float64."
        )
    if kind in _NEGATIVE:
        error, text = _NEGATIVE[kind]
        return error(f"{routine}: {text}")
    return JaxMgError(f"{routine}: unknown failure, info = {[int(i) for i in info]}.")


def explain(code: int | str | BaseException) -> str:
    """Explain a status number, an error or an error message.

    Args:
        code: the status of a call (an integer), an exception, or a message or a part of one, such
            as ``"CUSOLVER_STATUS_ALLOC_FAILED"``.

    Returns:
        What it means and what to do about it.

    Example:
        >>> import jaxmg
        >>> print(jaxmg.errors.explain(-1))
        status -1: the input holds NaN or an infinity. Look for it with jnp.isfinite before the \
call. The results are NaN.
    """
    if isinstance(code, JaxMgError):
        return f"{type(code).__name__}: {code}"  # these say what to do themselves
    if isinstance(code, (str, BaseException)):
        text = code if isinstance(code, str) else f"{type(code).__name__}: {code}"
        found = _messages.find(text)
        if found is not None:
            pattern, message = found
            return f"{pattern.strip(' ,')}: {message.cause}. What to do: {message.mend}."
        known = ", ".join(m.patterns[0].strip(" ,") for m in _messages.MESSAGES)
        return f"{text!r} is not known here. Known are the status numbers and: {known}."
    status = int(code)
    if status == 0:
        return "status 0: success."
    if status > 0:
        return (
            f"status {status}: the leading minor of order {status} is not positive definite "
            f"(Cholesky), equation {status} depends on others (LU), or {status} values did not "
            "converge "
            "(eigenvalues, singular values). The results are NaN."
        )
    if status in _NEGATIVE:
        return f"status {status}: {_NEGATIVE[status][1]} The results are NaN."
    return f"status {status} is not known. Known are 0, positive numbers and {sorted(_NEGATIVE)}."
