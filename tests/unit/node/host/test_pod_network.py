"""A node and the server agree on a pod network that no other node has."""

from collections.abc import AsyncIterator, Collection
from ipaddress import IPv4Network
from typing import Any

import pytest

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import Node, NodeSpec
from kedge.api.model import ObjectMeta
from kedge.apiserver import joining
from kedge.machinery.errors import StatusError
from kedge.node.host.pod_network import PodNetworkClaim
from kedge.node.network.addresses import free_network
from kedge.testing.local_server import LocalServer

NODES = "/api/v1/nodes"


class FakeBridge:
    """Reserves the first network that is free on its machine."""

    def __init__(self, *taken: str, network: str = "10.244.0.0/24", has_pods: bool = False) -> None:
        self.network = IPv4Network(network)
        self.exists = has_pods
        self._has_pods = has_pods
        self._taken = [IPv4Network(each) for each in taken]

    def prefer(self, network: IPv4Network) -> None:
        if not self.exists:
            self.network = network

    def reserve(self, avoided: Collection[IPv4Network] = ()) -> None:
        unusable = [*self._taken, *avoided]
        if not self.exists and self.network in unusable:
            self.network = free_network(unusable)
        self.exists = True

    def release(self) -> bool:
        self.exists = self.exists and self._has_pods
        return not self.exists


def alice(bridge: FakeBridge) -> Node:
    cidr = str(bridge.network)
    labels = {"zone": "a"}
    return Node(
        metadata=ObjectMeta(name="alice", labels=labels),
        spec=NodeSpec(podCIDR=cidr, podCIDRs=[cidr]),
    )


def other(name: str, cidr: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podCIDR": cidr} if cidr else {}}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        await joining.ensure(running.app.api, "https://192.0.2.7:6443", b"authority")
        yield running


async def claim(server: LocalServer, bridge: FakeBridge) -> Node:
    client = server.client_of_node("alice")
    return await PodNetworkClaim(client, server.clock, bridge).claim(lambda: alice(bridge))


async def test_the_first_node_gets_the_first_network(server: LocalServer) -> None:
    bridge = FakeBridge()
    made = await claim(server, bridge)
    assert (made.spec.podCIDR, made.metadata.labels) == ("10.244.0.0/24", {"zone": "a"})
    assert not made.status.addresses
    assert bridge.exists


async def test_networks_of_the_cluster_and_of_the_machine_are_avoided(
    server: LocalServer,
) -> None:
    for name, cidr in (
        ("a", "10.244.0.0/24"),
        ("b", "10.244.2.0/24"),
        ("c", ""),
        ("d", "fd00::/64"),
    ):
        await server.post(NODES, other(name, cidr))
    bridge = FakeBridge("10.244.1.0/24")
    assert (await claim(server, bridge)).spec.podCIDR == "10.244.3.0/24"
    assert str(bridge.network) == "10.244.3.0/24"


async def test_a_node_keeps_its_network(server: LocalServer) -> None:
    await server.post(NODES, other("alice", "10.244.7.0/24"))
    bridge = FakeBridge()
    assert (await claim(server, bridge)).spec.podCIDR == "10.244.7.0/24"
    assert str(bridge.network) == "10.244.7.0/24"


async def test_a_node_that_an_administrator_made_gets_a_network(server: LocalServer) -> None:
    await server.post(NODES, other("alice", ""))
    assert (await claim(server, FakeBridge())).spec.podCIDR == "10.244.0.0/24"


async def test_a_network_that_the_machine_lost_is_reported(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    await server.post(NODES, other("alice", "10.244.7.0/24"))
    bridge = FakeBridge("10.244.7.0/24")
    await claim(server, bridge)
    assert str(bridge.network) == "10.244.0.0/24"
    assert "another cluster of this machine uses network=10.244.7.0/24" in caplog.text


async def test_a_bridge_with_pods_is_never_removed(server: LocalServer) -> None:
    await server.post(NODES, other("a", "10.244.0.0/24"))
    bridge = FakeBridge(has_pods=True)

    async def claimed() -> None:
        await claim(server, bridge)

    claiming = server.start(claimed())
    await server.clock.advance(5)
    assert not claiming.done()
    assert bridge.exists
    await server.delete(f"{NODES}/a")
    await server.clock.advance(1)
    assert claiming.done()


async def test_a_server_that_fails_is_asked_again(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client_of_node("alice")
    answers = iter([StatusError(503, "ServiceUnavailable", "later")])
    get = client.get

    async def failing(*arguments: Any) -> Any:
        for error in answers:
            raise error
        return await get(*arguments)

    monkeypatch.setattr(client, "get", failing)
    bridge = FakeBridge()

    async def claimed() -> None:
        await PodNetworkClaim(client, server.clock, bridge).claim(lambda: alice(bridge))

    claiming = server.start(claimed())
    await server.settle()
    assert not claiming.done()
    await server.clock.advance(1)
    assert claiming.done()
    assert (await server.client.get(RESOURCE, "alice")).spec.podCIDR == "10.244.0.0/24"
