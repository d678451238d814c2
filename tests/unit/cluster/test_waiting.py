import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from kedge.cli.objects.connection import ApiSession
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.cluster.objects import ObjectApi, ObjectEvent, ObjectRef, read
from kedge.cluster.waiting import until, wait_for
from kedge.testing.local_server import LocalServer

TEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n"
LONG = 60.0


def api_of(server: LocalServer) -> ObjectApi:
    nowhere = Login(context="", file=Path(), server="")
    return ObjectApi(ApiSession(nowhere, server.client, Discovery(server.client), "default"))


async def applied(api: ObjectApi) -> ObjectRef:
    [manifest] = read(TEXT)
    await api.apply(manifest, "", force=False)
    return await api.ref("cm/a", "", "")


async def test_a_state_that_is_there_is_found_at_once() -> None:
    async with LocalServer.running() as server:
        api = api_of(server)
        ref = await applied(api)
        last = await wait_for(api, ref, lambda obj: obj["data"] == {"x": "1"}, LONG)
        assert last.is_reached
        assert last.object is not None
        assert last.object["metadata"]["name"] == "a"


async def test_a_change_is_awaited() -> None:
    async with LocalServer.running() as server, asyncio.TaskGroup() as tasks:
        api = api_of(server)
        ref = await applied(api)
        waiting = tasks.create_task(wait_for(api, ref, lambda obj: "y" in obj["data"], LONG))
        gone = tasks.create_task(wait_for(api, ref, "deleted", LONG))
        await server.settle()
        await api.patch(ref, {"data": {"y": "2"}}, "")
        assert (await waiting).is_reached
        await api.delete(ref, None)
        assert (await gone).is_reached


async def test_the_last_state_is_told_when_time_is_up() -> None:
    async with LocalServer.running() as server:
        api = api_of(server)
        last = await wait_for(api, await applied(api), "Ready", 0.0)
        assert not last.is_reached
        assert last.object is not None


async def test_events_end_with_the_watch_or_with_the_time() -> None:
    async def one() -> AsyncGenerator[ObjectEvent, None]:
        yield ObjectEvent("ADDED", {})

    async def endless() -> AsyncGenerator[ObjectEvent, None]:
        yield ObjectEvent("ADDED", {})
        await asyncio.Event().wait()

    assert [each.type async for each in until(one(), None)] == ["ADDED"]
    assert [each.type async for each in until(endless(), 0.05)] == ["ADDED"]
