"""The dashboard is loaded with the first browser."""

import subprocess
import sys


def test_servers_start_without_it() -> None:
    script = "import sys, kedge.apiserver.server; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "kedge.apiserver.ui.on_demand" in run.stdout.split()
    assert "kedge.apiserver.ui.dashboard" not in run.stdout.split()
