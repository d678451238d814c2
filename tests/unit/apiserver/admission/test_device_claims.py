"""Admin access to devices, and rights for parts of a claim's status."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LABEL = "resource.kubernetes.io/admin-access"
RESULT = {"request": "r", "driver": "d.example", "pool": "p", "device": "gpu-0"}
DEVICE = {"driver": "d.example", "pool": "p", "device": "gpu-0"}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


def claim(name: str = "c", **wish: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpus", **wish}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


async def test_admin_access_needs_a_labelled_namespace(server: LocalServer) -> None:
    refused = await server.call("POST", CLAIMS, claim(adminAccess=True))
    why = (
        f"spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the "
        f"`{LABEL}: true` label on the containing namespace"
    )
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.message == f'ResourceClaim.resource.k8s.io "c" is invalid: {why}'
    await server.merge("/api/v1/namespaces/default", {"metadata": {"labels": {LABEL: "true"}}})
    assert (await server.call("POST", CLAIMS, claim(adminAccess=True))).status == 201


async def test_a_template_needs_a_labelled_namespace_too(server: LocalServer) -> None:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim(adminAccess=True)["spec"]}}
    templates = f"{GROUP}/namespaces/default/resourceclaimtemplates"
    assert (await server.call("POST", templates, template)).status == 422


async def test_an_allocation_with_admin_access_needs_a_labelled_namespace(
    server: LocalServer,
) -> None:
    await server.post(CLAIMS, claim())
    results = [{**RESULT, "adminAccess": True}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    refused = await server.call("PATCH", f"{CLAIMS}/c/status", status, **MERGE)
    assert "status.allocation.devices.results[0].adminAccess: Forbidden" in refused.message


MERGE: dict[str, Any] = {"content_type": "application/merge-patch+json"}


async def grant(server: LocalServer, **rule: Any) -> None:
    """Let the user jane write the status of claims, and do what the rule says."""
    own = {"apiGroups": ["resource.k8s.io"]}
    rules = [
        {**own, "resources": ["resourceclaims/status"], "verbs": ["patch", "update"]},
        {**own, **rule},
    ]
    role = {"metadata": {"name": "jane"}, "rules": rules}
    await server.post(f"{RBAC}/clusterroles", role)
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "jane",
    }
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    binding = {"metadata": {"name": "jane"}, "roleRef": reference, "subjects": subjects}
    await server.post(f"{RBAC}/clusterrolebindings", binding)
    await server.settle()


async def as_jane(server: LocalServer, status: dict[str, Any]) -> Any:
    headers = {"impersonate-user": "jane"}
    return await server.call(
        "PATCH", f"{CLAIMS}/c/status", {"status": status}, headers=headers, **MERGE
    )


ALLOCATED = {"allocation": {"devices": {"results": [RESULT]}}}


async def test_an_allocation_takes_the_right_to_bind(server: LocalServer) -> None:
    await server.post(CLAIMS, claim())
    await grant(server, resources=["resourceclaims"], verbs=["get"])
    refused = await as_jane(server, ALLOCATED)
    assert refused.status == 422
    assert (
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
        'resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io'
        ' is forbidden: User "jane" cannot patch resource "resourceclaims/binding" in API group '
        '"resource.k8s.io" at the cluster scope'
    ) in refused.message


async def test_those_who_may_bind_allocate(server: LocalServer) -> None:
    await server.post(CLAIMS, claim())
    await grant(server, resources=["resourceclaims/binding"], verbs=["patch"])
    assert (await as_jane(server, ALLOCATED)).status == 200


async def test_the_state_of_a_device_takes_the_right_for_its_driver(server: LocalServer) -> None:
    await server.post(CLAIMS, claim())
    await server.merge(f"{CLAIMS}/c/status", {"status": ALLOCATED})
    await grant(
        server,
        resources=["resourceclaims/driver"],
        resourceNames=["other.example"],
        verbs=["arbitrary-node:patch"],
    )
    refused = await as_jane(server, {"devices": [DEVICE]})
    assert (
        'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/'
        'driver", verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io '
        '"d.example" is forbidden'
    ) in refused.message


async def test_those_who_may_write_for_a_driver_report_its_devices(server: LocalServer) -> None:
    await server.post(CLAIMS, claim())
    await server.merge(f"{CLAIMS}/c/status", {"status": ALLOCATED})
    await grant(
        server,
        resources=["resourceclaims/driver"],
        resourceNames=["d.example"],
        verbs=["arbitrary-node:patch"],
    )
    assert (await as_jane(server, {"devices": [DEVICE]})).status == 200


async def test_the_time_of_a_taint_is_recorded(server: LocalServer) -> None:
    device = {"name": "gpu-0", "taints": [{"key": "broken", "effect": "NoSchedule"}]}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "pool": pool, "allNodes": True, "devices": [device]}
    made = await server.post(f"{GROUP}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    [taint] = made["spec"]["devices"][0]["taints"]
    assert taint["timeAdded"] == made["metadata"]["creationTimestamp"]


async def test_a_json_patch_sets_the_allocation_of_a_new_claim(server: LocalServer) -> None:
    await server.post(CLAIMS, claim())
    patch = [{"op": "add", "path": "/status/allocation", "value": ALLOCATED["allocation"]}]
    answer = await server.call(
        "PATCH", f"{CLAIMS}/c/status", patch, content_type="application/json-patch+json"
    )
    assert answer.status == 200
