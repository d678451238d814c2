"""The class of a claim that names none, and the plugins that protect and grow claims."""

from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
PLUGINS = (
    "NamespaceLifecycle",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
)


def class_(name: str, annotations: dict[str, str], **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations}
    return {"metadata": meta, "provisioner": "example.com/disk", **fields}


def claim(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    size = {"requests": {"storage": "1Gi"}}
    return {
        "metadata": {"name": "c", "annotations": annotations or {}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": size, **spec},
    }


@pytest.mark.parametrize(
    ("classes", "body", "expected"),
    [
        ([], claim(), None),
        ([("a", {})], claim(), None),
        ([("a", DEFAULT)], claim(), "a"),
        ([("b", DEFAULT), ("a", DEFAULT)], claim(), "a"),
        ([("a", DEFAULT)], claim(storageClassName=""), ""),
        ([("a", DEFAULT)], claim({"volume.beta.kubernetes.io/storage-class": "b"}), None),
        ([("a", {"storageclass.beta.kubernetes.io/is-default-class": "true"})], claim(), "a"),
    ],
)
async def test_the_class_of_a_new_claim(
    classes: list[tuple[str, dict[str, str]]], body: dict[str, Any], expected: str | None
) -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        for name, annotations in classes:
            await server.post(CLASSES, class_(name, annotations))
        made = await server.post(CLAIMS, body)
        assert made["spec"].get("storageClassName") == expected


@pytest.mark.parametrize(
    ("provisioner", "kind", "is_warned"),
    [
        ("kedge.dev/local", "VolumeSnapshot", True),
        ("example.com/disk", "VolumeSnapshot", False),
        ("kedge.dev/local", "PersistentVolumeClaim", False),
    ],
)
async def test_a_source_that_a_class_cannot_copy_draws_a_warning(
    provisioner: str, kind: str, is_warned: bool
) -> None:
    group = "snapshot.storage.k8s.io" if kind == "VolumeSnapshot" else None
    source = {"apiGroup": group, "kind": kind, "name": "s"}
    async with LocalServer.running(admission=PLUGINS) as server:
        await server.post(CLASSES, {**class_("a", DEFAULT), "provisioner": provisioner})
        answer = await server.call("POST", CLAIMS, claim(dataSource=source))
    assert answer.status == 201
    said = " ".join(answer.warnings)
    assert ("cannot be made from VolumeSnapshot s" in said) is is_warned
