"""The server on loopback, asked by dnspython."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import pytest

from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.message import DnsAnswer
from kedge.dns.query_budget import BURST, QueryBudget
from kedge.dns.resolver import ClusterResolver
from kedge.dns.response import UpstreamQuestion
from kedge.dns.server import DnsServer, DnsSockets
from kedge.dns.source_filter import SourceFilter
from kedge.dns.upstream import Done
from kedge.dns.zone import ClusterZone
from kedge.testing.clock import FakeClock
from kedge.testing.dns import loopback_sockets, new_service, new_slice

MANY = "many.default.svc.cluster.local"


class EmptyUpstream:
    """Has no records."""

    def ask(self, question: UpstreamQuestion, source: str, done: Done) -> None:
        done(DnsAnswer())


class Running:
    """A server and its port."""

    def __init__(self, port: int, sources: SourceFilter, budget: QueryBudget) -> None:
        self.port = port
        self.budget = budget
        self.sources = sources

    async def ask(
        self, name: str, kind: str = "A", *, tcp: bool = False, **options: Any
    ) -> dns.message.Message:
        query = dns.message.make_query(name, kind, **options)
        send = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await send(query, "127.0.0.1", port=self.port, timeout=60)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    index = ClusterIndex()
    index.put_service(new_service("web", "10.96.1.1"))
    index.put_service(new_service("many"))
    index.put_slice(new_slice("many", *(f"10.244.0.{each}" for each in range(100))))
    clock = FakeClock()
    zone = ClusterZone(index, "cluster.local", bytes(4), 1)
    sources = SourceFilter([], list, clock)
    server = DnsServer(ClusterResolver(zone, EmptyUpstream()), sources, clock)
    sockets = loopback_sockets()
    await server.serve(sockets)
    yield Running(sockets.port, sources, server._budget)
    server.close()


@pytest.mark.parametrize("tcp", [False, True])
async def test_names_of_the_cluster_and_others(running: Running, tcp: bool) -> None:
    answer = await running.ask("web.default.svc.cluster.local", tcp=tcp)
    assert str(answer.answer[0][0]) == "10.96.1.1"
    answer = await running.ask("nope.default.svc.cluster.local", tcp=tcp)
    assert answer.rcode() == dns.rcode.NXDOMAIN
    answer = await running.ask("example.com", tcp=tcp)
    assert answer.rcode() == dns.rcode.NOERROR


async def test_long_answers_are_truncated_over_udp_only(running: Running) -> None:
    plain = await running.ask(MANY, use_edns=False)
    large = await running.ask(MANY, use_edns=0, payload=4096)
    assert plain.flags & large.flags & dns.flags.TC
    assert 20 < len(plain.answer[0]) < len(large.answer[0]) < 80
    whole = await running.ask(MANY, tcp=True)
    assert not whole.flags & dns.flags.TC
    assert len(whole.answer[0]) == 100


async def test_messages_that_are_not_queries_get_no_answer(running: Running) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", running.port))
        client.setblocking(False)
        query = dns.message.make_query("web.default.svc.cluster.local", "A")
        client.send(b"short")
        client.send(dns.message.make_response(query).to_wire())
        client.send(query.to_wire())
        loop = asyncio.get_running_loop()
        answer = dns.message.from_wire(await loop.sock_recv(client, 4096))
        assert query.is_response(answer)
        with pytest.raises(BlockingIOError):
            client.recv(4096)


async def test_strangers_get_no_answer(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.sources, "admits", lambda source: False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", running.port))
        client.setblocking(False)
        client.send(dns.message.make_query("web.default.svc.cluster.local", "A").to_wire())
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        with contextlib.suppress(ConnectionResetError):
            assert not await reader.read(1)
        writer.close()
        with pytest.raises(BlockingIOError):
            client.recv(4096)


async def test_a_burst_is_answered_completely(running: Running) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", running.port))
        client.setblocking(False)
        for number in range(100):
            query = dns.message.make_query("web.default.svc.cluster.local", "A", id=number)
            client.send(query.to_wire())
        loop = asyncio.get_running_loop()
        found = [await loop.sock_recv(client, 512) for _ in range(100)]
        assert [int.from_bytes(each[:2], "big") for each in found] == list(range(100))


def test_an_address_that_is_in_use() -> None:
    sockets = loopback_sockets()
    with pytest.raises(OSError, match="in use"):
        DnsSockets("127.0.0.1", sockets.port)
    sockets.close()


def test_both_sockets_or_neither() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            DnsSockets("127.0.0.1", port)
    DnsSockets("127.0.0.1", port).close()


@pytest.mark.parametrize("tcp", [False, True])
async def test_long_answers_count_as_several_queries(running: Running, tcp: bool) -> None:
    for name, left in (("web.default.svc.cluster.local", 1), (MANY, 2)):
        before = running.budget._buckets.get("127.0.0.1", (BURST, 0.0))[0]
        await running.ask(name, tcp=tcp)
        assert before - running.budget._buckets["127.0.0.1"][0] == left
