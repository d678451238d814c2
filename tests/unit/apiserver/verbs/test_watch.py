"""Watches, seen from outside."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1 import config_map, secret
from kedge.api.model import ObjectMeta
from kedge.apiserver import watchcache
from kedge.apiserver.verbs import watch
from kedge.apiserver.watchcache import Change, Item
from kedge.client.client import Client
from kedge.client.view import View, objects, outlines
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry, StoreEvent
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TABLE, LocalServer, LocalWatch, RecordingSink
from kedge.testing.server import http_client, local_client, memory_server

MAPS = "/api/v1/namespaces/default/configmaps"


async def make(server: LocalServer, name: str, path: str = MAPS, **labels: str) -> Any:
    return await server.post(path, {"metadata": {"name": name, "labels": labels}})


def version(document: Any) -> str:
    return str(document["metadata"]["resourceVersion"])


async def test_a_watch_without_a_version_begins_with_what_there_is(server: LocalServer) -> None:
    made = await make(server, "a")
    for query in ("", "&resourceVersion=0"):
        watching = await server.watch(f"{MAPS}?watch=true{query}")
        assert await watching.events() == [{"type": "ADDED", "object": made}]
    await make(server, "b")
    assert await watching.seen() == [("ADDED", "a"), ("ADDED", "b")]


async def test_every_change_is_told_with_the_object_as_it_then_was(server: LocalServer) -> None:
    start = version(await server.get(MAPS))
    watching = await server.watch(f"{MAPS}?watch=1&resourceVersion={start}")
    made = await make(server, "a")
    changed = await server.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    await server.delete(f"{MAPS}/a")
    added, modified, deleted = await watching.events()
    assert added == {"type": "ADDED", "object": made}
    assert modified == {"type": "MODIFIED", "object": changed}
    assert deleted["type"] == "DELETED"
    gone = deleted["object"]
    assert gone["data"] == {"x": "1"}
    assert int(version(gone)) == server.store.revision > int(version(changed))


async def test_a_watch_from_a_version_tells_what_came_after(server: LocalServer) -> None:
    first = await make(server, "a")
    await make(server, "b")
    await server.delete(f"{MAPS}/a")
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version(first)}")
    assert await watching.seen() == [("ADDED", "b"), ("DELETED", "a")]


async def test_what_happens_elsewhere_is_not_told(server: LocalServer) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "default0"}})
    here = await server.watch(f"{MAPS}?watch=true")
    everywhere = await server.watch("/api/v1/configmaps?watch=true")
    one = await server.watch(f"{MAPS}?watch=true&fieldSelector=metadata.name=b")
    old = await server.watch("/api/v1/watch/namespaces/default/configmaps/b")
    await make(server, "a")
    await make(server, "b")
    await make(server, "c", "/api/v1/namespaces/default0/configmaps")
    await make(server, "d", "/api/v1/namespaces/default/secrets")
    assert await here.seen() == [("ADDED", "a"), ("ADDED", "b")]
    assert await everywhere.seen() == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    assert await one.seen() == await old.seen() == [("ADDED", "b")]


async def test_a_named_object_is_got_not_watched(server: LocalServer) -> None:
    made = await make(server, "a")
    assert await server.get(f"{MAPS}/a?watch=true") == made


async def test_entering_a_selection_is_added_and_leaving_it_is_deleted(
    server: LocalServer,
) -> None:
    made = await make(server, "a", app="web")
    await make(server, "b")
    watching = await server.watch(
        f"{MAPS}?watch=true&resourceVersion={server.store.revision}&labelSelector=app=web"
    )
    await server.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    before = await server.get(f"{MAPS}/a")
    left = await server.merge(f"{MAPS}/a", {"metadata": {"labels": {"app": "db"}}})
    await server.merge(f"{MAPS}/a", {"data": {"x": "2"}})
    await server.merge(f"{MAPS}/a", {"metadata": {"labels": {"app": "web"}}})
    await server.delete(f"{MAPS}/a")
    await server.delete(f"{MAPS}/b")
    events = await watching.events()
    assert [event["type"] for event in events] == [
        "MODIFIED",
        "DELETED",
        "ADDED",
        "DELETED",
    ]
    departed = events[1]["object"]
    assert version(departed) == version(left)
    assert departed["metadata"]["labels"] == {"app": "web"}
    assert departed["data"] == before["data"] == {"x": "1"}
    assert made["metadata"]["uid"] == departed["metadata"]["uid"]


async def test_fields_of_a_kind_select_in_watches_too(server: LocalServer) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await server.post(
        pods,
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    watching = await server.watch(f"{pods}?watch=true&fieldSelector=spec.nodeName=n1")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    await server.post(f"{pods}/p/binding", binding)
    assert await watching.seen() == [("ADDED", "p")]


async def test_bookmarks_come_every_minute_and_at_the_end(server: LocalServer) -> None:
    watching = await server.watch(
        f"{MAPS}?watch=true&resourceVersion={server.store.revision}"
        "&allowWatchBookmarks=true&timeoutSeconds=100"
    )
    await make(server, "x", "/api/v1/namespaces/default/secrets")
    await server.clock.advance(59)
    assert await watching.events() == []
    await server.clock.advance(1)
    [event] = await watching.events()
    assert event["type"] == "BOOKMARK"
    assert event["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(server.store.revision), "creationTimestamp": None},
    }
    await server.clock.advance(40)
    assert [event["type"] for event in await watching.events()] == ["BOOKMARK", "BOOKMARK"]
    assert watching.ended


async def test_a_watch_without_bookmarks_just_ends(server: LocalServer) -> None:
    watching = await server.watch(f"{MAPS}?watch=true&timeoutSeconds=5")
    await server.clock.advance(4)
    assert not watching.ended
    await server.clock.advance(1)
    assert watching.ended
    assert await watching.events() == []


async def test_a_watch_with_a_negative_timeout_ends_at_once(server: LocalServer) -> None:
    watching = await server.watch(f"{MAPS}?watch=true&timeoutSeconds=-1")
    assert watching.ended


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("timeoutSeconds=&timeoutSeconds=1", 'parsing "": invalid syntax'),
        ("timeoutSeconds=1e9", 'parsing "1e9": invalid syntax'),
        ("timeoutSeconds=%D9%A1", 'parsing "\u0661": invalid syntax'),
        ("timeoutSeconds=9223372036854775808", 'parsing "9223372036854775808": value out of range'),
        ("limit=", 'parsing "": invalid syntax'),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_the_first_of_several_numbers_counts_and_an_empty_one_is_refused(
    server: LocalServer, query: str, said: str, verb: str
) -> None:
    watch = "&watch=true" if verb == "watch" else ""
    answer = await server.call("GET", f"{MAPS}?{query}{watch}")
    assert answer.status == 400
    assert answer.document["message"] == f"strconv.ParseInt: {said}"


async def test_by_default_a_watch_lasts_between_half_an_hour_and_an_hour(
    server: LocalServer,
) -> None:
    watching = await server.watch(f"{MAPS}?watch=true")
    await server.clock.advance(1799)
    assert not watching.ended
    await server.clock.advance(1802)
    assert watching.ended


# Initial events.

INITIAL = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def test_initial_events_end_with_a_bookmark(server: LocalServer) -> None:
    await make(server, "a")
    await make(server, "b")
    watching = await server.watch(f"{MAPS}?{INITIAL}&allowWatchBookmarks=true")
    events = await watching.events()
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2]["object"]["metadata"] == {
        "resourceVersion": str(server.store.revision),
        "creationTimestamp": None,
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    await make(server, "c")
    assert (await watching.seen())[3:] == [("ADDED", "c")]


async def test_an_empty_selection_still_gets_the_end_of_its_initial_events(
    server: LocalServer,
) -> None:
    watching = await server.watch(f"{MAPS}?{INITIAL}&allowWatchBookmarks=true&resourceVersion=0")
    assert [event["type"] for event in await watching.events()] == ["BOOKMARK"]


@pytest.mark.parametrize(
    "query",
    [
        "watch=true&sendInitialEvents=true",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        "watch=true&resourceVersionMatch=NotOlderThan",
        "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ],
)
async def test_initial_events_and_the_match_go_together(server: LocalServer, query: str) -> None:
    answer = await server.call("GET", f"{MAPS}?{query}")
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_without_initial_events_only_news_are_told(server: LocalServer) -> None:
    await make(server, "a")
    query = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    watching = await server.watch(f"{MAPS}?{query}")
    await make(server, "b")
    assert await watching.seen() == [("ADDED", "b")]


# The past and the future.


async def test_a_watch_of_the_future_waits_for_it(server: LocalServer) -> None:
    now = server.store.revision
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={now + 2}")
    for name in "abc":
        await make(server, name)
    assert await watching.seen() == [("ADDED", "c")]
    initial = await server.watch(f"{MAPS}?{INITIAL}&resourceVersion={now + 5}&timeoutSeconds=10")
    assert await initial.events() == []
    await make(server, "d")
    await make(server, "e")
    await server.clock.advance(1)
    assert [name for _, name in await initial.seen()] == ["a", "b", "c", "d", "e"]


async def test_a_future_that_does_not_come_ends_with_the_time(server: LocalServer) -> None:
    watching = await server.watch(f"{MAPS}?{INITIAL}&resourceVersion=99999&timeoutSeconds=10")
    await server.clock.advance(11)
    assert watching.ended
    assert await watching.events() == []


async def test_what_the_log_has_forgotten_is_read_from_the_store(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "LOG_LENGTH", 3)
    first = await make(server, "a")
    for number in range(10):
        await server.merge(f"{MAPS}/a", {"data": {"n": str(number)}})
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version(first)}")
    numbers = [event["object"]["data"]["n"] for event in await watching.events()]
    assert numbers == [str(number) for number in range(10)]
    await make(server, "b")
    assert (await watching.seen())[10:] == [("ADDED", "b")]


async def test_what_the_store_has_forgotten_too_is_gone() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with LocalServer.running(store, clock) as first:
        made = await make(first, "a")
        await make(first, "b")
    await store.compact(store.revision)
    async with LocalServer.running(store, clock) as second:
        watching = await second.watch(f"{MAPS}?watch=true&resourceVersion={version(made)}")
        [event] = await watching.events()
        assert event["type"] == "ERROR"
        status = event["object"]
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {version(made)} (")
        assert watching.ended
        bad = await second.call("GET", f"{MAPS}?watch=true&resourceVersion=x")
        assert bad.status == 500


# Several changes of one revision.


class SharedStore(MemoryStore):
    """Deletes several keys in one revision, as a lease of etcd does."""

    def delete_together(self, keys: Sequence[str]) -> None:
        revision, last = self.revision + 1, keys[-1]
        events = []
        for key in keys:
            before = self._entries.pop(key)
            self._keys.remove(key)
            entry = StoreEntry(key, before.value, revision, before.created)
            events.append(StoreEvent("delete", entry, before, more=key != last))
        self._history += events
        self._feeds.publish(events)


TOGETHER = [("DELETED", name) for name in ("a", "b", "c")]


@asynccontextmanager
async def shared_server() -> AsyncIterator[tuple[LocalServer, SharedStore]]:
    """A server with the objects a, b and c."""
    clock = FakeClock()
    store = SharedStore(clock)
    async with LocalServer.running(store, clock) as server:
        for name in ("a", "b", "c"):
            await make(server, name)
        yield server, store


def delete_together(store: SharedStore) -> None:
    store.delete_together([config_map.RESOURCE.key("default", name) for name in ("a", "b", "c")])


@pytest.mark.parametrize("pushed_bytes", [64 << 10, 0])
async def test_all_changes_of_one_revision_are_told(
    monkeypatch: pytest.MonkeyPatch, pushed_bytes: int
) -> None:
    monkeypatch.setattr(watch, "PUSHED_BYTES", pushed_bytes)
    async with shared_server() as (server, store):
        start = store.revision
        live = await server.watch(f"{MAPS}?watch=true&resourceVersion={start}")
        lagging = await server.watch(f"{MAPS}?watch=true&resourceVersion={start}")
        lagging.sink.pause()
        delete_together(store)
        await make(server, "d")
        told = [*TOGETHER, ("ADDED", "d")]
        assert await live.seen() == told
        assert len({version(event["object"]) for event in (await live.events())[:3]}) == 1
        lagging.sink.resume()
        assert await lagging.seen() == told
        resumed = await server.watch(f"{MAPS}?watch=true&resourceVersion={start}")
        assert await resumed.seen() == told
        after = await server.watch(f"{MAPS}?watch=true&resourceVersion={start + 1}")
        assert await after.seen() == [("ADDED", "d")]


def pausing(sink: RecordingSink) -> Callable[[bytes], None]:
    """A `write` that fills the socket."""
    write = sink.write

    def written(data: bytes) -> None:
        write(data)
        sink.pause()

    return written


async def test_a_watcher_that_lags_within_a_revision_gets_the_rest_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shared_server() as (server, store):
        watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={store.revision}")
        watching.sink.pause()
        await make(server, "d")
        delete_together(store)
        await server.settle()
        watching.sink.resume()
        await server.settle()
        # The socket fills up with the first line of the revision.
        monkeypatch.setattr(watching.sink, "write", pausing(watching.sink))
        for name in ("a", "b", "c"):
            await make(server, name)
            watching.sink.resume()
            await server.settle()
        delete_together(store)
        await server.settle()
        for _ in range(4):
            watching.sink.resume()
            await server.settle()
        added = [("ADDED", name) for name in ("a", "b", "c")]
        assert await watching.seen() == [("ADDED", "d"), *TOGETHER, *added, *TOGETHER]


async def test_all_changes_of_one_revision_are_read_from_the_history_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchcache, "LOG_LENGTH", 2)
    async with shared_server() as (server, store):
        start = store.revision
        delete_together(store)
        await server.settle()
        # The log has the last two changes of the revision.
        watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={start}")
        assert await watching.seen() == TOGETHER


def test_changes_of_one_revision_are_converted_together() -> None:
    changes = [Change("DELETED", Item("", at, b"{}"), None) for at in (2, 3, 3, 3, 4)]
    for count, taken in ((1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (9, 5)):
        assert watch._first_revisions(changes, count) == changes[:taken]


async def test_nobody_sees_a_part_of_a_revision() -> None:
    async with shared_server() as (server, store):
        api, seen = server.app.api, []
        cache = api.cache_of(config_map.RESOURCE)
        cache.listeners.add(lambda change: seen.append(api.cache.revision) if change else None)
        before = store.revision
        delete_together(store)
        await api.cache.reached(before + 1)
        assert seen == [before] * 3
        assert len(cache) == 0


# Forms.


async def test_a_table_watch_names_its_columns_once(server: LocalServer) -> None:
    await make(server, "a")
    watching = await server.watch(f"{MAPS}?watch=true&allowWatchBookmarks=true", accept=TABLE)
    await make(server, "b")
    await server.clock.advance(60)
    first, second, third = [event["object"] for event in await watching.events()]
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None
    assert [len(table["rows"]) for table in (first, second, third)] == [1, 1, 1]
    assert second["rows"][0]["cells"][0] == "b"
    assert third["kind"] == "Table"
    assert third["rows"][0]["object"]["metadata"]["resourceVersion"] == str(server.store.revision)


async def test_metadata_alone_can_be_watched(server: LocalServer) -> None:
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    watching = await server.watch(f"{MAPS}?watch=true&allowWatchBookmarks=true", accept=accept)
    made = await make(server, "a")
    await server.clock.advance(60)
    added, bookmark = await watching.events()
    assert added["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
    assert bookmark["object"]["kind"] == "PartialObjectMetadata"


# Peers.


async def test_a_slow_watcher_catches_up_from_the_log(server: LocalServer) -> None:
    watching = await server.watch(f"{MAPS}?watch=true")
    watching.sink.pause()
    for number in range(20):
        await make(server, f"m{number:02}")
    assert len(await watching.events()) <= 2
    watching.sink.resume()
    assert [name for _, name in await watching.seen()] == [f"m{n:02}" for n in range(20)]


async def test_a_watcher_that_lags_too_far_is_cut_off(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "LOG_LENGTH", 3)
    watching = await server.watch(f"{MAPS}?watch=true")
    watching.sink.pause()
    for number in range(20):
        await make(server, f"m{number:02}")
    watching.sink.resume()
    events = await watching.events()
    assert events[-1]["object"]["code"] == 410
    assert watching.ended
    names = [event["object"]["metadata"]["name"] for event in events[:-1]]
    assert names == [f"m{n:02}" for n in range(len(names))]


async def test_a_lagging_watcher_gets_no_bookmark_past_what_it_has_seen(
    server: LocalServer,
) -> None:
    watching = await server.watch(f"{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=70")
    await server.clock.advance(30)
    watching.sink.pause()
    for number in range(5):
        await make(server, f"m{number}")
    await server.clock.advance(31)
    watching.sink.resume()
    await server.clock.advance(20)
    seen = 0
    for event in await watching.events():
        told = int(version(event["object"]))
        assert told >= seen
        seen = told
    assert [name for kind, name in await watching.seen() if kind == "ADDED"] == [
        f"m{number}" for number in range(5)
    ]


async def test_nothing_is_missed_or_told_twice_while_others_write(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "LOG_LENGTH", 30)
    start = server.store.revision
    writers = [server.start(_write(server, writer)) for writer in range(3)]
    watches: list[LocalWatch] = []
    for round_ in range(12):
        revision = server.store.revision if round_ % 2 else start
        watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={revision}")
        if round_ % 3 == 0:
            watching.sink.pause()
        watches.append(watching)
        watching.sink.resume()
    for writer in writers:
        await writer
    whole = await server.watch(f"{MAPS}?watch=true&resourceVersion={start}")
    expected = [version(event["object"]) for event in await whole.events()]
    assert len(expected) == len(set(expected)) > 100
    assert expected == sorted(expected, key=int)
    for watching in watches:
        told = [version(event["object"]) for event in await watching.events()]
        assert told == expected[len(expected) - len(told) :]


async def _write(server: LocalServer, writer: int) -> None:
    for number in range(15):
        await make(server, f"w{writer}-{number}")
        await server.merge(f"{MAPS}/w{writer}-{number}", {"data": {"x": "1"}})
        if number % 2:
            await server.delete(f"{MAPS}/w{writer}-{number}")


async def test_a_watcher_that_cannot_be_told_does_not_stop_the_others(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await server.watch(f"{MAPS}?watch=true", accept=TABLE)
    healthy = await server.watch(f"{MAPS}?watch=true")

    def fail(*args: object) -> bytes:
        raise RuntimeError("no row")

    monkeypatch.setattr("kedge.apiserver.render.row", fail)
    await make(server, "a")
    await make(server, "b")
    assert await healthy.seen() == [("ADDED", "a"), ("ADDED", "b")]
    assert broken.ended
    with pytest.raises(ExceptionGroup):
        await broken.events()
    server._tasks = [task for task in server._tasks if task is not broken._task]


async def test_a_watcher_in_the_same_process_sees_what_one_outside_sees(tmp_path: Path) -> None:
    kind = config_map.RESOURCE

    async def seen(client: Client, view: View[Any], labels: str) -> list[tuple[str, str, str]]:
        happened: list[tuple[str, str, str]] = []
        async with client.watch_as(view, "default", version="1", labels=labels) as events:
            async for event in events:
                happened.append((event.type, event.version, event.object.metadata.name))
                if event.object.metadata.name == "last":
                    break
        return happened

    async with memory_server(tmp_path) as running:
        inside, outside = local_client(running), http_client(running)
        for name in ("one", "two"):
            meta = ObjectMeta(name=name, namespace="default", labels={"app": "web"})
            await inside.create(kind, config_map.ConfigMap(metadata=meta, data={"a": name}))
        await inside.patch(kind, "one", {"metadata": {"labels": None}}, "default")
        await inside.delete(kind, "two", "default")
        last = ObjectMeta(name="last", namespace="default", labels={"app": "web"})
        await inside.create(kind, config_map.ConfigMap(metadata=last))
        for view in (objects(kind), outlines(kind)):
            for labels in ("", "app=web"):
                told = await seen(inside, view, labels)
                assert told == await seen(outside, view, labels)
                assert [type_ for type_, _, name in told if name == "two"] == ["ADDED", "DELETED"]
        await outside.close()


async def test_the_log_is_bounded_in_bytes_too(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "LOG_BYTES", 50_000)
    monkeypatch.setattr(watchcache, "HISTORY_BYTES", 30_000)
    first = await make(server, "a")
    for number in range(20):
        await server.merge(f"{MAPS}/a", {"data": {"n": str(number), "large": "x" * 5_000}})
    cache = server.app.api.cache.of(config_map.RESOURCE)
    assert sum(change.size for change in cache.log) <= 50_000
    assert len(cache.log) > 1
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version(first)}")
    numbers = [event["object"]["data"]["n"] for event in await watching.events()]
    assert numbers == [str(number) for number in range(20)]


async def test_the_logs_of_all_resources_are_bounded_together(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "ALL_LOGS_BYTES", 60_000)
    first = await make(server, "a")
    secrets = MAPS.replace("configmaps", "secrets")
    for number in range(10):
        for path in (MAPS, secrets):
            body = {"metadata": {"name": f"n{number}"}, "data": {"large": "eHh4" * 200}}
            await server.post(path, body)
    caches = list(server.app.api.cache.all())
    assert sum(change.size for cache in caches for change in cache.log) <= 60_000
    for resource in (config_map.RESOURCE, secret.RESOURCE):
        assert len(server.app.api.cache.of(resource).log) > 1, "no resource loses its whole log"
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version(first)}")
    assert await watching.seen() == [("ADDED", f"n{number}") for number in range(10)]


@pytest.mark.parametrize("pushed_bytes", [64 << 10, 0])
async def test_changes_that_pile_up_and_large_ones_are_sent_in_turns(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, pushed_bytes: int
) -> None:
    monkeypatch.setattr(watch, "PUSHED_BYTES", pushed_bytes)
    turns: list[None] = []

    async def give_way() -> None:
        turns.append(None)

    first = await make(server, "first")
    past = [await make(server, f"past-{number}") for number in range(10)]
    monkeypatch.setattr(server.clock, "give_way", give_way)
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version(first)}")
    assert [name for _, name in await watching.seen()] == [o["metadata"]["name"] for o in past]
    assert len(turns) >= len(past)
    turns.clear()
    for number in range(5):
        await make(server, f"next-{number}")
    assert len(await watching.seen()) == len(past) + 5
    assert (len(turns) >= 5) is (pushed_bytes == 0)


async def test_an_object_larger_than_the_log_is_watched_all_the_same(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchcache, "LOG_BYTES", 100)
    watching = await server.watch(f"{MAPS}?watch=true")
    for name in ("a", "b", "c"):
        await make(server, name)
    assert await watching.seen() == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
