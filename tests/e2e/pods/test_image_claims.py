"""Claims whose size is real: images on loop devices."""

import os
from typing import Any

import pytest

from kedge.node.storage import volume_image

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the class belongs to kedge"
)


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


def test_a_full_volume_harms_nobody_else(pods: Any, claims: Any, images: str) -> None:
    claims.create("full", "4Mi", storageClassName=images)
    script = "head -c 9000000 /dev/zero > /data/f; rm /data/f && echo x > /data/g && cat /data/g"
    said = pods.says("filler", script, **claims.used("full"))
    assert "No space left on device" in said
    assert said.endswith("x")
    claims.create("other")
    assert pods.says("other", "echo fine > /data/f; cat /data/f", **claims.used("other")) == "fine"


def test_a_block_volume_is_a_device(pods: Any, claims: Any, images: str) -> None:
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
