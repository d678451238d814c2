"""Claims of the default class, as ordinary users and root use them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="looks at the disk of the node"
)


class Claims:
    """The claims of one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"

    def create(self, name: str, size: str = "8Mi", **spec: Any) -> None:
        resources = {"requests": {"storage": size}}
        full = {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
        self.api.create(self.path, {"metadata": {"name": name}, "spec": full})

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{self.path}/{name}")
        return found


@pytest.fixture
def claims(api: Any, namespace: str) -> Claims:
    return Claims(api, namespace)


@pytest.fixture
def volumes(cluster: Any, node: dict[str, Any]) -> Path:
    """The directory with the data of volumes."""
    place: Path = cluster.home / "state" / "nodes" / node["metadata"]["name"] / "volumes"
    return place


def using(claim: str) -> dict[str, Any]:
    """A pod that has a claim at /data."""
    return {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        "container": {"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
    }


def test_missing_data_are_reported_and_not_replaced(
    pods: Any, claims: Claims, volumes: Path, eventually: Callable[..., Any]
) -> None:
    claims.create("lost")
    assert pods.says("writer", "echo kept > /data/file; cat /data/file", **using("lost")) == "kept"
    pods.delete("writer")
    pods.gone("writer")
    place = volumes / claims.get("lost")["spec"]["volumeName"]
    place.rename(volumes.parent / "replaced-disk")
    pods.create("reader", "cat /data/file > /dev/termination-log", **using("lost"))
    said = eventually(lambda: pods.events("reader", "FailedMount"))
    assert f"are missing: {place} does not exist. Restore it from a backup" in said[0]
    assert not place.exists()
    # The agent tries again after a while; a pod that is new at once.
    pods.delete("reader", gracePeriodSeconds=0)
    pods.gone("reader")
    (volumes.parent / "replaced-disk").rename(place)
    assert pods.says("again", "cat /data/file", **using("lost")) == "kept"
