"""The Python in README.md and docs/ runs as it stands.

All blocks of a page run one after the other in one process with eight CPU devices. A block right
after the line `<!-- not run: reason -->` is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(<!-- not run.*-->\n+)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
START = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)
"""


def blocks(page: Path) -> list[tuple[int, str]]:
    """Line numbers and texts of the blocks to run."""
    text = page.read_text()
    found = [m for m in BLOCK.finditer(text) if not m.group(1)]
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(2)) for m in found]


WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: p.name)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    # Empty lines keep the numbering, so that a traceback names the line of the page.
    lines = [""] * (page.read_text().count("\n") + 1)
    for start, block in blocks(page):
        for offset, line in enumerate(block.splitlines()):
            lines[start - 1 + offset] = line
    script.write_text("\n".join(lines))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    code = f"{START}\nexec(compile(open({str(script)!r}).read(), {str(page)!r}, 'exec'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]*)\)", text):
            other = (page.parent / target if target else page).read_text()
            titles = re.findall(r"^#+ (.*)$", other, re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles]
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"
