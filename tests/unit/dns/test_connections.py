"""DNS over TCP, on a transport that the test reads."""

import asyncio
import struct
from typing import Any

import dns.message
import pytest

from kedge.dns import connections as module
from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.connections import DnsConnection, TcpConnections
from kedge.dns.message import DnsAnswer
from kedge.dns.query_budget import QueryBudget
from kedge.dns.resolver import ClusterResolver
from kedge.dns.response import UpstreamQuestion
from kedge.dns.source_filter import SourceFilter
from kedge.dns.upstream import Done
from kedge.dns.zone import ClusterZone
from kedge.testing.clock import FakeClock
from kedge.testing.dns import new_service


class HeldUpstream:
    """Keeps questions until the test answers them."""

    def __init__(self) -> None:
        self.waiting: list[Done] = []

    def ask(self, question: UpstreamQuestion, source: str, done: Done) -> None:
        self.waiting.append(done)


class WrittenTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, source: str = "127.0.0.1") -> None:
        super().__init__()
        self.source = source
        self.written = bytearray()
        self.reading = True
        self.closed = ""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.source, 1234) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = "aborted"

    def close(self) -> None:
        self.closed = "closed"

    def is_closing(self) -> bool:
        return bool(self.closed)

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def answers(self) -> list[dns.message.Message]:
        """Read everything that was written."""
        found, at = [], 0
        while at < len(self.written):
            (size,) = struct.unpack_from("!H", self.written, at)
            found.append(dns.message.from_wire(bytes(self.written[at + 2 : at + 2 + size])))
            at += 2 + size
        return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def upstream() -> HeldUpstream:
    return HeldUpstream()


@pytest.fixture
def connections(clock: FakeClock, upstream: HeldUpstream) -> TcpConnections:
    index = ClusterIndex()
    index.put_service(new_service("web", "10.96.1.1"))
    zone = ClusterZone(index, "cluster.local", bytes(4), 1)
    sources = SourceFilter([], list, clock)
    return TcpConnections(ClusterResolver(zone, upstream), sources, QueryBudget(clock), clock)


def connect(
    connections: TcpConnections, source: str = "127.0.0.1"
) -> tuple[DnsConnection, WrittenTransport]:
    made, transport = connections.connection(), WrittenTransport(source)
    made.connection_made(transport)
    return made, transport


def query(name: str = "web.default.svc.cluster.local", identity: int = 7) -> bytes:
    data = dns.message.make_query(name, "A", id=identity).to_wire()
    return struct.pack("!H", len(data)) + data


async def turns() -> None:
    for _ in range(20):
        await FakeClock().advance(0)


async def test_several_queries_of_one_connection(connections: TcpConnections) -> None:
    connection, transport = connect(connections)
    data = query(identity=1) + query(identity=2)
    for at in range(0, len(data), 5):
        connection.data_received(data[at : at + 5])
    assert [each.id for each in transport.answers()] == [1, 2]
    assert str(transport.answers()[0].answer[0][0]) == "10.96.1.1"


async def test_a_burst_is_handled_in_turns(connections: TcpConnections) -> None:
    connection, transport = connect(connections)
    connection.data_received(b"".join(query(identity=each) for each in range(100)))
    assert len(transport.answers()) == module.QUERIES_PER_TURN
    assert not transport.reading
    await turns()
    assert [each.id for each in transport.answers()] == list(range(100))
    assert transport.reading


async def test_answers_come_in_any_order(
    connections: TcpConnections, upstream: HeldUpstream
) -> None:
    connection, transport = connect(connections)
    connection.data_received(query("example.com", 1) + query(identity=2))
    assert [each.id for each in transport.answers()] == [2]
    upstream.waiting[0](DnsAnswer())
    assert [each.id for each in transport.answers()] == [2, 1]


async def test_pending_queries_are_limited(
    connections: TcpConnections, upstream: HeldUpstream
) -> None:
    connection, transport = connect(connections)
    connection.data_received(b"".join(query("example.com", each) for each in range(40)))
    await turns()
    assert len(upstream.waiting) == module.MOST_PENDING
    assert not transport.reading
    while upstream.waiting:
        upstream.waiting.pop(0)(DnsAnswer())
        await turns()
    assert sorted(each.id for each in transport.answers()) == list(range(40))
    assert transport.reading


async def test_a_client_that_does_not_read_is_not_read(connections: TcpConnections) -> None:
    connection, transport = connect(connections)
    connection.pause_writing()
    connection.data_received(query())
    assert not transport.written
    assert not transport.reading
    connection.resume_writing()
    assert len(transport.answers()) == 1
    assert transport.reading


@pytest.mark.parametrize(
    "data", [struct.pack("!H", 5000), b"\0\3abc", b"\0\x0c\0\7\x80\0\0\0\0\0\0\0\0\0"]
)
async def test_large_and_broken_queries_end_the_connection(
    connections: TcpConnections, data: bytes
) -> None:
    connection, transport = connect(connections)
    connection.data_received(data)
    assert transport.closed == "aborted"


async def test_connections_of_a_client_are_limited_and_the_oldest_idle_one_makes_room(
    connections: TcpConnections, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PER_SOURCE", 2)
    first, second = connect(connections), connect(connections)
    await clock.advance(1)
    first[0].data_received(query())
    third = connect(connections)
    assert [transport.closed for _, transport in (first, second, third)] == ["", "aborted", ""]
    assert connect(connections, "192.0.2.1")[1].closed == "aborted"
    for connection, _ in (first, second, third):
        connection.connection_lost(None)
    assert len(connections) == 0
    assert connect(connections)[1].closed == ""


async def test_a_few_clients_cannot_keep_others_out(
    connections: TcpConnections, clock: FakeClock
) -> None:
    attackers = [f"127.0.0.{number}" for number in range(2, 10)]
    taken = [connect(connections, each)[1] for each in attackers for _ in range(32)]
    assert len(connections) == module.MOST_CONNECTIONS
    await clock.advance(1)
    honest = [connect(connections, f"127.0.1.{number}") for number in range(100)]
    # The attackers come back at once, and the honest clients are idle for longer.
    await clock.advance(1)
    for each in attackers * 32:
        connect(connections, each)
    assert [transport.closed for _, transport in honest] == [""] * 100
    assert len(connections) == module.MOST_CONNECTIONS
    assert [transport.closed for transport in taken].count("aborted") >= 100


async def test_idle_connections_end(connections: TcpConnections, clock: FakeClock) -> None:
    connection, transport = connect(connections)
    _, silent = connect(connections)
    await clock.advance(9)
    connection.data_received(query())
    await clock.advance(1)
    connections.close_idle()
    assert (transport.closed, silent.closed) == ("", "aborted")
    connections.close()
    assert transport.closed == "aborted"


async def test_a_client_may_close_its_side_first(
    connections: TcpConnections, upstream: HeldUpstream
) -> None:
    connection, transport = connect(connections)
    assert not connection.eof_received()
    connection, transport = connect(connections)
    connection.data_received(query("example.com"))
    assert connection.eof_received()
    upstream.waiting[-1](DnsAnswer())
    assert len(transport.answers()) == 1
    assert transport.closed == "closed"


async def test_an_answer_for_a_client_that_is_gone(
    connections: TcpConnections, upstream: HeldUpstream
) -> None:
    connection, transport = connect(connections)
    connection.data_received(query("example.com"))
    connection.connection_lost(None)
    upstream.waiting[0](DnsAnswer())
    assert not transport.written
