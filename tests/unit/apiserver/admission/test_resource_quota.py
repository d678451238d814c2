import asyncio
from typing import Any

import pytest

from kedge.api.core_v1 import resource_quota, service
from kedge.api.core_v1.pod import pod
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import Operation
from kedge.apiserver.admission.resource_quota import ResourceQuotaPlugin, counts
from kedge.apiserver.quota.first_quota import FirstQuota
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.quota.local_claims import LocalQuotaClaims
from kedge.testing.admission import admit_only_with, attempt
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import new_pod, pod_document

CORE = "/api/v1/namespaces/default"


@pytest.fixture
def limited(server: LocalServer) -> LocalServer:
    """A server that heeds quotas."""
    cache, clock = server.app.api.cache, server.clock
    claims = LocalQuotaClaims(server.store, cache, QuotaLedger(cache, clock), clock)
    quota = FirstQuota(cache.of(resource_quota.RESOURCE), lambda: claims)
    admit_only_with(server, ResourceQuotaPlugin(quota))
    return server


async def quota(server: LocalServer, **hard: str) -> None:
    bounds = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
    await server.post(
        f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": bounds}}
    )


async def test_of_many_writers_at_once_exactly_as_many_are_admitted_as_fit(
    limited: LocalServer,
) -> None:
    await quota(limited, pods="50")
    answers = await asyncio.gather(
        *(
            limited.call("POST", f"{CORE}/pods", pod_document(metadata={"name": f"p{i}"}))
            for i in range(200)
        )
    )
    assert sorted(answer.status for answer in answers) == [201] * 50 + [403] * 150
    assert len((await limited.get(f"{CORE}/pods"))["items"]) == 50
    refused = next(answer for answer in answers if answer.status == 403)
    assert refused.message.endswith(
        "is forbidden: exceeded quota: q, requested: pods=1, used: pods=50, limited: pods=50"
    )


async def test_writes_that_come_to_nothing_leave_no_trace(limited: LocalServer) -> None:
    await quota(limited, pods="2")
    await limited.post(f"{CORE}/pods", pod_document())
    for _ in range(3):
        twice = await limited.call("POST", f"{CORE}/pods", pod_document())
        assert twice.reason == "AlreadyExists"
    await limited.post(f"{CORE}/pods", pod_document(metadata={"name": "second"}))
    await limited.delete(f"{CORE}/pods/pod")
    await limited.post(f"{CORE}/pods", pod_document(metadata={"name": "third"}))


async def test_a_dry_run_is_judged_and_takes_nothing(limited: LocalServer) -> None:
    await quota(limited, pods="1")
    for _ in range(2):
        await limited.post(f"{CORE}/pods?dryRun=All", pod_document())
    await limited.post(f"{CORE}/pods", pod_document())
    dry = await limited.call("POST", f"{CORE}/pods?dryRun=All", pod_document())
    assert dry.status == 403


async def test_any_kind_can_be_counted(limited: LocalServer) -> None:
    await quota(limited, count__leases_coordination_k8s_io="1", configmaps="1")
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    await limited.post(leases, {"metadata": {"name": "a"}})
    refused = await limited.call("POST", leases, {"metadata": {"name": "b"}})
    assert refused.message == (
        'leases.coordination.k8s.io "b" is forbidden: exceeded quota: q, '
        "requested: count/leases.coordination.k8s.io=1, "
        "used: count/leases.coordination.k8s.io=1, limited: count/leases.coordination.k8s.io=1"
    )
    await limited.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    await limited.merge(f"{CORE}/configmaps/a", {"data": {"k": "v"}})


async def test_a_service_that_changes_its_type_needs_room_for_its_ports(
    limited: LocalServer,
) -> None:
    await quota(limited, services="9", services_nodeports="1")
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    body = {"metadata": {"name": "s"}, "spec": {"ports": ports}}
    await limited.post(f"{CORE}/services", body)
    refused = await limited.call(
        "PATCH",
        f"{CORE}/services/s",
        {"spec": {"type": "NodePort"}},
        content_type="application/merge-patch+json",
    )
    assert "requested: services.nodeports=2, used: services.nodeports=0" in refused.message


async def test_a_claim_needs_room_for_its_devices(limited: LocalServer) -> None:
    name = "gold.deviceclass.resource.k8s.io/devices"
    body = {"metadata": {"name": "q"}, "spec": {"hard": {name: "2"}}}
    await limited.post(f"{CORE}/resourcequotas", body)

    def claim(count: int) -> dict[str, Any]:
        request = {"name": "r", "exactly": {"deviceClassName": "gold", "count": count}}
        return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}

    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    refused = await limited.call("POST", claims, claim(3))
    assert f"exceeded quota: q, requested: {name}=3, used: {name}=0" in refused.message
    await limited.post(claims, claim(1))
    second = await limited.call("POST", claims, claim(2) | {"metadata": {"name": "d"}})
    assert f"exceeded quota: q, requested: {name}=2, used: {name}=1" in second.message


ONE, ENDING = new_pod(), new_pod(spec={"activeDeadlineSeconds": 5})
SERVICE = service.RESOURCE.from_document({"metadata": {"name": "s"}})


@pytest.mark.parametrize(
    ("resource", "operation", "new", "old", "subresource", "counted"),
    [
        (pod.RESOURCE, "CREATE", ONE, None, "", True),
        (pod.RESOURCE, "CREATE", ONE, None, "binding", False),
        (pod.RESOURCE, "UPDATE", ONE, ONE, "", False),
        (pod.RESOURCE, "UPDATE", ENDING, ONE, "", True),
        (pod.RESOURCE, "UPDATE", ENDING, ONE, "status", False),
        (pod.RESOURCE, "UPDATE", ONE, ONE, "resize", True),
        (pod.RESOURCE, "DELETE", None, ONE, "", False),
        (service.RESOURCE, "UPDATE", SERVICE, SERVICE, "", True),
        (service.RESOURCE, "UPDATE", SERVICE, SERVICE, "status", False),
    ],
)
def test_only_writes_that_can_take_more_are_looked_at(
    resource: Resource[Any],
    operation: Operation,
    new: Object | None,
    old: Object | None,
    subresource: str,
    counted: bool,
) -> None:
    assert counts(attempt(resource, operation, new, old, subresource=subresource)) is counted
