"""The DNS server of a node, asked by dnspython."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

import dns.asyncquery
import dns.message
import dns.rcode
import pytest

from kedge.api.core_v1.service_types import Service
from kedge.client.informer import Cache
from kedge.dns.server import DnsSockets
from kedge.node.network.cluster_dns import (
    RETRY_SECONDS,
    SYNC_SECONDS,
    ClusterDns,
    DnsAddress,
    release_sockets,
    service_address,
)
from kedge.node.network.zone_follower import Services
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.testing.dns import loopback_sockets, new_service
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as made:
        yield made


KUBERNETES = "kubernetes.default.svc.cluster.local"


def free_port() -> int:
    sockets = loopback_sockets()
    sockets.close()
    return sockets.port


async def ask(name: str, port: int) -> dns.message.Message:
    query = dns.message.make_query(name, "A")
    return await dns.asyncquery.udp(query, "127.0.0.1", port=port, timeout=60)


class Keeper:
    """Keeps sockets as a supervisor does."""

    def __init__(self, *, is_old: bool = False) -> None:
        self._is_old = is_old
        self.kept: list[int] = []

    async def keep_sockets(self, name: str, descriptors: Sequence[int]) -> None:
        if self._is_old:
            raise RuntimeFailure("the supervisor does not know how to keep_sockets")
        self.close()
        self.kept = [os.dup(each) for each in descriptors]

    async def kept_sockets(self, name: str) -> list[int]:
        if self._is_old:
            raise RuntimeFailure("the supervisor does not know how to kept_sockets")
        return [os.dup(each) for each in self.kept]

    def close(self) -> None:
        for each in self.kept:
            os.close(each)
        self.kept = []


@asynccontextmanager
async def running(
    server: LocalServer, services: Services, port: int, keeper: Keeper | None = None
) -> AsyncIterator[ClusterDns]:
    address = DnsAddress(IPv4Address("127.0.0.1"), port=port)
    own = keeper or Keeper(is_old=True)
    made = ClusterDns(server.client, services, server.clock, [address], lambda: [], own)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.run())
        yield made
        task.cancel()


async def test_names_of_the_cluster_are_served(server: LocalServer) -> None:
    sources = ReferencedObjects(server.client, server.clock)
    port = free_port()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(sources.run())
        async with running(server, sources.services, port) as made:
            await made.serving.wait()
            answer = await ask(KUBERNETES, port)
            assert str(answer.answer[0][0]) == "10.96.0.1"
            assert (await ask("example.com", port)).rcode() == dns.rcode.SERVFAIL
        following.cancel()
    loopback = socket.socket()
    loopback.bind(("127.0.0.1", port))
    loopback.close()


async def never() -> Cache[Service]:
    await asyncio.Event().wait()
    return Cache()


async def test_queries_wait_for_the_api_but_not_for_ever(server: LocalServer) -> None:
    port = free_port()
    async with running(server, never, port) as made:
        await server.settle()
        asked = asyncio.ensure_future(ask(KUBERNETES, port))
        await server.settle()
        assert not made.serving.is_set()
        await server.clock.advance(SYNC_SECONDS)
        assert (await asked).rcode() == dns.rcode.SERVFAIL


async def test_an_address_that_is_in_use_is_tried_again(server: LocalServer) -> None:
    taken = loopback_sockets()
    async with running(server, never, taken.port) as made:
        await server.settle()
        taken.close()
        await server.clock.advance(RETRY_SECONDS)
        await server.clock.advance(SYNC_SECONDS)
        assert made.serving.is_set()


async def test_the_address_is_that_of_the_service() -> None:
    services: Cache[Service] = Cache()

    async def found() -> Cache[Service]:
        return services

    assert await service_address(found) == ""
    services.put(new_service("kube-dns", "10.96.0.10", "kube-system"))
    assert await service_address(found) == "10.96.0.10"
    services.put(new_service("kube-dns", "None", "kube-system"))
    assert await service_address(found) == ""


async def test_queries_wait_for_the_next_agent(server: LocalServer) -> None:
    sources = ReferencedObjects(server.client, server.clock)
    port, keeper = free_port(), Keeper()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(sources.run())
        async with running(server, sources.services, port, keeper) as made:
            await made.serving.wait()
            assert len(keeper.kept) == 2
        asked = tasks.create_task(ask(KUBERNETES, port))
        await server.settle()
        assert not asked.done()
        async with running(server, sources.services, port, keeper):
            assert (await asked).answer
        following.cancel()
    await release_sockets(keeper)
    loopback_free = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    loopback_free.bind(("127.0.0.1", port))
    loopback_free.close()


async def test_sockets_of_another_address_are_closed(server: LocalServer) -> None:
    keeper, other = Keeper(), loopback_sockets()
    await keeper.keep_sockets("dns", [other.datagram.fileno(), other.stream.fileno()])
    other.close()
    async with running(server, never, free_port(), keeper) as made:
        await server.settle()
        await server.clock.advance(SYNC_SECONDS)
        await made.serving.wait()
    keeper.close()
    loopback_sockets_again = DnsSockets("127.0.0.1", other.port)
    loopback_sockets_again.close()
