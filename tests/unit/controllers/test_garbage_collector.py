import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.client.discovery import Discovery
from kedge.controllers.garbage_collector import GarbageCollector, GraphMonitor
from kedge.machinery.turns import next_turn
from kedge.testing.local_server import LocalServer

API = "/api/v1/namespaces"
MAPS = f"{API}/default/configmaps"


@asynccontextmanager
async def collected() -> AsyncIterator[LocalServer]:
    """A server whose garbage is collected."""
    async with LocalServer.running() as server:
        client = server.client
        server.start(GarbageCollector(client, Discovery(client), server.clock).run())
        await server.post(API, {"metadata": {"name": "other"}})
        await server.settle()
        yield server


def owned_by(owner: dict[str, Any], kind: str = "ConfigMap") -> list[dict[str, Any]]:
    meta = owner["metadata"]
    return [{"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}]


async def made(server: LocalServer, url: str, name: str, **meta: Any) -> dict[str, Any]:
    obj: dict[str, Any] = await server.post(url, {"metadata": {"name": name} | meta})
    return obj


async def is_there(server: LocalServer, url: str) -> bool:
    for _ in range(5):
        await server.clock.advance(1)
    return (await server.call("GET", url)).status == 200


async def complaints(server: LocalServer) -> list[tuple[str, str]]:
    events = (await server.get("/api/v1/events"))["items"]
    about = [each for each in events if each["reason"] == "OwnerRefInvalidNamespace"]
    return [(each["involvedObject"]["name"], each["message"]) for each in about]


async def test_a_dependent_follows_its_owner_and_nobody_complains() -> None:
    async with collected() as server:
        owner = await made(server, MAPS, "owner")
        await made(server, MAPS, "child", ownerReferences=owned_by(owner))
        assert await is_there(server, f"{MAPS}/child")
        await server.delete(f"{MAPS}/owner")
        assert not await is_there(server, f"{MAPS}/child")
        assert await complaints(server) == []


async def test_an_owner_in_another_namespace_owns_nothing_and_people_are_told() -> None:
    async with collected() as server:
        owner = await made(server, f"{API}/other/configmaps", "owner")
        await made(server, MAPS, "child", ownerReferences=owned_by(owner))
        assert not await is_there(server, f"{MAPS}/child")
        text = (
            f"ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: "
            f'{owner["metadata"]["uid"]}] does not exist in namespace "default"'
        )
        assert await complaints(server) == [("child", text)]


async def test_what_lives_in_no_namespace_stays_though_its_owner_lives_in_one() -> None:
    async with collected() as server:
        owner = await made(server, MAPS, "owner")
        nodes = "/api/v1/nodes"
        await made(server, nodes, "child", ownerReferences=owned_by(owner))
        assert await is_there(server, f"{nodes}/child")
        text = (
            f"ownerRef [v1/ConfigMap, namespace: , name: owner, uid: "
            f'{owner["metadata"]["uid"]}] does not exist in namespace ""'
        )
        assert ("child", text) in await complaints(server)
        await server.delete(f"{MAPS}/owner")
        assert await is_there(server, f"{nodes}/child")


@pytest.mark.parametrize("name", ["ghost", "no name, at=all"])
async def test_an_owner_that_was_never_there_costs_its_dependents_their_lives(name: str) -> None:
    async with collected() as server:
        missing = {"metadata": {"name": name, "uid": "f00"}}
        await made(server, MAPS, "child", ownerReferences=owned_by(missing))
        assert not await is_there(server, f"{MAPS}/child")
        assert await complaints(server) == []


async def test_a_monitor_that_is_stopped_is_freed_at_once() -> None:
    async def watch(receiver: GraphMonitor) -> None:
        await asyncio.Event().wait()

    monitor = GraphMonitor(cast(GarbageCollector, None), RESOURCE)
    kept = weakref.ref(monitor)
    gc.disable()
    try:
        async with asyncio.TaskGroup() as tasks:
            monitor.task = tasks.create_task(watch(monitor))
            await next_turn()
            monitor.stop()
        del monitor
        assert kept() is None
    finally:
        gc.enable()
