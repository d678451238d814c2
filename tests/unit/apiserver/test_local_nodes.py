"""Nodes beside the server: their certificates, and the endpoints of a server on loopback."""

from typing import Any

import pytest

from kedge.apiserver.local_nodes import RETRY_SECONDS, LocalNodes, address_of
from kedge.testing.local_server import LocalServer

NODES = "/api/v1/nodes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


def node(name: str, address: str) -> dict[str, Any]:
    addresses = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": name},
    ]
    return {"metadata": {"name": name}, "status": {"addresses": addresses}}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.244.0.1", "10.244.0.1"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("0.0.0.0", ""),
        ("box", ""),
        ("192.0.2.7", ""),
        ("10.96.0.1", ""),
    ],
)
def test_only_addresses_in_the_network_of_pods_count(address: str, expected: str) -> None:
    assert address_of(node("n", address)) == expected
    assert address_of({}) == ""


class Listeners:
    """Opens listeners, except at addresses that the machine lacks."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.missing: set[str] = set()
        self.certified: list[tuple[str, str]] = []

    async def certify(self, name: str, address: str) -> None:
        self.certified.append((name, address))

    def nodes(self, server: LocalServer, *names: str) -> LocalNodes:
        api = server.app.api
        return LocalNodes(api, names, 6443, certify=self.certify, listen=self.listen)

    async def listen(self, address: str) -> None:
        if address in self.missing:
            raise OSError(99, "Cannot assign requested address")
        self.open.append(address)


async def published(server: LocalServer) -> tuple[list[str], list[str]]:
    endpoints, slice_ = await server.get(ENDPOINTS), await server.get(SLICE)
    [subset] = endpoints["subsets"]
    assert (
        subset["ports"] == slice_["ports"] == [{"name": "https", "port": 6443, "protocol": "TCP"}]
    )
    return (
        [each["ip"] for each in subset["addresses"]],
        [address for each in slice_["endpoints"] for address in each["addresses"]],
    )


async def test_nodes_beside_the_server_lend_it_their_addresses(server: LocalServer) -> None:
    listeners = Listeners()
    server.start(listeners.nodes(server, "node-1", "node-2").run())
    await server.settle()
    assert (await server.call("GET", SLICE)).status == 404
    await server.post(NODES, node("node-1", "10.244.0.1"))
    await server.post(NODES, node("elsewhere", "192.0.2.1"))
    await server.settle()
    assert await published(server) == (["10.244.0.1"], ["10.244.0.1"])
    await server.post(NODES, node("node-2", "10.244.1.1"))
    await server.settle()
    both = ["10.244.0.1", "10.244.1.1"]
    assert await published(server) == (both, both)
    assert listeners.open == both
    assert listeners.certified == [("node-1", "10.244.0.1"), ("node-2", "10.244.1.1")]


@pytest.mark.parametrize("is_known_before", [False, True])
async def test_a_node_that_is_added_later_is_one_of_this_machine_if_it_has_a_directory(
    server: LocalServer, is_known_before: bool
) -> None:
    listeners = Listeners()
    nodes = LocalNodes(
        server.app.api,
        ["node-1"],
        6443,
        certify=listeners.certify,
        listen=listeners.listen,
        is_local=lambda name: name == "node-2",
    )
    if not is_known_before:
        server.start(nodes.run())
        await server.settle()
    await server.post(NODES, node("node-2", "10.244.1.1"))
    await server.post(NODES, node("elsewhere", "10.244.2.1"))
    if is_known_before:
        server.start(nodes.run())
    await server.settle()
    assert await published(server) == (["10.244.1.1"], ["10.244.1.1"])
    assert listeners.certified == [("node-2", "10.244.1.1")]


async def test_an_address_that_does_not_exist_yet_is_tried_again(server: LocalServer) -> None:
    listeners = Listeners()
    listeners.missing.add("10.244.0.1")
    server.start(listeners.nodes(server, "node-1").run())
    await server.post(NODES, node("node-1", "10.244.0.1"))
    await server.settle()
    assert (await server.call("GET", SLICE)).status == 404
    listeners.missing.clear()
    await server.clock.advance(RETRY_SECONDS + 1)
    await server.settle()
    assert await published(server) == (["10.244.0.1"], ["10.244.0.1"])


def ready_node(name: str, status: str = "True") -> dict[str, Any]:
    made = node(name, "127.0.0.1")
    made["status"]["conditions"] = [{"type": "Ready", "status": status}]
    return made


async def test_waiting_ends_when_every_node_has_reported_that_it_is_ready(
    server: LocalServer,
) -> None:
    await server.post(NODES, ready_node("one"))
    nodes = Listeners().nodes(server, "one", "two")
    server.start(nodes.run())
    await server.settle()
    waiting = server.start(nodes.wait_until_ready(60.0))
    await server.post(NODES, ready_node("two", "False"))
    await server.post(NODES, ready_node("elsewhere"))
    await server.settle()
    await server.merge(f"{NODES}/two/status", {"status": ready_node("two")["status"]})
    await server.settle()
    # The first report of node one came before the server followed it.
    assert not waiting.done()
    await server.merge(f"{NODES}/one/status", {"status": {"phase": "Running"}})
    await server.settle()
    assert waiting.done()


async def test_waiting_for_nodes_that_do_not_come_ends(server: LocalServer) -> None:
    waiting = server.start(Listeners().nodes(server, "one").wait_until_ready(2.0))
    await server.settle()
    assert not waiting.done()
    await server.clock.advance(2.0)
    await server.settle()
    assert waiting.done()
