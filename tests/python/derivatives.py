"""Derivatives of functions that return one number."""

import functools

import jax


@functools.partial(jax.jit, static_argnums=0)
def gradient_and_change(function, a, d):
    """The gradient at `a` and its derivative along `d`, by one program."""
    return jax.jvp(jax.grad(function), (a,), (d,))
