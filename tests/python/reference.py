"""Plain JAX on one device, against which derivatives are compared.

Compiled whole: one program costs less than one for each of its operations.
"""

import functools

import jax
import jax.numpy as jnp

compiled = functools.partial(jax.jit, static_argnames="lower")


def hermitian_part(a):
    return (a + jnp.conj(jnp.swapaxes(a, -1, -2))) / 2


def whole(a, lower):
    """The Hermitian matrix that is meant by `a`."""
    if lower is None:
        return hermitian_part(a)
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    diagonal = jnp.diag(jnp.real(jnp.diagonal(a))).astype(a.dtype)
    return strict + jnp.conj(strict.T) + diagonal


@compiled
def solve(a, b, lower=None):
    return jnp.linalg.solve(whole(a, lower), b)


@compiled
def logdet(a, lower=None):
    return jnp.linalg.slogdet(whole(a, lower))[1]


@compiled
def solve_logdet(a, b, lower=None):
    return solve(a, b, lower), logdet(a, lower)
