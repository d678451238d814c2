"""Where a node's sockets are made."""

import asyncio
import socket

import pytest

from kedge.node.network.network_place import MACHINE, UserNetwork


class FakeSockets:
    """Makes sockets here, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        self.asked.append((family, kind & 0xF, protocol))
        return socket.socket(family, kind, protocol)

    def switch(self, link: str, name: str, value: str) -> None:
        self.asked.append((link, name, value))


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


@pytest.fixture
def sockets() -> FakeSockets:
    return FakeSockets()


async def test_connections_begin_at_sockets_of_the_namespace(sockets: FakeSockets) -> None:
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for place in (MACHINE, UserNetwork(sockets)):
        reader, writer = await place.connect("127.0.0.1", port)
        assert await reader.read() == b"hello"
        writer.close()
    assert sockets.asked == [(socket.AF_INET, socket.SOCK_STREAM, 0)]
    server.close()


async def test_a_refused_connection_leaves_no_socket_open(sockets: FakeSockets) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await UserNetwork(sockets).connect("127.0.0.1", unused.getsockname()[1])


def test_settings_of_links_are_changed_in_the_namespace(sockets: FakeSockets) -> None:
    UserNetwork(sockets).switch("kbr0", "forwarding", "1")
    assert sockets.asked == [("kbr0", "forwarding", "1")]
