"""The examples run, and what they print about themselves is good."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number(text: str, label: str) -> float:
    found = re.search(rf"^{re.escape(label)}\s+([-+.\de]+)", text, re.MULTILINE)
    assert found, f"{label} is not in\n{text}"
    return float(found.group(1))


@pytest.mark.parametrize(("dtype", "eps"), [("float64", 2.3e-16), ("float32", 1.2e-7)])
def test_kernel_ridge(tmp_path: Path, dtype: str, eps: float) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    text = run_example("kernel_ridge.py", "--dtype", dtype, cwd=tmp_path)
    assert "8 x cpu" in text
    assert number(text, "backward error") <= 2 * 1440**0.5 * eps
    assert number(text, "held-out accuracy") > 0.97
    picture = (tmp_path / "demo_output" / "kernel_ridge.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_gp_marginal_likelihood(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    text = run_example("gp_marginal_likelihood.py", "--devices", "4", "--steps", "12", cwd=tmp_path)
    values = [float(v) for v in re.findall(r"-log p = ([-\d.]+)", text)]
    assert values[-1] < values[0] - 50  # the likelihood grows
    assert number(text, "held-out error") < 0.85  # better than the mean
