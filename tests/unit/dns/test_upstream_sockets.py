"""Real sockets on loopback."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from kedge.dns.upstream_servers import SocketAddress
from kedge.dns.upstream_sockets import DatagramQuery, QuerySocket, StreamQuery

MESSAGE = b"m" * 20


class Outcome:
    """Keeps what a socket reported."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.refusals = 0
        self.happened = asyncio.Event()

    def received(self, source: QuerySocket, message: bytes) -> None:
        self.messages.append(message)
        self.happened.set()

    def refused(self, source: QuerySocket) -> None:
        self.refusals += 1
        source.close()
        self.happened.set()


@pytest.fixture
def datagrams() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


def unused(kind: int) -> SocketAddress:
    with socket.socket(socket.AF_INET, kind) as made:
        made.bind(("127.0.0.1", 0))
        address: SocketAddress = made.getsockname()
        return address


async def test_a_query_over_udp(datagrams: socket.socket) -> None:
    outcome = Outcome()
    query = DatagramQuery(datagrams.getsockname(), MESSAGE, outcome)
    sent, source = datagrams.recvfrom(100)
    assert sent == MESSAGE
    # A stranger's datagram does not arrive, only the server's.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"forged", source)
    datagrams.sendto(b"answer", source)
    await outcome.happened.wait()
    assert outcome.messages == [b"answer"]
    query.close()
    query.close()


async def test_each_query_has_a_port_of_its_own(datagrams: socket.socket) -> None:
    queries = [DatagramQuery(datagrams.getsockname(), MESSAGE, Outcome()) for _ in range(5)]
    assert len({datagrams.recvfrom(100)[1] for _ in range(5)}) == 5
    for each in queries:
        each.close()


async def test_nothing_listens_at_a_udp_port() -> None:
    outcome = Outcome()
    query = DatagramQuery(unused(socket.SOCK_DGRAM), MESSAGE, outcome)
    await outcome.happened.wait()
    assert outcome.refusals == 1
    query.close()


async def serve(answer: bytes, pieces: int = 1) -> asyncio.Server:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2), "big")
        assert await reader.readexactly(size) == MESSAGE
        step = len(answer) // pieces + 1
        for at in range(0, len(answer), step):
            writer.write(answer[at : at + step])
            await writer.drain()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_query_over_tcp(pieces: int) -> None:
    answer = b"a" * 3000
    async with await serve(len(answer).to_bytes(2, "big") + answer, pieces) as server:
        outcome = Outcome()
        query = StreamQuery(server.sockets[0].getsockname(), MESSAGE, outcome)
        await outcome.happened.wait()
        assert (outcome.messages, outcome.refusals) == ([answer], 0)
        query.close()


@pytest.mark.parametrize("answer", [b"", b"\0", b"\1\0short"])
async def test_a_connection_that_ends_early(answer: bytes) -> None:
    async with await serve(answer) as server:
        outcome = Outcome()
        StreamQuery(server.sockets[0].getsockname(), MESSAGE, outcome)
        await outcome.happened.wait()
        assert (outcome.messages, outcome.refusals) == ([], 1)


async def test_nothing_listens_at_a_tcp_port() -> None:
    outcome = Outcome()
    StreamQuery(unused(socket.SOCK_STREAM), MESSAGE, outcome)
    await outcome.happened.wait()
    assert outcome.refusals == 1
