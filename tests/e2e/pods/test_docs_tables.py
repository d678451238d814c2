"""Every row of the tables in docs that list what works is run against a real cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = yaml.safe_load(Path(__file__).with_name("docs_tables.yaml").read_text())
SCRIPTS = {
    f"{table['page']} {table['heading']}: {row}": script
    for table in TABLES
    for row, script in table["rows"].items()
}

FUNCTIONS = Path(__file__).with_name("docs_tables.sh")


class Shell:
    """Runs scripts with kubectl, in a namespace and a directory of their own."""

    def __init__(self, cluster: Any, home: Path, namespace: str) -> None:
        kubeconfig = home / "kubeconfig"
        shutil.copy(cluster.kubeconfig, kubeconfig)
        self.home = home / "work"
        self.home.mkdir()
        self.environment = cluster.environment | {
            "KUBECONFIG": str(kubeconfig),
            "NS": namespace,
            "PYTHON": sys.executable,
        }
        self.run(f"kubectl config set-context --current --namespace={namespace}")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", f". {FUNCTIONS}\n{script}"],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def shell(cluster: Any, tmp_path: Path, namespace: str) -> Iterator[Shell]:
    shell = Shell(cluster, tmp_path, namespace)
    yield shell
    shell.run("kubectl delete crd things.$GROUP others.$GROUP --ignore-not-found --wait=false")


@pytest.mark.parametrize("row", SCRIPTS)
def test_row(row: str, shell: Shell) -> None:
    done = shell.run(SCRIPTS[row])
    assert done.returncode == 0, done.stdout
