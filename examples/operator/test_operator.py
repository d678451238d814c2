"""Test the operator as its users run it, in a cluster of kedge's pytest plugin."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kedge

HERE = Path(__file__).parent
PATIENCE = 60


@pytest.fixture
def operator(kedge_cluster: kedge.Cluster, tmp_path: Path) -> Iterator[None]:
    kedge_cluster.apply(HERE / "sites.yaml")
    kedge_cluster.wait("crd/sites.example.com", "Established", timeout=PATIENCE)
    environment = {**os.environ, "KUBECONFIG": str(kedge_cluster.kubeconfig)}
    command = ["kopf", "run", "--namespace=default", str(HERE / "operator.py")]
    with (
        open(tmp_path / "operator.log", "w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as running,
    ):
        yield
        running.terminate()


def test_a_site_gets_its_servers(kedge_cluster: kedge.Cluster, operator: None) -> None:
    kedge_cluster.apply(HERE / "hello.yaml")
    kedge_cluster.wait("site/hello", has_servers(2), timeout=PATIENCE)
    kedge_cluster.patch("site/hello", {"spec": {"servers": 1}})
    kedge_cluster.wait("site/hello", has_servers(1), timeout=PATIENCE)
    kedge_cluster.delete("site/hello", timeout=PATIENCE)
    kedge_cluster.wait("deploy/hello", "deleted", timeout=PATIENCE)


def has_servers(number: int) -> Any:
    return lambda site: site.get("status", {}).get("ready") == number
