from types import SimpleNamespace

import pytest

from kedge.apiserver.several.endpoints import LOOK_SECONDS, ServerEndpoints, addresses, published
from kedge.apiserver.several.membership import PeerServer
from kedge.testing.local_server import LocalServer


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], ["10.0.0.1"]),
        (["10.0.0.2 6443", "10.0.0.0 6443"], ["10.0.0.0", "10.0.0.1", "10.0.0.2"]),
        (["10.0.0.1 6443"], ["10.0.0.1"]),
        (["", "nonsense 6443", "10.0.0.9 x", "10.0.0.9"], ["10.0.0.1"]),
    ],
)
def test_which_servers_one_slice_can_have(others: list[str], expected: list[str]) -> None:
    assert addresses("10.0.0.1", 6443, others) == (expected, 6443)


def test_servers_of_different_ports_and_families_choose_the_same() -> None:
    servers = ["10.0.0.1 6443", "10.0.0.1 7000", "10.0.0.2 7000", "fd00::1 6443"]
    chosen = []
    for own in servers:
        host, port = own.split()
        chosen.append(addresses(host, int(port), [each for each in servers if each != own]))
    assert chosen == [(["10.0.0.1", "10.0.0.2"], 7000)] * 4


async def test_the_port_of_a_server_that_is_gone_is_replaced(server: LocalServer) -> None:
    members = SimpleNamespace(peers=[])
    for port in (6443, 7000):
        own = ServerEndpoints(server.app.api, members, "10.0.0.1", port)  # type: ignore[arg-type]
        task = server.start(own.run())
        await server.settle()
        assert published(server.app.api) == (["10.0.0.1"], port)
        task.cancel()


async def test_servers_that_come_and_go_are_published(server: LocalServer) -> None:
    members = SimpleNamespace(peers=[])
    own = ServerEndpoints(server.app.api, members, "10.0.0.1", 6443)  # type: ignore[arg-type]
    server.start(own.run())
    await server.settle()
    assert published(server.app.api) == (["10.0.0.1"], 6443)
    members.peers = [PeerServer("b", "https://b", "10.0.0.2 6443", 1, 0.0)]
    await server.clock.advance(LOOK_SECONDS)
    assert published(server.app.api) == (["10.0.0.1", "10.0.0.2"], 6443)
    endpoints = await server.get("/api/v1/namespaces/default/endpoints/kubernetes")
    assert len(endpoints["subsets"][0]["addresses"]) == 2
    members.peers = []
    await server.clock.advance(LOOK_SECONDS)
    assert published(server.app.api) == (["10.0.0.1"], 6443)
