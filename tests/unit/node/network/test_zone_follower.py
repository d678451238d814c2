import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from kedge.api.builtin.service_networks import LOOPBACK_SERVICES, on_loopback
from kedge.dns.cluster_index import ServiceEntry
from kedge.node.network.zone_follower import ZoneFollower
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.testing.local_server import LocalServer

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
HEADLESS = {"metadata": {"name": "web"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}


def slice_of(address: str, name: str = "s") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
    }


@pytest.fixture
async def follower() -> AsyncIterator[tuple[LocalServer, ZoneFollower]]:
    async with LocalServer.running() as server, asyncio.TaskGroup() as tasks:
        sources = ReferencedObjects(server.client, server.clock)
        made = ZoneFollower(server.client, sources.services, server.clock)
        await server.post(SERVICES, HEADLESS)
        running = [tasks.create_task(each.run()) for each in (sources, made)]
        await made.synced.wait()
        yield server, made
        for each in running:
            each.cancel()


def addresses(follower: ZoneFollower) -> list[int]:
    entry = follower.index.service((b"web", b"default"))
    assert isinstance(entry, ServiceEntry)
    return sorted(each[-1] for each in entry.published.addresses)


async def test_objects_from_before_are_known_at_once(
    follower: tuple[LocalServer, ZoneFollower],
) -> None:
    _, made = follower
    assert made.index.service((b"kubernetes", b"default")) is not None
    assert made.index.has_namespace(b"kube-system")
    assert addresses(made) == []


async def test_changes_are_followed(follower: tuple[LocalServer, ZoneFollower]) -> None:
    server, made = follower
    await server.post(SLICES, slice_of("10.244.0.5"))
    await server.post(SLICES, slice_of("10.244.0.6", "other"))
    await server.settle()
    assert addresses(made) == [5, 6]
    await server.merge(f"{SLICES}/s", {"endpoints": [{"addresses": ["10.244.0.7"]}]})
    await server.settle()
    assert addresses(made) == [6, 7]
    assert (await server.call("DELETE", f"{SLICES}/other")).status == 200
    await server.settle()
    assert addresses(made) == [7]
    assert (await server.call("DELETE", f"{SERVICES}/web")).status == 200
    await server.settle()
    assert made.index.service((b"web", b"default")) is None


async def test_namespaces_are_followed(follower: tuple[LocalServer, ZoneFollower]) -> None:
    server, made = follower
    await server.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
    await server.settle()
    assert made.index.has_namespace(b"new")


async def test_cluster_ips_are_published_as_pods_find_them() -> None:
    async with LocalServer.running() as server, asyncio.TaskGroup() as tasks:
        sources = ReferencedObjects(server.client, server.clock)
        seen = partial(on_loopback, network=LOOPBACK_SERVICES[0])
        made = ZoneFollower(server.client, sources.services, server.clock, seen)
        running = [tasks.create_task(each.run()) for each in (sources, made)]
        await made.synced.wait()
        entry = made.index.service((b"kubernetes", b"default"))
        assert isinstance(entry, ServiceEntry)
        assert entry.spec is not None
        assert entry.spec.addresses == (bytes((127, 96, 0, 1)),)
        for each in running:
            each.cancel()
