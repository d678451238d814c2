"""Policies, pods and namespaces of the API become changes of the table."""

import asyncio
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from kedge.client.events import Recorder
from kedge.node.network.attached_pods import AttachedPod, AttachedPods
from kedge.node.network.nftables.batch import FORWARD, Batch
from kedge.node.network.ruleset import Ruleset
from kedge.node.policies.policy_enforcer import RETRY_SECONDS, PolicyEnforcer
from kedge.node.policies.policy_events import NOT_ENFORCED, PolicyEvents, report_unenforced
from kedge.node.policies.policy_watch import PolicyWatch
from kedge.testing.local_server import LocalServer
from kedge.testing.packet_rules import Packet, PacketRules

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
PODS = "/api/v1/namespaces/default/pods"
HERE, THERE = IPv4Address("10.244.0.2"), IPv4Address("10.244.1.2")
DENY = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}}


class FakeTable:
    """A table that notes what is written, and fails on request."""

    def __init__(self) -> None:
        self.failures = 0
        self.written: Ruleset | None = None
        self.rewrites = self.changes = self.clears = 0
        self.content: Callable[[], Ruleset] | None = None

    async def rewrite(self, content: Callable[[], Ruleset]) -> None:
        self._fail()
        self.rewrites += 1
        self.content = content
        self._copy()

    async def apply(self, change: Callable[[str], Batch]) -> None:
        self._fail()
        self.changes += 1
        change("t")
        self._copy()

    async def clear(self) -> None:
        self._fail()
        self.clears += 1
        self.written = None

    def _copy(self) -> None:
        assert self.content is not None
        found = self.content()
        elements = {name: dict(each) for name, each in found.elements.items()}
        self.written = Ruleset(dict(found.sets), dict(found.chains), elements, dict(found.ranges))

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the kernel refuses")

    def accepts(self, source: IPv4Address = THERE, destination: IPv4Address = HERE) -> bool:
        if self.written is None:
            return True
        return PacketRules(self.written).accepts(Packet(source, destination, "TCP", 80), FORWARD)


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile policies at once, so that tests know when it is done."""

    async def run(work: Callable[..., Any], *given: Any) -> Any:
        return work(*given)

    monkeypatch.setattr(asyncio, "to_thread", run)


class Node:
    """A node that enforces the policies of a server."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.table = FakeTable()
        self.attached = AttachedPods()
        self.watch = PolicyWatch(server.client, server.clock)
        self.recorder = Recorder(server.client, server.clock, "kubelet", "node-1")
        self.enforcer = PolicyEnforcer(
            self.watch,
            self.table,
            self.attached,
            PolicyEvents(self.recorder, "node-1"),
            server.clock,
            network=IPv4Network("10.244.0.0/24"),
            hosted=[],
        )

    async def start(self) -> None:
        for work in (self.watch.run(), self.enforcer.run(), self.recorder.run()):
            self.server.start(work)
        await self.settle()

    async def settle(self, seconds: float = 0.01) -> None:
        await self.server.settle()
        for _ in range(5):
            await self.server.clock.advance(seconds / 5)
            await self.server.settle()


async def pod(server: LocalServer, name: str, address: IPv4Address | None, **labels: str) -> None:
    spec = {"containers": [{"name": "main", "image": "host"}]}
    meta = {"name": name, "labels": labels}
    await server.post(PODS, {"metadata": meta, "spec": spec})
    if address is not None:
        status = {"phase": "Running", "podIP": str(address), "podIPs": [{"ip": str(address)}]}
        await server.merge(f"{PODS}/{name}/status", {"status": status})


async def test_without_policies_there_is_no_table_and_no_watch_of_pods(
    server: LocalServer,
) -> None:
    await pod(server, "a", HERE)
    node = Node(server)
    await node.start()
    assert (node.table.rewrites, node.table.clears) == (0, 1)
    assert len(node.watch.pods) == 0


async def test_policies_come_change_and_go(server: LocalServer) -> None:
    await pod(server, "a", HERE)
    await pod(server, "b", THERE, app="friend")
    node = Node(server)
    await node.start()
    await server.post(POLICIES, DENY)
    await node.settle()
    assert not node.table.accepts()
    allowed = [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]
    await server.merge(f"{POLICIES}/deny", {"spec": {"ingress": allowed}})
    await node.settle()
    assert node.table.accepts()
    await server.merge(f"{PODS}/b", {"metadata": {"labels": {"app": "stranger"}}})
    await node.settle()
    assert not node.table.accepts()
    assert node.table.rewrites == 1
    await server.delete(f"{POLICIES}/deny")
    await node.settle()
    assert node.table.accepts()
    assert node.table.clears == 2


