"""Which pod a workload or Service means."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods import containers
from kedge.cli.pods.selection import pods_of, selector, usefulness
from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": more.get("ready", "True")}]
    restarts = [{"restartCount": more.get("restarts", 0)}]
    metadata = {"name": name, "creationTimestamp": more.get("at", "2026-01-01T00:00:00Z")}
    if more.get("ends"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase, "conditions": ready, "containerStatuses": restarts}
    return {"metadata": metadata, "spec": {"nodeName": more.get("node", "n")}, "status": status}


def test_the_most_useful_pod_comes_first() -> None:
    best_first = [
        pod("old", at="2025-01-01T00:00:00Z"),
        pod("new"),
        pod("restarted", restarts=3),
        pod("unready", ready="False"),
        pod("pending", "Pending"),
        pod("ended", "Succeeded"),
        pod("unplaced", "Pending", node=""),
        pod("ends", ends=True),
    ]
    worst_first = best_first[::-1]
    found = sorted(worst_first, key=usefulness, reverse=True)
    assert [each["metadata"]["name"] for each in found] == [
        each["metadata"]["name"] for each in best_first
    ]


def test_selectors_become_texts() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["3"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    given = {"matchLabels": {"x": "y"}, "matchExpressions": expressions}
    document = {"kind": "Deployment", "spec": {"selector": given}}
    assert selector(document) == "x=y,a in (1,2),b notin (3),c,!d"
    assert selector({"kind": "Service", "spec": {"selector": {"b": "1", "a": "2"}}}) == "a=2,b=1"
    assert selector({"kind": "ConfigMap"}) == ""


async def test_a_service_leads_to_its_pods(server: LocalServer, there: ApiSession) -> None:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    services = "/api/v1/namespaces/default/services"
    await server.post(services, {"metadata": {"name": "web"}, "spec": spec})
    with pytest.raises(Failure, match="svc/web has no pods"):
        await containers.find(there, "svc/web")
    containers_ = [{"name": "main", "image": "host"}]
    metadata = {"name": "web-1", "labels": {"app": "web"}}
    await server.post(PODS, {"metadata": metadata, "spec": {"containers": containers_}})
    assert (await containers.find(there, "svc/web"))["metadata"]["name"] == "web-1"
    assert len(await pods_of(there, "pod/web-1")) == 1
    await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
    with pytest.raises(Failure, match="configmap/a selects no pods"):
        await pods_of(there, "cm/a")
