"""Pods learn where the node is that they are bound to."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"
PLACE = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=["PodTopologyLabels"]) as running:
        labels = PLACE | {"example.com/rack": "7"}
        await running.post("/api/v1/nodes", {"metadata": {"name": "one", "labels": labels}})
        await running.post("/api/v1/nodes", {"metadata": {"name": "bare"}})
        yield running


def pod(node: str = "", **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
    return {"metadata": {"name": "p", "labels": labels}, "spec": spec}


async def bound(server: LocalServer, node: str, **binding: Any) -> dict[str, str]:
    document = {
        "metadata": {"name": "p", **binding},
        "target": {"kind": "Node", "name": node},
    }
    await server.post(f"{PODS}/p/binding", document)
    labels: dict[str, str] = (await server.get(f"{PODS}/p"))["metadata"].get("labels", {})
    return labels


async def test_pod_that_is_bound_gets_zone_and_region_and_nothing_else(server: LocalServer) -> None:
    await server.post(PODS, pod(app="web"))
    assert await bound(server, "one") == PLACE | {"app": "web"}


async def test_what_the_pod_claimed_is_put_right(server: LocalServer) -> None:
    await server.post(PODS, pod(**{"topology.kubernetes.io/zone": "elsewhere"}))
    assert await bound(server, "one") == PLACE


async def test_pod_that_comes_with_a_node_gets_them_at_once(server: LocalServer) -> None:
    made = await server.post(PODS, pod("one"))
    assert made["metadata"]["labels"] == PLACE


@pytest.mark.parametrize("node", ["bare", "gone"])
async def test_node_without_a_place_gives_none(server: LocalServer, node: str) -> None:
    await server.post(PODS, pod(app="web"))
    assert await bound(server, node) == {"app": "web"}


async def test_labels_of_a_binding_are_the_pods(server: LocalServer) -> None:
    await server.post(PODS, pod(app="web"))
    assert await bound(server, "bare", labels={"app": "api", "x": "y"}) == {"app": "api", "x": "y"}
