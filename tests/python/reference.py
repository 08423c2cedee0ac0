"""Plain JAX on one device, against which derivatives are compared."""

import jax.numpy as jnp


def hermitian_part(a):
    return (a + jnp.conj(jnp.swapaxes(a, -1, -2))) / 2


def whole(a, lower):
    """The Hermitian matrix that is meant by `a`."""
    if lower is None:
        return hermitian_part(a)
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    diagonal = jnp.diag(jnp.real(jnp.diagonal(a))).astype(a.dtype)
    return strict + jnp.conj(strict.T) + diagonal


def solve(a, b, lower=None):
    return jnp.linalg.solve(whole(a, lower), b)


def logdet(a, lower=None):
    return jnp.linalg.slogdet(whole(a, lower))[1]


def solve_logdet(a, b, lower=None):
    return solve(a, b, lower), logdet(a, lower)
