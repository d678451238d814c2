"""Claims that grow."""

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
