"""What a node knows of config maps, secrets and tokens."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from kedge.node.pod.referenced_objects import (
    ConfigObjectKey,
    ConfigObjectWatches,
    ServiceAccountToken,
    WatchedConfigObject,
)
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
MAP = ConfigObjectKey("configmaps", "default", "m")


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def following(server: LocalServer) -> ConfigObjectWatches:
    made = ConfigObjectWatches(server.client, server.clock)
    server.start(made.run())
    await server.settle()
    return made


async def post_map(server: LocalServer, **data: str) -> None:
    await server.post(MAPS, {"metadata": {"name": "m"}, "data": data})
    await server.settle()


def data_of(known: WatchedConfigObject | None) -> object:
    assert known is not None
    return None if known.object is None else dict(known.object.data)


@pytest.mark.parametrize(
    ("life", "age", "old"), [(1000, 799, False), (1000, 800, True), (10**6, 86401, True)]
)
def test_a_token_grows_old_after_four_fifths_of_its_life_or_a_day(
    life: int, age: int, old: bool
) -> None:
    issued = datetime(2030, 1, 1, tzinfo=UTC)
    token = ServiceAccountToken("t", issued, issued + timedelta(seconds=life))
    assert token.is_old(issued + timedelta(seconds=age)) is old


async def test_nothing_is_known_of_what_nobody_holds(following: ConfigObjectWatches) -> None:
    assert following.watched(MAP) is None


async def test_what_is_held_is_known_and_told_of(
    server: LocalServer, following: ConfigObjectWatches
) -> None:
    told: list[ConfigObjectKey] = []
    following.hold("uid", [MAP], told.append)
    await server.settle()
    assert data_of(following.watched(MAP)) is None
    await post_map(server, a="1")
    assert data_of(following.watched(MAP)) == {"a": "1"}
    await server.delete(f"{MAPS}/m")
    await server.settle()
    assert data_of(following.watched(MAP)) is None
    assert told == [MAP, MAP, MAP]


async def test_only_the_last_holder_ends_a_watch(
    server: LocalServer, following: ConfigObjectWatches
) -> None:
    told: list[str] = []
    following.hold("a", [MAP], lambda _: told.append("a"))
    following.hold("b", [MAP], lambda _: told.append("b"))
    await server.settle()
    told.clear()
    following.release("a")
    await post_map(server, a="1")
    assert told == ["b"]
    following.release("b")
    await server.merge(f"{MAPS}/m", {"data": {"a": "2"}})
    await server.settle()
    assert told == ["b"]
    assert following.watched(MAP) is None


async def test_what_is_held_before_it_runs_is_followed_then(server: LocalServer) -> None:
    following = ConfigObjectWatches(server.client, server.clock)
    following.hold("uid", [MAP], lambda _: None)
    assert following.watched(MAP) is None
    server.start(following.run())
    await post_map(server, a="1")
    assert data_of(following.watched(MAP)) == {"a": "1"}


async def test_what_cannot_change_stays_known_without_a_watch(
    server: LocalServer, following: ConfigObjectWatches
) -> None:
    told: list[ConfigObjectKey] = []
    following.hold("uid", [MAP], told.append)
    await server.settle()
    told.clear()
    await server.post(MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}, "immutable": True})
    await server.settle()
    await server.delete(f"{MAPS}/m")
    await server.settle()
    assert told == [MAP]
    assert data_of(following.watched(MAP)) == {"a": "1"}
