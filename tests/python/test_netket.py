"""The distributed solver of netket on this package; see docs/netket.md.

netket asks for versions of its own, so that it may live in another environment: JAXMG_NETKET_PYTHON
names the Python of that one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxmg

SOURCES = Path(jaxmg.__file__).resolve().parents[1]
PROGRAM = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from netket.optimizer import solver

mesh = jax.sharding.get_mesh()
axis = mesh.axis_names[0]
assert mesh.size == 8
rng = np.random.default_rng(0)
for dtype in ("float64", "complex128"):
    m = rng.normal(size=(128, 128)) + (1j * rng.normal(size=(128, 128)) if dtype[0] == "c" else 0)
    dense = jnp.asarray(m @ m.conj().T + 128 * np.eye(128))
    b = jnp.asarray(rng.normal(size=128).astype(dtype))
    expected = solver.cholesky(dense, b)[0]
    a = jax.device_put(dense, NamedSharding(mesh, P(axis, None)))
    b = jax.device_put(b, NamedSharding(mesh, P()))
    for grid in (None, (8, 1), (4, 2), (1, 8)):
        call = lambda a, b: solver.cholesky_distributed(a, b, process_grid=grid)[0]
        for function in (call, jax.jit(call)):
            error = jnp.max(jnp.abs(function(a, b) - expected)) / jnp.max(jnp.abs(expected))
            assert float(error) < 1e-13, (dtype, grid, float(error))
assert not a.is_deleted()

# A few steps of stochastic reconfiguration: the same energies with either solver.
def energies(linear_solver):
    hilbert = nk.hilbert.Spin(0.5, 8)
    hamiltonian = nk.operator.Ising(hilbert, nk.graph.Chain(8), h=1.0)
    sampler = nk.sampler.MetropolisLocal(hilbert, n_chains=64)
    state = nk.vqs.MCState(sampler, nk.models.RBM(alpha=1), n_samples=256, seed=1, sampler_seed=2)
    driver = nk.driver.VMC_SR(
        hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=0.01,
        linear_solver=linear_solver, use_ntk=True)
    log = nk.logging.RuntimeLog()
    driver.run(3, out=log, show_progress=False)
    return np.asarray(log.data["Energy"]["Mean"])

ours, dense = energies(solver.cholesky_distributed), energies(solver.cholesky)
assert len(ours) == 3 and np.allclose(ours, dense, rtol=1e-8), (ours, dense)
print("same answers")
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_distributed_solver_of_netket():
    python = os.environ.get("JAXMG_NETKET_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import netket"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(f"netket cannot be imported by {python}; JAXMG_NETKET_PYTHON names another one")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SOURCES)}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [python, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=380
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "same answers" in done.stdout
