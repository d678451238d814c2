import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.api.core_v1 import node
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.scheduler.loop import SchedulingLoop
from kedge.scheduler.queue import PATIENCE, QueuedPod
from kedge.scheduler.scheduler import Scheduler
from kedge.testing.local_server import MERGE, TOKEN, LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.scheduling import new_node
from kedge.web.message import HttpRequest, Response

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


class Cluster:
    """A server with a scheduler."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.calls: list[tuple[str, str]] = []
        """Method and path of every request of the scheduler."""
        self.failing = 0
        """How many bindings are yet to fail."""

    def handle(self, call: Call) -> Response | Awaitable[Response]:
        self.calls.append((call.method, call.path))
        if call.path.endswith("/binding") and self.failing:
            self.failing -= 1
            raise ConnectionResetError("gone")
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        http = HttpRequest(call.method, call.path, call.query, headers, call.body)
        return self.server.app.handle(http)

    async def node(self, name: str, **facts: Any) -> None:
        document = node.RESOURCE.to_document(new_node(name, **facts))
        await self.server.post(NODES, document)

    async def pod(self, name: str, cpu: str = "1", **spec: Any) -> None:
        container = {"resources": {"requests": {"cpu": cpu}}}
        document = pod_document(metadata={"name": name}, spec=spec, container=container)
        await self.server.post(PODS, document)

    async def delete(self, name: str) -> None:
        await self.server.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    async def get(self, name: str) -> Any:
        for _ in range(10):
            await self.server.settle()
        return await self.server.get(f"{PODS}/{name}")

    async def home(self, name: str) -> str:
        return str((await self.get(name))["spec"].get("nodeName", ""))

    async def condition(self, name: str, type_: str = "PodScheduled") -> dict[str, Any]:
        conditions = (await self.get(name))["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == type_), {})

    async def events(self, name: str) -> list[tuple[str, str, str]]:
        await self.get(name)
        found = (await self.server.get("/api/v1/namespaces/default/events"))["items"]
        return [
            (each["type"], each["reason"], each["message"])
            for each in found
            if each["involvedObject"]["name"] == name
            and each["source"]["component"] == "default-scheduler"
        ]


@asynccontextmanager
async def scheduled() -> AsyncIterator[Cluster]:
    async with LocalServer.running() as server:
        cluster = Cluster(server)
        client = Client(LocalTransport(cluster.handle))
        task = server.start(Scheduler(client, server.clock).run())
        await server.settle()
        try:
            yield cluster
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_is_bound_and_says_so() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1")
        await cluster.pod("web")
        assert await cluster.home("web") == "n1"
        assert (await cluster.condition("web"))["status"] == "True"
        said = ("Normal", "Scheduled", "Successfully assigned default/web to n1")
        assert await cluster.events("web") == [said]


async def test_a_pod_that_fits_nowhere_says_why_and_follows_when_it_does() -> None:
    async with scheduled() as cluster:
        await cluster.pod("web", "2")
        assert (await cluster.condition("web"))["message"] == "no nodes available to schedule pods"
        await cluster.node("n1", cpu="1")
        why = (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
            "1 Preemption is not helpful for scheduling."
        )
        found = await cluster.condition("web")
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        assert found["message"] == why
        assert ("Warning", "FailedScheduling", why) in await cluster.events("web")
        await cluster.node("n2")
        assert await cluster.home("web") == "n2"


async def test_pods_are_not_promised_the_same_room_twice() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1", cpu="2")
        for name in ("a", "b", "c"):
            await cluster.pod(name)
        homes = [await cluster.home(name) for name in ("a", "b", "c")]
        assert homes == ["n1", "n1", ""]
        await cluster.delete("a")
        assert await cluster.home("c") == "n1"


async def test_pods_that_are_gated_or_wait_for_somebody_else_are_left_alone() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1")
        await cluster.pod("other", schedulerName="mine")
        await cluster.pod("gated", schedulingGates=[{"name": "example.com/quota"}])
        assert await cluster.home("other") == await cluster.home("gated") == ""
        assert (await cluster.condition("gated"))["reason"] == "SchedulingGated"
        assert not [path for method, path in cluster.calls if method != "GET"]
        await cluster.server.merge(f"{PODS}/gated", {"spec": {"schedulingGates": []}})
        assert await cluster.home("gated") == "n1"


async def test_a_change_of_the_pod_or_the_node_helps_at_once() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1", unschedulable=True)
        await cluster.pod("a")
        await cluster.pod("b")
        toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        pod = await cluster.get("a")
        tolerations = [*pod["spec"].get("tolerations", []), toleration]
        await cluster.server.merge(f"{PODS}/a", {"spec": {"tolerations": tolerations}})
        assert (await cluster.home("a"), await cluster.home("b")) == ("n1", "")
        await cluster.server.merge(f"{NODES}/n1", {"spec": {"unschedulable": False}})
        assert await cluster.home("b") == "n1"


async def test_a_pod_waits_for_a_node_that_declares_its_feature() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
    own = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    async with scheduled() as cluster:
        await cluster.node("n")
        document = pod_document(metadata={"name": "a"}, container=own)
        await cluster.server.post(PODS, document)
        why = "0/1 nodes are available: 1 node(s) didn't match Pod's required features. preemption:"
        assert (await cluster.condition("a"))["message"].startswith(why)
        await cluster.server.clock.advance(10)
        status = {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}}
        await cluster.server.call("PATCH", f"{NODES}/n/status", status, content_type=MERGE)
        assert await cluster.home("a") == "n"


async def test_who_wants_company_follows_when_it_comes() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1")
        await cluster.node("n2")
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "db"}},
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        await cluster.pod("web", affinity={"podAffinity": required})
        assert await cluster.home("web") == ""
        database = pod_document(
            metadata={"name": "db", "labels": {"app": "db"}},
            spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}},
        )
        await cluster.server.post(PODS, database)
        assert await cluster.home("web") == "n2"


async def test_a_less_important_pod_makes_room() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1", cpu="2")
        await cluster.pod("low", "2")
        assert await cluster.home("low") == "n1"
        await cluster.pod("high", "2", priority=1000)
        waiting = await cluster.get("high")
        assert waiting["status"]["nominatedNodeName"] == "n1"
        assert "nodeName" not in waiting["spec"]
        victim = await cluster.get("low")
        assert victim["metadata"]["deletionTimestamp"]
        told = await cluster.condition("low", "DisruptionTarget")
        assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
        assert told["message"] == (
            "default-scheduler: preempting to accommodate a higher priority pod"
        )
        uid = waiting["metadata"]["uid"]
        said = ("Normal", "Preempted", f"Preempted by pod {uid} on node n1")
        assert said in await cluster.events("low")
        await cluster.pod("late", "1")
        assert await cluster.home("late") == ""
        await cluster.delete("low")
        assert await cluster.home("high") == "n1"
        assert await cluster.home("late") == ""


async def test_a_binding_that_fails_is_tried_again_and_holds_no_room_meanwhile() -> None:
    async with scheduled() as cluster:
        cluster.failing = 1
        await cluster.node("n1", cpu="1")
        await cluster.pod("a")
        found = await cluster.condition("a")
        assert (found["reason"], found["status"]) == ("SchedulerError", "False")
        assert await cluster.home("a") == ""
        await cluster.server.clock.advance(1.1)
        assert await cluster.home("a") == "n1"


async def test_a_pod_that_is_being_deleted_is_not_placed() -> None:
    async with scheduled() as cluster:
        document = pod_document(metadata={"name": "a", "finalizers": ["example.com/wait"]})
        await cluster.server.post(PODS, document)
        await cluster.delete("a")
        await cluster.node("n1")
        assert await cluster.home("a") == ""


async def test_an_unchanged_verdict_is_written_once_and_idleness_costs_nothing() -> None:
    async with scheduled() as cluster:
        await cluster.node("n1", cpu="1")
        await cluster.pod("a", "3")
        await cluster.get("a")
        written = [path for method, path in cluster.calls if method == "PATCH"]
        assert written == [f"{PODS}/a/status"]
        cluster.calls.clear()
        await cluster.server.clock.advance(PATIENCE - 1)
        assert cluster.calls == []


async def test_a_scheduler_that_starts_late_knows_what_is_there() -> None:
    async with LocalServer.running() as server:
        cluster = Cluster(server)
        await cluster.node("n1", cpu="3")
        await cluster.pod("there", "2", nodeName="n1")
        await cluster.pod("a", "1")
        await cluster.pod("b", "1")
        client = Client(LocalTransport(cluster.handle))
        task = server.start(Scheduler(client, server.clock).run())
        assert (await cluster.home("a"), await cluster.home("b")) == ("n1", "")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_scheduler_fails_until_its_informers_have_synced() -> None:
    async with LocalServer.running() as server:
        scheduler = Scheduler(server.client, server.clock)
        assert scheduler.failure() == "informers have not synced"
        server.start(scheduler.run())
        for _ in range(5):
            await server.settle()
        assert scheduler.failure() == ""


async def test_a_pod_that_is_deleted_before_the_decision_takes_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    async def evaluate(self: SchedulingLoop, entry: QueuedPod) -> bool:
        await gate.wait()
        return True

    monkeypatch.setattr(SchedulingLoop, "_evaluate_selectors", evaluate)
    async with scheduled() as cluster:
        await cluster.node("n1", cpu="4")
        await cluster.pod("gone", "3")
        await cluster.get("gone")
        await cluster.delete("gone")
        await cluster.pod("web", "3")
        gate.set()
        assert await cluster.home("web") == "n1"
