"""`kedge run`: a command with a throw-away cluster."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal


def test_a_command_uses_the_cluster_and_nothing_is_left(terminal: Terminal) -> None:
    script = "kubectl get ns default -o name && echo $KUBECONFIG"
    done = terminal.kedge("run", "--nodes=0", "--wait=60s", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    name, kubeconfig = done.stdout.split()
    assert name == "namespace/default"
    assert not Path(kubeconfig).parent.exists()
    assert "There are no clusters here" in terminal.kedge("list").stdout


def test_the_exit_code_is_passed_on_and_logs_are_kept(terminal: Terminal) -> None:
    done = terminal.kedge("run", "--nodes=0", "--wait=60s", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    found = re.search(r"The logs of the cluster are in (\S+)\.$", done.stderr, re.MULTILINE)
    assert found
    logs = Path(found[1])
    assert (logs / "server.log").exists()
    shutil.rmtree(logs.parent)
    assert "There are no clusters here" in terminal.kedge("list").stdout
    assert "you must specify a command" in terminal.kedge("run").stderr