async def test_labels_of_namespaces_are_followed(server: LocalServer) -> None:
    await pod(server, "a", HERE)
    await pod(server, "b", THERE)
    node = Node(server)
    await node.start()
    peer = {"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}
    await server.post(
        POLICIES, {**DENY, "spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}}
    )
    await node.settle()
    assert not node.table.accepts()
    labels = {"metadata": {"labels": {"trusted": "yes"}}}
    await server.merge("/api/v1/namespaces/default", labels)
    await node.settle()
    assert node.table.accepts()


async def test_a_new_pod_waits_until_its_policies_are_written(server: LocalServer) -> None:
    await server.post(POLICIES, DENY)
    node = Node(server)
    new = AttachedPod("default", "new", {})
    async with asyncio.TaskGroup() as tasks:
        admitted = tasks.create_task(node.attached.admit(HERE, new))
        await server.settle()
        assert not admitted.done()
        await node.start()
    assert not node.table.accepts()
    node.attached.release(HERE)
    await node.settle()
    assert node.table.accepts()


async def test_a_new_pod_of_a_namespace_without_policies_waits_for_nothing(
    server: LocalServer,
) -> None:
    await server.post(POLICIES, DENY)
    node = Node(server)
    await node.start()
    other = node.attached.admit(HERE, AttachedPod("kube-system", "new", {}))
    await asyncio.wait_for(other, 1)


async def test_an_address_belongs_to_the_pod_that_got_it_last(server: LocalServer) -> None:
    """The API still shows the address of a pod that has given it back."""
    selected = {"podSelector": {"matchLabels": {"app": "guarded"}}}
    await server.post(POLICIES, {**DENY, "spec": selected})
    await pod(server, "old", HERE)
    node = Node(server)
    await node.start()
    assert node.table.accepts()
    new = AttachedPod("default", "new", {"app": "guarded"})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.attached.admit(HERE, new))
        await node.settle()
    assert not node.table.accepts()
    await server.merge(f"{PODS}/old", {"metadata": {"labels": {"app": "other"}}})
    await node.settle()
    assert not node.table.accepts()


async def test_a_failed_change_is_followed_by_a_new_table(server: LocalServer) -> None:
    await server.post(POLICIES, DENY)
    await pod(server, "a", HERE)
    node = Node(server)
    await node.start()
    node.table.failures = 2
    await server.merge(f"{POLICIES}/deny", {"spec": {"ingress": [{}]}})
    await node.settle()
    assert not node.table.accepts()
    await node.settle(2 * RETRY_SECONDS)
    assert node.table.accepts()
    assert node.table.rewrites == 2
    assert [each["reason"] for each in await events(server)] == [NOT_ENFORCED]


async def test_an_oversized_policy_gets_an_event(server: LocalServer) -> None:
    rules = [{"ports": [{"port": 1 + i}]} for i in range(501)]
    await server.post(POLICIES, {**DENY, "spec": {"podSelector": {}, "ingress": rules}})
    node = Node(server)
    await node.start()
    (event,) = await events(server)
    assert event["reason"] == "PartlyEnforced"
    assert "more than 500 rules" in event["message"]


async def test_a_node_that_enforces_no_policy_says_so_on_each(server: LocalServer) -> None:
    recorder = Recorder(server.client, server.clock, "kubelet", "node-1")
    watch = PolicyWatch(server.client, server.clock)
    reporting = report_unenforced(watch, PolicyEvents(recorder, "node-1"), "none: no addresses")
    for work in (reporting, watch.run(), recorder.run()):
        server.start(work)
    await server.post(POLICIES, DENY)
    await server.settle()
    (event,) = await events(server)
    assert event["involvedObject"]["kind"] == "NetworkPolicy"
    assert event["message"] == "Node node-1 does not enforce this policy: none: no addresses"


async def events(server: LocalServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get("/api/v1/namespaces/default/events"))["items"]
    return found
