"""The node autoscaler against a server, with a pool that only counts."""

from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.metrics.frame import WIDTH, Frame, FrameContainer
from kedge.metrics.windows import TICK_SECONDS
from kedge.node_autoscaler.autoscaler import NodeAutoscaler
from kedge.node_autoscaler.cluster_state import TAINT
from kedge.testing.local_server import LocalServer
from kedge.testing.node_autoscaler import UNSCHEDULABLE

CALM = 60.0
ROOM = {"cpu": "2", "memory": "4Gi", "pods": "10"}


class CountingPool:
    """Nodes that are started and stopped by name only."""

    names = ("node-2", "node-3")
    least = 1

    def __init__(self) -> None:
        self.agents: set[str] = set()
        self.calls: list[str] = []

    def running(self) -> set[str]:
        return set(self.agents)

    async def start(self, name: str) -> None:
        self.calls.append(f"start {name}")
        self.agents.add(name)

    async def stop(self, name: str) -> None:
        self.calls.append(f"stop {name}")
        self.agents.discard(name)


class AutoscaledCluster:
    """A server with nodes that report, and the autoscaler."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.pool = CountingPool()
        self.autoscaler = NodeAutoscaler(server.client, server.clock, self.pool, CALM)

    async def node(self, name: str) -> None:
        await self.server.post("/api/v1/nodes", {"metadata": {"name": name}})
        status = {
            "allocatable": ROOM,
            "capacity": ROOM,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    async def patch(self, url: str, body: Any) -> None:
        content = "application/merge-patch+json"
        answer = await self.server.call("PATCH", url, body, content_type=content)
        assert answer.status == 200, answer.text

    async def pod(self, name: str, node: str = "", cpu: str = "1500m") -> None:
        requests = {"requests": {"cpu": cpu}}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "a"}
        body = {
            "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "host", "resources": requests}],
            },
        }
        await self.server.post("/api/v1/namespaces/default/pods", body)
        if not node:
            url = f"/api/v1/namespaces/default/pods/{name}/status"
            await self.patch(url, {"status": {"conditions": [UNSCHEDULABLE]}})

    def report(self, name: str) -> None:
        """A node reports pods that use next to nothing."""
        tick = int(self.server.clock.now().timestamp()) // TICK_SECONDS
        since = tick * TICK_SECONDS - 1800
        values = array("f", [0.01, 1 << 20] * WIDTH)
        systems = [FrameContainer("pods", since, 1)]
        frame = Frame(name, "u", tick, 10, since, systems, [], values)
        self.server.app.api.metrics.take(name, frame)

    async def steps(self, *nodes: str, seconds: float = 0.0) -> None:
        await self.server.clock.advance(seconds)
        for name in nodes:
            self.report(name)
        await self.autoscaler.step()

    async def taints(self, name: str) -> list[str]:
        found = await self.server.get(f"/api/v1/nodes/{name}")
        return [each["key"] for each in found["spec"].get("taints", ())]

    async def events(self) -> list[tuple[str, str]]:
        task = self.server.start(self.autoscaler.recorder.run())
        await self.server.settle()
        task.cancel()
        found = await self.server.get("/api/v1/events")
        return [(each["reason"], each["message"]) for each in found["items"]]


@pytest.fixture
async def cluster() -> AsyncIterator[AutoscaledCluster]:
    async with LocalServer.running() as server:
        made = AutoscaledCluster(server)
        await made.node("node-1")
        yield made


async def test_a_waiting_pod_starts_a_node_once(cluster: AutoscaledCluster) -> None:
    await cluster.pod("a", "node-1")
    await cluster.pod("b")
    await cluster.steps("node-1")
    await cluster.steps("node-1", seconds=10)
    assert cluster.pool.calls == ["start node-2"]
    message = "pod triggered scale-up: [{local 1->2 (max: 3)}]"
    assert await cluster.events() == [("TriggeredScaleUp", message)]


async def test_a_pod_that_fits_nowhere_is_told_so_once(cluster: AutoscaledCluster) -> None:
    await cluster.pod("large", cpu="3")
    await cluster.steps("node-1")
    await cluster.steps("node-1", seconds=10)
    assert cluster.pool.calls == []
    message = "pod didn't trigger scale-up: 1 Insufficient cpu"
    assert await cluster.events() == [("NotTriggerScaleUp", message)]


async def test_an_idle_node_is_drained_and_removed(cluster: AutoscaledCluster) -> None:
    cluster.pool.agents = {"node-2"}
    await cluster.node("node-2")
    await cluster.pod("b", "node-2", cpu="100m")
    both = ("node-1", "node-2")
    await cluster.steps(*both)
    await cluster.steps(*both, seconds=CALM - 10)
    assert await cluster.taints("node-2") == []
    await cluster.steps(*both, seconds=10)
    assert await cluster.taints("node-2") == [TAINT]
    await cluster.steps(*both, seconds=10)
    pod = await cluster.server.get("/api/v1/namespaces/default/pods/b")
    assert pod["metadata"]["deletionTimestamp"]
    path = "/api/v1/namespaces/default/pods/b?gracePeriodSeconds=0"
    await cluster.server.call("DELETE", path)
    await cluster.steps(*both, seconds=10)
    assert cluster.pool.calls == ["stop node-2"]
    assert (await cluster.server.call("GET", "/api/v1/nodes/node-2")).status == 404


async def test_a_node_that_was_being_removed_is_removed_after_a_restart(
    cluster: AutoscaledCluster,
) -> None:
    await cluster.node("node-2")
    taint = {"key": TAINT, "value": "0", "effect": "NoSchedule"}
    await cluster.patch("/api/v1/nodes/node-2", {"spec": {"taints": [taint]}})
    await cluster.steps("node-1")
    assert cluster.pool.calls == ["stop node-2"]


async def test_an_agent_that_died_is_started_again(cluster: AutoscaledCluster) -> None:
    await cluster.node("node-3")
    await cluster.steps("node-1", "node-3")
    assert cluster.pool.calls == ["start node-3"]
