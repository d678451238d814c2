"""The class of a claim that names none, and the plugins that protect and grow claims."""

from typing import Any

import pytest

from kedge.testing.local_server import MERGE, LocalServer

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


async def test_new_claims_volumes_and_attribute_classes_are_protected() -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        made = await server.post(CLAIMS, claim())
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        attributes = {"metadata": {"name": "v"}, "driverName": "d", "parameters": {"a": "b"}}
        path = "/apis/storage.k8s.io/v1/volumeattributesclasses"
        made = await server.post(path, attributes)
        assert made["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]


@pytest.mark.parametrize("grows", [True, False])
async def test_a_bound_claim_grows_only_if_its_class_lets_it(grows: bool) -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        await server.post(CLASSES, class_("a", {}, allowVolumeExpansion=grows))
        await server.post(CLAIMS, claim(storageClassName="a"))
        await server.merge(f"{CLAIMS}/c/status", {"status": {"phase": "Bound"}})
        more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        if grows:
            changed = await server.merge(f"{CLAIMS}/c", more)
            assert changed["spec"]["resources"]["requests"] == {"storage": "2Gi"}
            return
        answer = await server.call("PATCH", f"{CLAIMS}/c", more, content_type=MERGE)
        assert answer.status == 403
        assert "the storageclass that provisions the pvc must support resize" in answer.text
