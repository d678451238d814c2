import os
import socket
from collections.abc import Iterator

import pytest

from kedge.supervisor import wire


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


def send(connection: socket.socket, message: wire.Document, descriptors: list[int]) -> None:
    content, sent = wire.packet(message, descriptors)
    wire.post(connection, content, sent)
    wire.let_go(content, sent)


@pytest.mark.parametrize("size", [1, wire.LARGE, 3_000_000])
def test_messages_of_any_size_arrive_with_their_descriptors(
    pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    read, write = os.pipe()
    message = {"id": 7, "text": "ä" * size}
    send(pair[0], message, [write])
    os.close(write)
    received, descriptors = wire.take(pair[1])
    assert received == message
    os.write(descriptors[0], b"through")
    assert os.read(read, 100) == b"through"
    for descriptor in (read, *descriptors):
        os.close(descriptor)


def test_messages_keep_their_bounds_and_the_end_is_seen(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    for number in range(3):
        send(pair[0], {"number": number}, [])
    pair[0].close()
    assert [wire.take(pair[1])[0]["number"] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(wire.PeerClosed):
        wire.take(pair[1])
