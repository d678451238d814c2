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
        (["10.0.0.2 7000", "", "fd00::1 6443"], ["10.0.0.1"]),
    ],
)
def test_which_servers_one_slice_can_have(others: list[str], expected: list[str]) -> None:
    assert addresses("10.0.0.1", 6443, others) == expected


async def test_servers_that_come_and_go_are_published(server: LocalServer) -> None:
    members = SimpleNamespace(peers=[])
    own = ServerEndpoints(server.app.api, members, "10.0.0.1", 6443)  # type: ignore[arg-type]
    server.start(own.run())
    await server.settle()
    assert published(server.app.api) == ["10.0.0.1"]
    members.peers = [PeerServer("b", "https://b", "10.0.0.2 6443", 1, 0.0)]
    await server.clock.advance(LOOK_SECONDS)
    assert published(server.app.api) == ["10.0.0.1", "10.0.0.2"]
    endpoints = await server.get("/api/v1/namespaces/default/endpoints/kubernetes")
    assert len(endpoints["subsets"][0]["addresses"]) == 2
    members.peers = []
    await server.clock.advance(LOOK_SECONDS)
    assert published(server.app.api) == ["10.0.0.1"]
