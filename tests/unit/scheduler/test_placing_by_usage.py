"""The scheduler beside a server to which nodes report what is used: all of it through the API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kedge.api.core_v1 import node
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.metrics.frame_codec import CONTENT_TYPE, path_of
from kedge.scheduler.scheduler import Scheduler
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.reports import Used, report
from kedge.testing.scheduling import new_node
from kedge.web.message import HttpRequest

PODS = "/api/v1/namespaces/default/pods"
WHY = "/apis/scheduling.kedge/v1alpha1/namespaces/default/schedulingdecisions"
GB = 1e9


class Cluster:
    """A server, a scheduler, and nodes that say what they are told to."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.uids: dict[str, str] = {}

    async def node(self, name: str, **facts: Any) -> None:
        document = node.RESOURCE.to_document(new_node(name, **facts))
        await self.server.post("/api/v1/nodes", document)

    async def pod(self, name: str, cpu: str = "", **spec: Any) -> str:
        """Make a pod; returns the node that it gets."""
        container = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
        document = pod_document(metadata={"name": name}, spec=spec, container=container)
        made = await self.server.post(PODS, document)
        self.uids[name] = made["metadata"]["uid"]
        for _ in range(10):
            await self.server.settle()
        found = await self.server.get(f"{PODS}/{name}")
        return str(found["spec"].get("nodeName", ""))

    async def reports(self, name: str, machine: Used, **pods: Used) -> Any:
        """Report; returns what the server has to say to that."""
        used = {(f"default/{each}", self.uids[each]): amount for each, amount in pods.items()}
        now = self.server.clock.now().timestamp()
        who = {"impersonate-user": f"system:node:{name}", "impersonate-group": "system:nodes"}
        body = report(name, now, machine, used)
        answer = await self.server.call(
            "POST", path_of(name), body, content_type=CONTENT_TYPE, headers=who
        )
        assert answer.status == 200, answer.text
        for _ in range(5):
            await self.server.settle()
        return answer.document

    async def why(self, name: str) -> Any:
        return await self.server.get(f"{WHY}/{name}")


@asynccontextmanager
async def scheduled(*, usage: bool = True) -> AsyncIterator[Cluster]:
    async with LocalServer.running() as server:
        scheduler = Scheduler(server.client, server.clock, usage=usage)
        server.components.set_scheduler(scheduler)
        task = server.start(scheduler.run())
        for _ in range(5):
            await server.settle()
        try:
            yield Cluster(server)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_best_effort_pod_avoids_the_busy_node_until_its_report_is_stale() -> None:
    async with scheduled() as cluster:
        for name in ("a", "b"):
            await cluster.node(name)
        await cluster.reports("a", (3.0, 1 * GB))
        await cluster.reports("b", (0.5, 1 * GB))
        assert [await cluster.pod(f"p{n}") for n in range(3)] == ["b", "b", "b"]
        await cluster.server.clock.advance(3700)
        cluster.server.app.api.metrics.sweep()
        homes = {await cluster.pod(f"q{n}") for n in range(3)}
        assert homes == {"a"}, "requests alone speak for the node that has fewer pods"


async def test_history_of_a_neighbour_counts_in_place_of_what_it_asked_for() -> None:
    async with scheduled() as cluster:
        for name in ("a", "b"):
            await cluster.node(name)
        assert await cluster.pod("modest", "100m", nodeName="a") == "a"
        assert await cluster.pod("honest", "1", nodeName="b") == "b"
        assert await cluster.pod("before", "100m") == "a"
        await cluster.reports("a", (1.0, GB), modest=(3.0, GB / 4))
        await cluster.reports("b", (1.0, GB), honest=(0.2, GB / 4))
        assert await cluster.pod("after", "100m") == "b"


async def test_turned_off_it_decides_as_if_nothing_were_measured() -> None:
    async with scheduled(usage=False) as cluster:
        for name in ("a", "b"):
            await cluster.node(name)
        await cluster.pod("there", "500m", nodeName="b")
        await cluster.reports("a", (4.0, 7 * GB))
        assert await cluster.pod("p") == "a"
        told = await cluster.why("p")
        assert "usage" not in told
        assert "NodeUsage" in told["same"]


async def test_why_a_pod_is_where_it_is() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await cluster.node("b")
        await cluster.node("kept", taints=[{"key": "x", "effect": "NoSchedule"}])
        await cluster.reports("a", (3.0, 1 * GB))
        await cluster.reports("b", (1.0, 1 * GB))
        await cluster.pod("p")
        told = await cluster.why("p")
        assert (told["node"], told["boundTo"]) == ("b", "b")
        assert told["decidedAt"] == told["evaluatedAt"]
        assert told["metadata"] == {
            "name": "p",
            "namespace": "default",
            "uid": cluster.uids["p"],
            "creationTimestamp": told["decidedAt"],
        }
        assert told["expected"] == {
            "amounts": {"cpu": "100m", "memory": "200Mi"},
            "source": "default",
        }
        chosen, passed, refused = told["nodes"]
        assert (chosen["name"], chosen["verdict"]) == ("b", "chosen")
        assert chosen["usage"]["window"] == "1h mean"
        assert chosen["usage"]["used"]["cpu"] == "1"
        assert chosen["usage"]["allocatable"] == {"cpu": "4", "memory": "8Gi"}
        points = {each["name"]: each["weight"] * each["value"] for each in chosen["scores"]}
        assert points["NodeUsage"] == 100
        assert {"name": "NodeUsage", "weight": 1} in passed["scores"], "it is given nothing"
        assert sum(points.values()) == chosen["total"] > passed["total"]
        assert refused == {
            "name": "kept",
            "verdict": "refused",
            "filter": "TaintToleration",
            "reasons": ["node(s) had untolerated taint(s)"],
        }


