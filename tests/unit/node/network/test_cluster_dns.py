"""The DNS server of a node, asked by dnspython."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

import dns.asyncquery
import dns.message
import dns.rcode
import pytest

from kedge.api.core_v1.service_types import Service
from kedge.client.informer import Cache
from kedge.node.network.cluster_dns import (
    RETRY_SECONDS,
    SYNC_SECONDS,
    ClusterDns,
    DnsAddress,
    service_address,
)
from kedge.node.network.zone_follower import Services
from kedge.node.pod.referenced_objects import ReferencedObjects
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
    return await dns.asyncquery.udp(query, "127.0.0.1", port=port, timeout=5)


@asynccontextmanager
async def running(server: LocalServer, services: Services, port: int) -> AsyncIterator[ClusterDns]:
    address = DnsAddress(IPv4Address("127.0.0.1"), port=port)
    made = ClusterDns(server.client, services, server.clock, [address], lambda: [])
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
