"""Watches of what is measured."""

from typing import Any

import pytest

from kedge.metrics.aggregates import KEPT_SECONDS
from kedge.metrics.collection import NOTIFIED_AT_ONCE
from kedge.testing.local_server import TABLE, LocalServer

ROOT = "/apis/metrics/v1alpha1"
PODS = f"{ROOT}/namespaces/default/pods"


@pytest.fixture
async def shop(nodes: Any) -> Any:
    await nodes.node("n1")
    for name in ("a", "b"):
        await nodes.pod(name, "n1")
    await nodes.report("n1", "a", "b")
    return nodes


async def again(server: LocalServer, shop: Any, *names: str, **more: Any) -> None:
    await server.clock.advance(10)
    await shop.report("n1", *names, **more)


async def test_a_streaming_list_ends_with_a_bookmark(server: LocalServer, shop: Any) -> None:
    options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watching = await server.watch(f"{PODS}?watch=true&{options}")
    *added, mark = await watching.events()
    assert [event["type"] for event in added] == ["ADDED", "ADDED"]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    assert mark["object"]["metadata"]["resourceVersion"] == version


async def test_bookmarks_come_every_minute_to_those_who_want_them(
    server: LocalServer, shop: Any
) -> None:
    watching = await server.watch(f"{ROOT}/nodes?watch=true&allowWatchBookmarks=true")
    await server.clock.advance(61)
    assert [kind for kind, _ in await watching.seen()] == ["ADDED", "BOOKMARK"]


async def test_a_watch_ends_when_it_was_asked_to(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true&timeoutSeconds=5")
    await server.clock.advance(6)
    assert watching.ended
    assert not server.app.api.metrics.pods.listeners


async def test_a_watch_goes_on_where_another_ended(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true")
    await again(server, shop, "a", "b")
    seen = (await watching.events())[2]
    version = seen["object"]["metadata"]["resourceVersion"]
    rest = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    assert await rest.seen() == [("MODIFIED", "b")]


async def test_who_lags_gets_only_the_newest_of_each_object(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true")
    await server.settle()
    watching.sink.lines.clear()
    watching.sink.pause()
    await again(server, shop, "a", "b", cpu=0.1)
    await again(server, shop, "a", "b", cpu=0.2)
    await again(server, shop, "a", "b", cpu=0.3)
    watching.sink.resume()
    events = await watching.events()
    last = {event["object"]["metadata"]["name"]: event["object"] for event in events}
    assert len(events) == 4
    assert last["b"]["containers"][0]["metrics"]["10s"]["mean"]["cpu"].startswith("3000000")


async def test_deletions_are_remembered_for_five_minutes(server: LocalServer, shop: Any) -> None:
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    await server.clock.advance(10)
    await server.delete("/api/v1/namespaces/default/pods/a", {"gracePeriodSeconds": 0})
    late = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    assert await late.seen() == [("DELETED", "a")]
    for _ in range(31):
        await again(server, shop, "b")
    server.app.api.metrics.sweep()
    too_late = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    (event,) = await too_late.events()
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")


async def test_a_version_of_another_server_gets_everything(server: LocalServer, shop: Any) -> None:
    version = int((await server.get(PODS))["metadata"]["resourceVersion"]) + 10**9
    watching = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    assert await watching.seen() == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_new_pod_is_added_not_modified(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true")
    await shop.pod("c", "n1")
    await again(server, shop, "c")
    assert (await watching.seen())[2:] == [("ADDED", "c")]


async def test_tables_can_be_watched(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true", accept=TABLE)
    first, second = await watching.events()
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][1]["name"] == "CPU"
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_tables_stay_tables_beside_those_who_watch_the_same_as_objects(
    server: LocalServer, shop: Any
) -> None:
    plain = await server.watch(f"{PODS}?watch=true")
    table = await server.watch(f"{PODS}?watch=true", accept=TABLE)
    await again(server, shop, "a", "b")
    assert {event["object"]["kind"] for event in await plain.events()} == {"Pod"}
    assert {event["object"]["kind"] for event in await table.events()} == {"Table"}


async def test_many_watchers_are_told_in_turns_and_in_the_same_words(
    server: LocalServer, shop: Any
) -> None:
    watching = [await server.watch(f"{PODS}?watch=true") for _ in range(3 * NOTIFIED_AT_ONCE)]
    other = await server.watch(f"{PODS}?watch=true&fieldSelector=metadata.name%3Da")
    for each in watching:
        each.sink.lines.clear()
    await again(server, shop, "a", "b")
    await server.settle()
    texts = {tuple(each.sink.lines) for each in watching}
    assert len(texts) == 1
    assert [each["type"] for each in await watching[-1].events()] == ["MODIFIED", "MODIFIED"]
    assert len(server.app.api.metrics.pods.news) == 2
    assert (await other.seen())[1:] == [("MODIFIED", "a")]


async def test_a_watch_listens_also_while_its_peer_reads_the_first_objects(
    server: LocalServer, shop: Any
) -> None:
    collection = server.app.api.metrics.aggregates.current("namespaceusages")
    watching = await server.watch(f"{ROOT}/namespaceusages?watch=true", paused=True)
    assert len(collection.listeners) == 1
    await server.clock.advance(KEPT_SECONDS + 1)
    server.app.api.metrics.aggregates.tick()
    assert server.app.api.metrics.aggregates.current("namespaceusages") is collection
    watching.sink.resume()
    assert (await watching.seen())[:1] == [("ADDED", "default")]


async def test_the_first_objects_and_their_changes_are_made_in_turns(
    server: LocalServer, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []

    async def give_way() -> None:
        turns.append(1)

    monkeypatch.setattr(server.clock, "give_way", give_way)
    watching = await server.watch(f"{PODS}?watch=true")
    assert len(turns) == 2
    turns.clear()
    await again(server, shop, "a", "b")
    await server.settle()
    assert len(await watching.events()) == 4
    assert len(turns) >= 2
