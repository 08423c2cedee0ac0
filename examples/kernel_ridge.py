"""Kernel ridge regression on handwritten digits, its kernel matrix spread over all devices.

    python examples/kernel_ridge.py [--devices 8] [--dtype float64] [--output demo_output]

With GPUs it runs on all of them; without, on virtual CPU devices. Training solves

    (K + lambda I) alpha = Y,    K_ij = exp(-gamma |x_i - x_j|^2),

one right-hand side a class; prediction is K(new, old) alpha. No device ever holds all of K: each
makes its own rows, and `jaxmg.potrs` factors the matrix where it lies.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

import jaxmg

GAMMA = 0.01
LAMBDA = 1e-3
CLASSES = 10


def start_devices(count: int) -> Mesh:
    """All GPUs, or `count` virtual CPU devices; must come before anything else uses JAX."""
    jax.config.update("jax_num_cpu_devices", count)
    jax.config.update("jax_enable_x64", True)
    return jax.make_mesh((jax.device_count(),), ("rows",))


def load_data(devices: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Training and held-out points: pixels scaled, in an order that is random but fixed."""
    pixels, labels = load_digits(return_X_y=True)
    points = StandardScaler().fit_transform(pixels).astype(dtype)
    order = np.random.default_rng(0).permutation(len(points))
    # A sharded array of JAX has the same number of rows on each device.
    n = 1440 // devices * devices
    train, test = order[:n], order[n:]
    return points[train], labels[train], points[test], labels[test], pixels[test]


def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
    """K_ij = exp(-gamma |x_i - y_j|^2)."""
    product = jnp.matmul(x, y.T, precision="highest")
    squares = jnp.sum(x * x, 1)[:, None] + jnp.sum(y * y, 1)[None, :] - 2 * product
    return jnp.exp(-GAMMA * jnp.maximum(squares, 0))


def kernel_matrix(points: np.ndarray, mesh: Mesh) -> jax.Array:
    """K + lambda I; every device makes the rows of its own points."""

    def make_rows(mine: jax.Array, everyone: jax.Array) -> jax.Array:
        first = jax.lax.axis_index("rows") * len(mine)
        diagonal = first + jnp.arange(len(mine))[:, None] == jnp.arange(len(everyone))[None, :]
        return jnp.where(diagonal, 1 + LAMBDA, kernel(mine, everyone))

    make = jax.shard_map(
        make_rows, mesh=mesh, in_specs=(P("rows", None), P()), out_specs=P("rows", None)
    )
    rows = jax.device_put(points, NamedSharding(mesh, P("rows", None)))
    return jax.jit(make)(rows, jax.device_put(points, NamedSharding(mesh, P())))


def timed_solve(a: jax.Array, b: jax.Array) -> tuple[jax.Array, float]:
    """alpha, and the seconds that it took."""
    start = time.perf_counter()
    x = jax.block_until_ready(jaxmg.potrs(a, b))
    return x, time.perf_counter() - start


def backward_error(a: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """|b - A x| / (|A| |x| + |b|) in infinity norms."""
    norm_a = np.abs(a).sum(1).max()
    return np.abs(b - a @ x).max() / (norm_a * np.abs(x).max() + np.abs(b).max())


def draw(images: np.ndarray, scores: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """A picture of held-out digits with what was predicted, and of which were confused."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    predicted = scores.argmax(1)
    # The wrong ones first: they are what one wants to see.
    shown = np.argsort(predicted == labels, kind="stable")[:40]
    figure = plt.figure(figsize=(12, 5.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.4, 1])
    left.suptitle("Held-out digits and their predicted class (red: wrong)")
    for axes, k in zip(left.subplots(5, 8).flat, shown, strict=True):
        axes.imshow(images[k].reshape(8, 8), cmap="gray_r")
        axes.set_title(str(predicted[k]), color="k" if predicted[k] == labels[k] else "r", size=9)
        axes.set_axis_off()
    counts = np.zeros((CLASSES, CLASSES), int)
    np.add.at(counts, (labels, predicted), 1)
    axes = right.subplots()
    axes.imshow(np.sqrt(counts), cmap="Blues")
    for i, j in np.argwhere(counts):
        bright = counts[i, j] > counts.max() / 3
        axes.text(j, i, counts[i, j], ha="center", va="center", color="w" if bright else "k")
    axes.set(xlabel="predicted", ylabel="true", title="Counts")
    axes.set_xticks(range(CLASSES))
    axes.set_yticks(range(CLASSES))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=8, help="CPU devices if there are no GPUs")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    options = parser.parse_args()

    mesh = start_devices(options.devices)
    x_train, y_train, x_test, y_test, images = load_data(mesh.size, options.dtype)
    a = kernel_matrix(x_train, mesh)
    targets = np.where(y_train[:, None] == np.arange(CLASSES), 1, -1).astype(options.dtype)
    b = jax.device_put(targets, NamedSharding(mesh, P()))

    alpha, first_seconds = timed_solve(a, b)
    alpha, warm_seconds = timed_solve(a, b)
    scores = np.asarray(jax.jit(kernel)(x_test, x_train) @ np.asarray(alpha))

    a_host, alpha_host = np.asarray(a), np.asarray(alpha)
    reference = np.linalg.solve(a_host.astype(np.float64), targets.astype(np.float64))
    difference = np.abs(alpha_host - reference).max() / np.abs(reference).max()
    accuracy = float((scores.argmax(1) == y_test).mean())
    picture = options.output / "kernel_ridge.png"
    draw(images, scores, y_test, picture)

    platform = mesh.devices.flat[0].platform
    print(f"mesh                {mesh.size} x {platform}, rows of K split over axis 'rows'")
    print(f"K                   {a.shape[0]} x {a.shape[1]} {a.dtype}, {a.sharding.spec}")
    print(f"solve, first call   {first_seconds:.3f} s (with compilation)")
    print(f"solve, warm         {warm_seconds:.3f} s")
    print(f"backward error      {backward_error(a_host, alpha_host, targets):.1e}")
    print(f"difference to NumPy {difference:.1e} (relative)")
    print(f"held-out accuracy   {accuracy:.4f} on {len(y_test)} digits")
    print(f"picture             {picture}")


if __name__ == "__main__":
    main()
