"""Claims of kedge's own classes, as ordinary users and root use them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="looks at the disk of the node"
)


@pytest.fixture
def volumes(cluster: Any, node: dict[str, Any]) -> Path:
    """The directory with the data of volumes."""
    place: Path = cluster.home / "state" / "nodes" / node["metadata"]["name"] / "volumes"
    return place


def test_missing_data_are_reported_and_not_replaced(
    pods: Any, claims: Any, volumes: Path, eventually: Callable[..., Any]
) -> None:
    claims.create("lost")
    assert (
        pods.says("writer", "echo kept > /data/file; cat /data/file", **claims.used("lost"))
        == "kept"
    )
    pods.delete("writer")
    pods.gone("writer")
    place = volumes / claims.get("lost")["spec"]["volumeName"]
    place.rename(volumes.parent / "replaced-disk")
    pods.create("reader", "cat /data/file > /dev/termination-log", **claims.used("lost"))
    said = eventually(lambda: pods.events("reader", "FailedMount"))
    assert f"are missing: {place} does not exist. Restore it from a backup" in said[0]
    assert not place.exists()
    # The agent tries again after a while; a pod that is new at once.
    pods.delete("reader", gracePeriodSeconds=0)
    pods.gone("reader")
    (volumes.parent / "replaced-disk").rename(place)
    assert pods.says("again", "cat /data/file", **claims.used("lost")) == "kept"


def test_a_snapshot_keeps_the_data_and_restores_them(
    cluster: Any, pods: Any, claims: Any, namespace: str
) -> None:
    claims.create("data")
    pods.says("first", "echo old > /data/file; ln -s file /data/link", **claims.used("data"))
    pods.delete("first")
    pods.gone("first")
    said = kedge(cluster, "volume", "snapshot", "data", "kept", "-n", namespace)
    assert said == "snapshot kept of claim data created\n"
    pods.says("second", "echo new > /data/file", **claims.used("data"))
    kedge(cluster, "volume", "restore", "kept", "again", "-n", namespace)
    assert pods.says("restored", "cat /data/link", **claims.used("again")) == "old"
    assert "kept" in kedge(cluster, "volume", "snapshots", "-n", namespace)


def test_a_growth_that_is_too_large_can_be_taken_back(
    api: Any, pods: Any, claims: Any, eventually: Callable[..., Any]
) -> None:
    claims.create("greedy")
    pods.create("user", **claims.used("greedy"))
    pods.ready("user")

    def request(size: str) -> None:
        api.merge(f"{claims.path}/greedy", {"spec": {"resources": {"requests": {"storage": size}}}})

    def status() -> dict[str, Any]:
        found: dict[str, Any] = claims.get("greedy")["status"]
        return found

    request("900Pi")
    state = {"storage": "NodeResizeInfeasible"}
    eventually(lambda: status().get("allocatedResourceStatuses") == state, 60)
    request("16Mi")
    eventually(lambda: status()["capacity"] == {"storage": "16Mi"}, 60)
    assert not status().get("conditions")


def test_usage_of_a_claim_is_measured(
    api: Any, cluster: Any, pods: Any, claims: Any, namespace: str, eventually: Any
) -> None:
    claims.create("used")
    pods.create(
        "user", "head -c 3000000 /dev/zero > /data/f; exec sleep 1000", **claims.used("used")
    )
    pods.ready("user")
    path = f"/apis/metrics/v1alpha1/namespaces/{namespace}/persistentvolumeclaims"

    def storage() -> str:
        found = [each for each in api.get(path)["items"] if each["metadata"]["name"] == "used"]
        means = [each["usage"]["10s"]["mean"].get("storage", "") for each in found]
        return means[0] if means else ""

    # A walk over the directory each minute at most, and a report each ten seconds. The first walk
    # may come before the program has written its file, and finds nothing.
    assert eventually(lambda: storage().endswith(("Ki", "Mi")), 120)
    assert "used" in kedge(cluster, "top", "pvc", "-n", namespace, "--once")


def kedge(cluster: Any, *words: str) -> str:
    """Return what a command prints when it succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "kedge", *words],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
