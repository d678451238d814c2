"""Removing nodes from a running cluster: their pods are evicted first."""

import asyncio
from typing import Any

import pytest

from kedge.cli.cluster.up.live_changes import drain
from kedge.cli.failure import Failure
from kedge.testing.local_server import LocalServer

NODE = "/api/v1/nodes/node-2"
PODS = "/api/v1/namespaces/default/pods"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}


async def pod(server: LocalServer, name: str, node: str, **metadata: Any) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "host"}]}
    await server.post(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})


@pytest.fixture(autouse=True)
async def nodes(server: LocalServer) -> None:
    for name in ("node-1", "node-2"):
        await server.post("/api/v1/nodes", {"metadata": {"name": name}})


def owned(kind: str) -> list[dict[str, Any]]:
    return [{**OWNER, "kind": kind, "controller": True}]


async def test_pods_with_a_controller_are_evicted(server: LocalServer) -> None:
    await pod(server, "web-1", "node-2", ownerReferences=owned("ReplicaSet"))
    await pod(server, "web-2", "node-1", ownerReferences=owned("ReplicaSet"))
    await pod(server, "daemon", "node-2", ownerReferences=owned("DaemonSet"))
    work = server.start(drain(server.client, server.clock, ["node-2"], 30.0))
    await server.settle()
    assert (await server.get(NODE))["spec"]["unschedulable"] is True
    assert "deletionTimestamp" in (await server.get(f"{PODS}/web-1"))["metadata"]
    # The node's agent would do this.
    await server.delete(f"{PODS}/web-1", {"gracePeriodSeconds": 0})
    await server.clock.advance(1)
    await server.settle()
    assert work.done()
    left = [each["metadata"]["name"] for each in (await server.get(PODS))["items"]]
    assert left == ["daemon", "web-2"]


async def test_a_pod_that_would_be_lost_keeps_the_node(server: LocalServer) -> None:
    await pod(server, "alone", "node-2")
    with pytest.raises(Failure, match="default/alone would be lost with node-2"):
        await drain(server.client, server.clock, ["node-2"], 30.0)
    assert "unschedulable" not in (await server.get(NODE))["spec"]


async def test_a_pod_that_does_not_end_keeps_the_node_in_use(server: LocalServer) -> None:
    await pod(server, "web-1", "node-2", ownerReferences=owned("ReplicaSet"))
    work = asyncio.ensure_future(drain(server.client, server.clock, ["node-2"], 5.0))
    for _ in range(60):
        await server.settle()
        await server.clock.advance(0.1)
    await server.settle()
    with pytest.raises(Failure, match="default/web-1 did not end within 5 s"):
        await work
    assert "unschedulable" not in (await server.get(NODE))["spec"]
