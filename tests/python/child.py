"""Programs in processes of their own: what can hang, ends the process, or needs other settings."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREAMBLE = """
import jax, numpy as np
import jax.numpy as jnp
import jaxmg
from matrices import general, spd
from meshes import grid, line, put
from residuals import assert_solved, relative
"""


def environment(devices=4, x64=True, **changes):
    """Environment of a child with so many CPU devices; `changes`: variables, None removes one."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_ENABLE_X64": "1" if x64 else "0",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        **changes,
    }
    return {name: value for name, value in env.items() if value is not None}


def start(program, *arguments, options=(), preamble=PREAMBLE, **settings):
    """Starts a Python program; its output is read by `finish`."""
    return subprocess.Popen(
        [sys.executable, *options, "-c", preamble + program, *map(str, arguments)],
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, seconds=60):
    """Its exit code and output; one that runs longer is killed and fails the test."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"still running after {seconds} s:\n{output[-3000:]}") from None
    return process.returncode, output


def run(program, *arguments, seconds=60, **settings):
    """Runs a Python program to its end; returns its output. It must succeed."""
    code, output = finish(start(program, *arguments, **settings), seconds)
    assert code == 0, f"exit code {code}:\n{output[-3000:]}"
    return output
