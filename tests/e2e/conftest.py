"""A person at a terminal: commands run in a place of their own, and nothing is left running."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

Outcome = subprocess.CompletedProcess[str]


class Terminal:
    """Runs `kedge` and `kubectl` with a home directory that is theirs alone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig = home / ".kube" / "config"
        self.states = home / "states" / "kedge"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("KEDGE_", "KUBE"))}
        self.environment = clean | {"HOME": str(home), "XDG_STATE_HOME": str(home / "states")}

    def run(self, *command: str, input: str | None = None) -> Outcome:
        return subprocess.run(
            command,
            input=input,
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kedge(self, *arguments: str) -> Outcome:
        return self.run(sys.executable, "-m", "kedge", *arguments)

    def kubectl(self, *arguments: str, input: str | None = None) -> Outcome:
        return self.run("kubectl", *arguments, input=input)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("kubectl") is None:
        pytest.fail("no kubectl on the PATH: 'tools/setup kubectl' says how to get one")
    terminal = Terminal(tmp_path)
    yield terminal
    ended = terminal.kedge("down", "--all", "--purge")
    assert ended.returncode == 0, ended.stderr
