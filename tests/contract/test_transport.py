"""What every transport promises, tried on a real server; one suite, run on each implementation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kedge.api.core_v1 import config_map, namespace
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.model import ObjectMeta
from kedge.apiserver.server import ApiServer
from kedge.client.client import APPLY_PATCH, Client, DeletionOptions, DeletionPreconditions
from kedge.client.discovery import Discovery
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable
from kedge.client.view import outlines
from kedge.machinery.errors import StatusError
from kedge.testing.server import http_client, local_client, memory_server

CONFIG_MAPS = config_map.RESOURCE
Connect = Callable[[ApiServer], Client]


@pytest.fixture(params=[local_client, http_client], ids=["local", "http"])
def connect(request: pytest.FixtureRequest) -> Connect:
    chosen: Connect = request.param
    return chosen


@asynccontextmanager
async def connected(connect: Connect, state: Path) -> AsyncIterator[Client]:
    async with memory_server(state) as running:
        client = connect(running)
        try:
            async with asyncio.timeout(20):
                yield client
        finally:
            await client.close()


def settings(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


async def test_an_object_lives_from_create_to_delete(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        made = await client.create(CONFIG_MAPS, settings("a", k="1"))
        assert made.metadata.uid
        patched = await client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, "default")
        assert patched.data == {"k": "2"}
        assert await client.get(CONFIG_MAPS, "a", "default") == patched
        with pytest.raises(StatusError, match="object has been modified") as conflict:
            await client.update(CONFIG_MAPS, made)
        assert conflict.value.reason == "Conflict"
        await client.delete(CONFIG_MAPS, "a", "default")
        with pytest.raises(StatusError, match='configmaps "a" not found'):
            await client.get(CONFIG_MAPS, "a", "default")


async def test_lists_come_selected_and_in_pages(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        for name in ("a", "b", "c"):
            await client.create(CONFIG_MAPS, settings(name))
        first = await client.list(CONFIG_MAPS, "default", limit=2)
        rest = await client.list(CONFIG_MAPS, "default", limit=2, continue_=first.continue_)
        names = [obj.metadata.name for obj in (*first.items, *rest.items)]
        assert names == ["a", "b", "c"]
        one = await client.list(CONFIG_MAPS, fields="metadata.name=b")
        assert [obj.metadata.name for obj in one.items] == ["b"]


async def test_a_watch_tells_of_changes_while_they_happen(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        start = (await client.list(CONFIG_MAPS, "default")).version
        async with client.watch(CONFIG_MAPS, "default", version=start) as events:
            await client.create(CONFIG_MAPS, settings("a", k="1"))
            added = await anext(events)
            await client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, "default")
            changed = await anext(events)
            await client.delete(CONFIG_MAPS, "a", "default")
            deleted = await anext(events)
        assert [added.type, changed.type, deleted.type] == ["ADDED", "MODIFIED", "DELETED"]
        assert changed.object.data == {"k": "2"}
        assert int(added.version) < int(changed.version) < int(deleted.version)


async def test_many_watches_and_writes_go_on_at_the_same_time(
    connect: Connect, tmp_path: Path
) -> None:
    async def names(client: Client, start: str) -> list[str]:
        async with client.watch_as(outlines(CONFIG_MAPS), "default", version=start) as events:
            return [(await anext(events)).object.metadata.name for _ in range(20)]

    async with connected(connect, tmp_path) as client:
        start = (await client.list(CONFIG_MAPS, "default")).version
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(names(client, start)) for _ in range(12)]
            for i in range(20):
                tasks.create_task(client.create(CONFIG_MAPS, settings(f"n{i}")))
        seen = [watch.result() for watch in watches]
        assert sorted(seen[0]) == sorted(f"n{i}" for i in range(20))
        assert all(each == seen[0] for each in seen)


async def test_more_than_fits_into_one_piece_arrives_whole(
    connect: Connect, tmp_path: Path
) -> None:
    async with connected(connect, tmp_path) as client:
        for i in range(5):
            await client.create(CONFIG_MAPS, settings(f"big{i}", k="x" * 500_000))
        listing = await client.list(CONFIG_MAPS, "default")
        assert [len(obj.data["k"]) for obj in listing.items] == [500_000] * 5
        async with client.watch(CONFIG_MAPS, version="0") as events:
            sizes = [len((await anext(events)).object.data["k"]) for _ in range(5)]
        assert sizes == [500_000] * 5


async def test_a_watch_that_is_refused_says_why(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        with pytest.raises(StatusError) as caught:
            async with client.watch(CONFIG_MAPS, version="1", fields="spec.nonsense=1"):
                pass
        assert caught.value.code == 400


async def test_apply_and_preconditions_reach_the_server(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        wanted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": {"k": "v"},
        }
        made = await client.patch(
            CONFIG_MAPS, "a", wanted, "default", form=APPLY_PATCH, field_manager="me"
        )
        assert made.metadata.managedFields[0].manager == "me"
        other = DeletionOptions(preconditions=DeletionPreconditions(uid="another"))
        with pytest.raises(StatusError, match="does not match the UID in record"):
            await client.delete(CONFIG_MAPS, "a", "default", options=other)
        await client.delete_collection(CONFIG_MAPS, "default", fields="metadata.name=a")
        assert (await client.list(CONFIG_MAPS, "default")).items == []


async def test_what_is_served_can_be_discovered(connect: Connect, tmp_path: Path) -> None:
    async with connected(connect, tmp_path) as client:
        discovery = Discovery(client)
        served = await discovery.served()
        pods = served.of_kind("v1", "Pod")
        assert pods is not None
        assert pods.namespaced
        assert await discovery.served() is served
        listing = await client.list_as(outlines(namespace.RESOURCE))
        assert "default" in [obj.metadata.name for obj in listing.items]


async def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    async with memory_server(tmp_path / "one") as one, memory_server(tmp_path / "two") as two:
        transport = HttpTransport(one.url, ca_pem=two.ca_pem, token=one.token)
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            await transport.send(Call("GET", "/version"))
        await transport.close()


async def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    async with memory_server(tmp_path) as running:
        client = Client(HttpTransport(running.url, ca_pem=running.ca_pem, token="wrong"))
        with pytest.raises(StatusError) as caught:
            await client.list(CONFIG_MAPS)
        assert caught.value.code == 401
        await client.close()
