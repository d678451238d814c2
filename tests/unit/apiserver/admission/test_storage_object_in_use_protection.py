"""New storage objects are protected."""

from typing import Any

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


async def test_new_claims_volumes_and_attribute_classes_are_protected() -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        made = await server.post(CLAIMS, claim())
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        attributes = {"metadata": {"name": "v"}, "driverName": "d", "parameters": {"a": "b"}}
        path = "/apis/storage.k8s.io/v1/volumeattributesclasses"
        made = await server.post(path, attributes)
        assert made["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
