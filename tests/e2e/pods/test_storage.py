"""A real database in a StatefulSet: its data survive kills, a full volume and a larger claim."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)

WRITER = """\
import sqlite3, time
db = sqlite3.connect("/data/db", isolation_level=None)
db.execute("pragma synchronous = full")
db.execute("create table if not exists t (n integer)")
n = db.execute("select coalesce(max(n), 0) from t").fetchone()[0]
while True:
    n += 1
    db.execute("insert into t values (?)", (n,))
    print(n, flush=True)
    time.sleep(0.05)
"""
READER = """\
import sqlite3
db = sqlite3.connect("/data/db")
print(db.execute("pragma integrity_check").fetchone()[0], end=" ")
print(*db.execute("select count(*), max(n) from t").fetchone())
"""
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "32Mi"}}},
}


def stateful_set() -> dict[str, Any]:
    container = {
        "name": "db",
        "image": "host",
        "command": ["python3", "-c", WRITER],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    labels = {"app": "db"}
    return {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
            "volumeClaimTemplates": [CLAIM],
        },
    }


def test_a_database_survives_a_kill_of_everything(
    own_cluster: Any, eventually: Callable[..., Any]
) -> None:
    cluster = own_cluster.up("--nodes=1")
    api = cluster.api
    api.create("/apis/apps/v1/namespaces/default/statefulsets", stateful_set())
    view = DatabaseView(cluster)
    eventually(lambda: view.number() > 5)
    claim = api.get("/api/v1/namespaces/default/persistentvolumeclaims/data-db-0")
    assert claim["status"]["phase"] == "Bound"
    acknowledged = view.number()
    node: Path = own_cluster.state / "nodes" / "node-1"
    for place, name in (
        (own_cluster.state, "restarter"),
        (node, "node"),
        (own_cluster.state, "server"),
    ):
        found = process.running(place, name)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
    own_cluster.kedge("down", *own_cluster.which)
    cluster = own_cluster.up("--nodes=1")
    view = DatabaseView(cluster)
    integrity, rows, last = eventually(view.database)
    assert integrity == "ok"
    assert rows == last >= acknowledged
    volume = claim["spec"]["volumeName"]
    larger = {"spec": {"resources": {"requests": {"storage": "64Mi"}}}}
    cluster.api.merge("/api/v1/namespaces/default/persistentvolumeclaims/data-db-0", larger)
    cluster.api.merge(
        f"/api/v1/persistentvolumes/{volume}", {"spec": {"capacity": {"storage": "64Mi"}}}
    )
    eventually(lambda: view.capacity() == "64Mi")
    before = view.number()
    eventually(lambda: view.number() > before)
    refused = own_cluster.fails("down", *own_cluster.which, "--purge")
    assert "the data of 1 volume" in refused
    assert "add --yes" in refused
    assert view.number() >= before


class DatabaseView:
    """Looks at the database from outside."""

    def __init__(self, cluster: Any) -> None:
        self._environment = cluster.environment
        self._api = cluster.api

    def _says(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "kedge", *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        return done.stdout.split() if done.returncode == 0 else []

    def capacity(self) -> str:
        claim = self._api.get("/api/v1/namespaces/default/persistentvolumeclaims/data-db-0")
        return str(claim["status"]["capacity"]["storage"])

    def number(self) -> int:
        """The last number that the database has acknowledged."""
        said = self._says("logs", "db-0", "--tail=1")
        return int(said[-1]) if said else 0

    def database(self) -> tuple[str, int, int] | None:
        """Its integrity, its rows and the last number."""
        said = self._says("exec", "db-0", "--", "python3", "-c", READER)
        return (said[0], int(said[1]), int(said[2])) if len(said) == 3 else None
