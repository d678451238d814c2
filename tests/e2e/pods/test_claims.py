"""Claims of kedge's own classes, as ordinary users and root use them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.node.storage import volume_image

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


def test_a_snapshot_keeps_the_data_and_restores_them(
    cluster: Any, pods: Any, claims: Claims, namespace: str
) -> None:
    claims.create("data")
    pods.says("first", "echo old > /data/file; ln -s file /data/link", **using("data"))
    pods.delete("first")
    pods.gone("first")
    said = kedge(cluster, "volume", "snapshot", "data", "kept", "-n", namespace)
    assert said == "snapshot kept of claim data created\n"
    pods.says("second", "echo new > /data/file", **using("data"))
    kedge(cluster, "volume", "restore", "kept", "again", "-n", namespace)
    assert pods.says("restored", "cat /data/link", **using("again")) == "old"
    assert "kept" in kedge(cluster, "volume", "snapshots", "-n", namespace)


def test_usage_of_a_claim_is_measured(
    api: Any, cluster: Any, pods: Any, claims: Claims, namespace: str, eventually: Any
) -> None:
    claims.create("used")
    pods.create("user", "head -c 3000000 /dev/zero > /data/f; exec sleep 1000", **using("used"))
    pods.ready("user")
    path = f"/apis/metrics/v1alpha1/namespaces/{namespace}/persistentvolumeclaims"

    def storage() -> str:
        found = [each for each in api.get(path)["items"] if each["metadata"]["name"] == "used"]
        means = [each["usage"]["10s"]["mean"].get("storage", "") for each in found]
        return means[0] if means else ""

    # A walk over the directory each minute at most, and a report each ten seconds.
    assert eventually(storage, 120).endswith(("Ki", "Mi"))
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


@pytest.fixture
def images(api: Any, full_level: None) -> str:
    """A class whose volumes have real sizes."""
    if why := volume_image.lack():
        pytest.skip(f"no images of volumes: {why}")
    name = f"images-{os.getpid()}"
    path = "/apis/storage.k8s.io/v1/storageclasses"
    if not api.exists(f"{path}/{name}"):
        document = {
            "metadata": {"name": name},
            "provisioner": "kedge.dev/local",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
            "parameters": {"enforce": "true"},
        }
        api.create(path, document)
    return name


def test_a_full_volume_harms_nobody_else(pods: Any, claims: Claims, images: str) -> None:
    claims.create("full", "4Mi", storageClassName=images)
    script = "head -c 9000000 /dev/zero > /data/f; rm /data/f && echo x > /data/g && cat /data/g"
    said = pods.says("filler", script, **using("full"))
    assert "No space left on device" in said
    assert said.endswith("x")
    claims.create("other")
    assert pods.says("other", "echo fine > /data/f; cat /data/f", **using("other")) == "fine"


def test_a_block_volume_is_a_device(pods: Any, claims: Claims, images: str) -> None:
    claims.create("device", "4Mi", storageClassName=images, volumeMode="Block")
    device = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "device"}}],
        "container": {"volumeDevices": [{"name": "v", "devicePath": "/dev/data"}]},
    }
    script = "test -b /dev/data && echo kept | dd of=/dev/data conv=fsync 2>/dev/null && echo done"
    assert pods.says("writer", script, **device) == "done"
    pods.delete("writer")
    pods.gone("writer")
    assert pods.says("reader", "head -c 4 /dev/data", **device) == "kept"