async def test_why_a_pod_is_on_no_node() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        assert await cluster.pod("big", "9") == ""
        told = await cluster.why("big")
        assert "node" not in told
        assert told["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        [verdict] = told["nodes"]
        assert (verdict["filter"], verdict["reasons"]) == ("NodeResourcesFit", ["Insufficient cpu"])


async def test_what_was_decided_before_is_said_to_be_evaluated_now() -> None:
    async with scheduled() as cluster:
        await cluster.node("a", cpu="1")
        await cluster.node("b")
        # As large as the node: it fits only if it does not stand in its own way.
        assert await cluster.pod("p", "1", nodeName="a") == "a"
        told = await cluster.why("p")
        assert "decidedAt" not in told
        assert told["note"].startswith("not decided by this scheduler since it started")
        assert told["boundTo"] == "a"
        assert {each["name"] for each in told["nodes"]} == {"a", "b"}
        assert all(each["verdict"] != "refused" for each in told["nodes"])
        again = await cluster.pod("q", "1")
        assert again == "b", "to ask changes nothing"


async def test_pods_that_wait_for_something_else_say_so() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await cluster.pod("gated", schedulingGates=[{"name": "example.com/quota"}])
        await cluster.pod("theirs", schedulerName="mine")
        assert "its gates (example.com/quota)" in (await cluster.why("gated"))["note"]
        assert "waits for scheduler mine" in (await cluster.why("theirs"))["note"]


async def test_who_may_ask_and_what_they_may_hear() -> None:
    async with scheduled() as cluster:
        server = cluster.server
        await cluster.node("a")
        await cluster.pod("p")
        jane = {"impersonate-user": "jane"}
        assert (await server.call("GET", f"{WHY}/p", headers=jane)).status == 403
        group = "rbac.authorization.k8s.io"
        reader = "system:aggregated-scheduling-decisions-reader"
        binding = {
            "metadata": {"name": "why"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": group}],
            "roleRef": {"kind": "ClusterRole", "name": reader, "apiGroup": group},
        }
        await server.post(f"/apis/{group}/v1/namespaces/default/rolebindings", binding)
        for path in (WHY, f"{WHY}/p"):
            assert (await server.call("GET", path, headers=jane)).status == 200
        other = WHY.replace("default", "kube-system")
        everywhere = WHY.replace("namespaces/default/", "")
        for path in (other, f"{other}/p", everywhere):
            assert (await server.call("GET", path, headers=jane)).status == 403
        assert (await server.call("GET", f"{WHY}/none")).status == 404
        assert (await server.call("POST", f"{WHY}/p", {})).status == 405
        server.components.set_scheduler(None)
        standing_by = await server.call("GET", f"{WHY}/p")
        assert standing_by.status == 503
        assert "another leads" in standing_by.message


async def test_the_scheduler_does_not_hurry_nodes_that_report_seldom() -> None:
    async with LocalServer.running() as server:
        client = Client(LocalTransport(partial(admitted, server)))
        task = server.start(Scheduler(client, server.clock).run())
        for _ in range(5):
            await server.settle()
        cluster = Cluster(server)
        await cluster.node("a")
        assert await cluster.reports("a", (1.0, GB)) == {}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def admitted(server: LocalServer, call: Call) -> Any:
    headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
    http = HttpRequest(call.method, call.path, call.query, headers, call.body)
    return server.app.handle(http)


async def test_the_list_has_the_decisions_in_memory() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await cluster.pod("theirs", nodeName="a")
        await cluster.pod("z")
        await cluster.pod("big", "9")
        await cluster.pod("gone")
        await cluster.server.delete(f"{PODS}/gone", {"gracePeriodSeconds": 0})
        await cluster.server.settle()
        listed = (await cluster.server.get(WHY))["items"]
        assert [each["metadata"]["name"] for each in listed] == ["big", "gone", "z"]
        alone = await cluster.why("z")
        assert alone.pop("kind") + " " + alone.pop("apiVersion") == (
            "SchedulingDecision scheduling.kedge/v1alpha1"
        )
        assert listed[2] == alone
        assert listed[1]["note"] == "the pod has ended or is gone"


async def test_a_decision_about_an_earlier_pod_of_the_name_is_not_listed() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await cluster.pod("p")
        await cluster.server.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        await cluster.pod("p", nodeName="a")
        assert (await cluster.server.get(WHY))["items"] == []
        assert "decidedAt" not in await cluster.why("p")
