"""Fits a Gaussian process by gradient ascent on its log marginal likelihood.

    python examples/gp_marginal_likelihood.py [--devices 8] [--steps 25]

    log p(y) = -1/2 (y^T K^-1 y + log det K + n log 2 pi),    K = K(length, amplitude) + noise I

One factorisation a step serves the quadratic form, the log-determinant and the derivatives of both.
The kernel matrix is made inside `jax.jit`, so that its size need not be a multiple of the number of
devices.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import jaxmg

RATE = 0.1
Parameters = dict[str, jax.Array]  # logarithms: the quantities themselves are positive


def start_devices(count: int) -> Mesh:
    """All GPUs, or `count` virtual CPU devices; must come before anything else uses JAX."""
    jax.config.update("jax_num_cpu_devices", count)
    jax.config.update("jax_enable_x64", True)
    return jax.make_mesh((jax.device_count(),), ("rows",))


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Diabetes progression against ten measurements: 361 points to fit, 81 to look at."""
    x, y = load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    y = (y - y.mean()) / y.std()
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:361], order[361:]
    return x[train], y[train], x[test], y[test]


def kernel(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    """amplitude^2 exp(-|x_i - y_j|^2 / (2 length^2))."""
    squares = jnp.sum(x * x, 1)[:, None] + jnp.sum(y * y, 1)[None, :] - 2 * x @ y.T
    scale = jnp.exp(-2 * p["length"])
    return jnp.exp(2 * p["amplitude"]) * jnp.exp(-0.5 * scale * jnp.maximum(squares, 0))


def covariance(p: Parameters, x: jax.Array) -> jax.Array:
    return kernel(p, x, x) + jnp.exp(2 * p["noise"]) * jnp.eye(len(x))


def negative_log_likelihood(p: Parameters, x: jax.Array, y: jax.Array, mesh: Mesh) -> jax.Array:
    alpha, logdet = jaxmg.potrs(covariance(p, x), y, mesh=mesh, return_logdet=True)
    return 0.5 * (y @ alpha + logdet + len(y) * jnp.log(2 * jnp.pi))


def fit(
    x: np.ndarray, y: np.ndarray, mesh: Mesh, steps: int
) -> tuple[Parameters, list[float], float]:
    """Adam's rule; returns the parameters, the objective at each step and the seconds of a step."""
    step_size, decay, decay_squares, tiny = RATE, 0.9, 0.99, 1e-8
    value_and_grad = jax.jit(jax.value_and_grad(lambda p: negative_log_likelihood(p, x, y, mesh)))
    p: Parameters = {name: jnp.zeros(()) for name in ("length", "amplitude", "noise")}
    mean = jax.tree.map(jnp.zeros_like, p)
    square = jax.tree.map(jnp.zeros_like, p)
    history: list[float] = []
    jax.block_until_ready(value_and_grad(p))  # compilation is not part of a step's time
    start = time.perf_counter()
    for k in range(1, steps + 1):
        value, gradient = value_and_grad(p)
        history.append(float(value))
        mean = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, mean, gradient)
        square = jax.tree.map(
            lambda s, g: decay_squares * s + (1 - decay_squares) * g * g, square, gradient
        )
        p = jax.tree.map(
            lambda q, m, s, k=k: (
                q - step_size * (m / (1 - decay**k)) / (jnp.sqrt(s / (1 - decay_squares**k)) + tiny)
            ),
            p,
            mean,
            square,
        )
    seconds = (time.perf_counter() - start) / max(1, steps)
    return p, history, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=8, help="CPU devices if there are no GPUs")
    parser.add_argument("--steps", type=int, default=25)
    options = parser.parse_args()

    mesh = start_devices(options.devices)
    x_train, y_train, x_test, y_test = load_data()
    p, history, seconds = fit(x_train, y_train, mesh, options.steps)
    alpha = jaxmg.potrs(covariance(p, jnp.asarray(x_train)), y_train, mesh=mesh)
    predicted = np.asarray(kernel(p, jnp.asarray(x_test), jnp.asarray(x_train)) @ np.asarray(alpha))
    error = float(np.sqrt(np.mean((predicted - y_test) ** 2)))

    print(f"mesh                    {mesh.size} x {mesh.devices.flat[0].platform}")
    print(f"K                       {len(x_train)} x {len(x_train)} float64")
    print(f"value and gradient      {seconds:.3f} s a step")
    for k in sorted({*range(0, options.steps, 5), options.steps - 1} - {-1}):
        print(f"step {k:3}                -log p = {history[k]:.4f}")
    for name, value in sorted(p.items()):
        print(f"{name:23} {float(jnp.exp(value)):.4f}")
    print(f"held-out error          {error:.4f} (standard deviation of the target: 1)")


if __name__ == "__main__":
    main()
