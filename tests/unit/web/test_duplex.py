import asyncio
import socket

import pytest

from kedge.web import duplex

CLOSED = 7
"""TCP_CLOSE: the connection was reset."""


def state(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


async def test_a_peer_that_does_not_read_notices_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex, "CLOSE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = await duplex.connect(*server.getsockname())
        peer, _ = server.accept()
    with peer:
        # More than the kernel holds for both: the end would wait behind it for minutes.
        connected.write(bytes(32 << 20))
        connected.close()
        async with asyncio.timeout(10):
            while state(peer) != CLOSED:
                await duplex.turn()


async def test_a_peer_that_reads_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex, "CLOSE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = await duplex.connect(*server.getsockname())
        peer, _ = server.accept()
    with peer:
        connected.write(b"all of it")
        connected.close()
        await duplex.turn()
        await duplex.turn()
        peer.settimeout(10)
        assert await asyncio.to_thread(peer.recv, 100) == b"all of it"
        assert await asyncio.to_thread(peer.recv, 100) == b""
