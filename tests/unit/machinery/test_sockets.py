"""Connections at sockets that somebody else made."""

import asyncio
import socket

import pytest

from kedge.machinery.sockets import connected_socket


async def test_a_made_socket_is_connected() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    with await connected_socket(socket.socket, *address) as made:
        assert made.getpeername() == address
    server.close()


async def test_a_maker_that_fails_is_reported() -> None:
    def refuse(family: int, kind: int, protocol: int) -> socket.socket:
        raise ConnectionRefusedError("no supervisor")

    with pytest.raises(ConnectionRefusedError, match="no supervisor"):
        await connected_socket(refuse, "127.0.0.1", 1)
