"""Every block of Python in the pages about tests is a file of tests, which passes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["testing.md", "simulated-nodes.md"])
def test_the_tests_of_the_page_pass(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks, start=1):
        assert "def test_" in block
        (tmp_path / f"test_block_{number}.py").write_text(block)
    # By its module: the environment may be older than the declaration of the entry point.
    plugin = ["-p", "no:kedge", "-p", "kedge.cluster.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(block.count('def test_') for block in blocks)} passed" in done.stdout
