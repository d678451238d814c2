"""The log of changes: the memory that it takes is the memory that is counted."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.apiserver import render
from kedge.apiserver.alike_bodies import AlikeBodies
from kedge.apiserver.watchcache import (
    EVENTS_PER_TURN,
    LOG_LENGTH,
    UNREADABLE,
    UNREADABLE_LOGGED,
    Item,
    ResourceCache,
    Selection,
    WatchCache,
    history,
    splice_head,
)
from kedge.machinery.selectors import parse_fields, parse_labels
from kedge.machinery.turns import next_turn
from kedge.storage.memory import MemoryStore
from kedge.storage.store import RevisionCompacted, StoreEntry, StoreEvent, UnreadableValue
from kedge.testing.clock import FakeClock


def empty() -> ResourceCache:
    alike = AlikeBodies()
    return ResourceCache(RESOURCE, 0, lambda: alike)


def written(number: int) -> StoreEvent:
    name = f"m-{number % 512}"
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    meta = {"name": name, "labels": {"a": "b"}, "managedFields": [{"fieldsV1": fields}]}
    value = splice_head(RESOURCE) + json.dumps(meta).encode()[1:] + b"}"
    return StoreEvent("put", StoreEntry(RESOURCE.key("default", name), value, number, 1), None)


def derive(item: Item) -> None:
    """Ask for all that is derived of an object."""
    assert item.labels == {"a": "b"}
    assert item.field(RESOURCE, "metadata.other") == ""
    form = render.table_form(RESOURCE, RESOURCE.presentation.columns, "Metadata", "v1")
    render.row(form, item, item.revision // 50)


def test_small_changes_take_no_more_memory_than_is_counted() -> None:
    derive(empty().item(written(1).entry))
    cache = empty()
    tracemalloc.start()
    try:
        for number in range(1, 4_000):
            cache.feed(written(number))
            derive(cache.log[-1].item)
            assert cache.log[-1].line
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < cache.log_bytes


@pytest.mark.parametrize(
    ("namespace", "after", "most", "found", "count"),
    [
        ("", "", 0, ["a/1", "a/3", "b/2"], 3),
        ("", "a/1", 0, ["a/3", "b/2"], 2),
        ("", "a/2", 1, ["a/3"], 2),
        ("", "b/2", 1, [], 0),
        ("a", "", 0, ["a/1", "a/3"], 2),
        ("a", "", 1, ["a/1"], 2),
        ("a", "a/1", 5, ["a/3"], 1),
        ("b", "a/3", 0, ["b/2"], 1),
        ("a", "b/2", 0, [], 0),
        ("c", "", 0, [], 0),
    ],
)
def test_a_page_is_found_by_its_keys(
    namespace: str, after: str, most: int, found: list[str], count: int
) -> None:
    cache = empty()
    value = written(1).entry.value
    for number, key in enumerate(("b/2", "a/1", "a/3"), 1):
        entry = StoreEntry(RESOURCE.key(*key.split("/")), value, number, number)
        cache.feed(StoreEvent("put", entry, None))
    selection = Selection(RESOURCE, namespace, parse_labels(""), parse_fields(""))
    start = RESOURCE.prefix + after if after else ""
    items = cache.candidates(selection, start, most)
    assert [item.key.removeprefix(RESOURCE.prefix) for item in items] == found
    assert cache.count(selection, start) == count


def padded(number: int, name: str) -> StoreEvent:
    """A write of one of several large objects that differ in their names and versions alone."""
    meta = json.dumps({"name": name, "labels": {"a": "b"}})
    data = json.dumps({f"key{each}": "x" * 20 for each in range(100)}, separators=(",", ":"))
    value = splice_head(RESOURCE) + f'{meta[1:]},"data":{data}}}'.encode()
    return StoreEvent("put", StoreEntry(RESOURCE.key("default", name), value, number, 1), None)


def test_what_alike_objects_share_is_kept_once_when_they_have_left_the_log() -> None:
    cache = empty()
    events = [padded(number, f"m-{number}") for number in range(1, LOG_LENGTH + 51)]
    bodies = [cache.stamped(each.entry.value, each.entry.revision) for each in events]
    tracemalloc.start()
    try:
        for event in events:
            cache.feed(event)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(LOG_LENGTH + 51, 2 * LOG_LENGTH):
            cache.feed(padded(number, "m-last"))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    items = [cache.get(event.entry.key) for event in events]
    assert [item.body for item in items if item] == bodies
    assert [item.labels for item in items if item] == [{"a": "b"}] * len(items)
    # The log of changes of one object took the place of the others, which are a tenth as large.
    assert taken < before * 1.1


def test_objects_are_shortened_a_few_at_a_time() -> None:
    cache = empty()
    events = [padded(number, f"m-{number}") for number in range(1, 41)]
    for event in events:
        cache.feed(event)
    cache.halve_log()

    def short() -> int:
        items = [cache.get(event.entry.key) for event in events]
        return sum(item.body is not item.body for item in items if item)

    counts = [short()]
    for number in range(41, 53):
        cache.feed(padded(number, "other"))
        counts.append(short())
    # The first is the one with which the others are compared.
    assert counts == [0, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 20, 20]


def test_a_short_state_has_its_fields_and_what_follows_it() -> None:
    alike, cache = AlikeBodies(), empty()
    items = [cache.item(padded(number, f"m-{number}").entry) for number in range(1, 3)]
    bodies = [item.body for item in items]
    for item in items:
        derive(item)
        item.shorten(alike)
    assert items[1].size < len(bodies[1]) + 200
    assert [item.body for item in items] == bodies
    derive(items[1])
    again = items[1].body
    items[1].shorten(alike)
    assert items[1].body == again
    items[1].convert(b"{}")
    assert items[1].body == b"{}"


async def test_objects_that_were_loaded_are_shortened_unless_the_log_has_them() -> None:
    store = MemoryStore(FakeClock())
    for number in range(1, 5):
        entry = padded(number, f"m-{number}").entry
        await store.put(entry.key, entry.value, expect=0)
    caches = WatchCache(store)
    await caches.load([RESOURCE])
    cache = caches.of(RESOURCE)
    cache.feed(padded(store.revision + 1, "m-4"))
    bodies = {item.key: item.body for item in cache.values()}
    await caches.shorten(FakeClock())
    assert {item.key: item.body for item in cache.values()} == bodies
    lasting = [each.body for each in cache.values() if each.body is each.body]
    assert len(lasting) == 2  # the first, with which the others are compared, and that of the log


def test_listeners_share_a_line_which_the_log_does_not_keep() -> None:
    cache = empty()
    lines: list[bytes] = []
    for _ in range(2):
        cache.listeners.add(lambda change: lines.append(change.line) if change else None)
    cache.feed(written(1))
    assert lines[0] is lines[1]
    assert lines[0].startswith(b'{"type":"ADDED","object":{"kind":"ConfigMap"')
    change = cache.log[-1]
    assert change.line == lines[0]
    assert change.line is not change.line


def test_a_superseded_state_keeps_no_row() -> None:
    cache = empty()
    cache.feed(written(512))
    first = cache.log[-1].item
    derive(first)
    assert first.row is not None
    cache.feed(written(1_024))
    assert first.row is None
    assert first.body in cache.log[0].line


class BusyStore:
    """Has many writes to tell at once."""

    revision = 0

    async def watch(self, prefix: str, *, since: int) -> AsyncIterator[StoreEvent]:
        for number in range(1, 1_001):
            yield written(number)
        await asyncio.get_running_loop().create_future()


async def test_writes_that_are_due_together_are_applied_in_turns() -> None:
    cache = WatchCache(BusyStore())  # type: ignore[arg-type]
    most = 0
    async with asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(cache.run())
        while cache.revision < 1_000:
            before = cache.revision
            await next_turn()
            most = max(most, cache.revision - before)
        feeding.cancel()
    assert most <= EVENTS_PER_TURN


def test_the_newline_of_a_value_of_kube_apiserver_is_not_served() -> None:
    entry = written(1).entry
    ended = StoreEntry(entry.key, entry.value + b"\n", entry.revision, entry.created)
    cache = empty()
    assert cache.item(ended).body == cache.item(entry).body


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"k8s\0\n\x0c", "is stored as protobuf"),
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"k8s:enc:aesgcm:v1:one:x", "cannot be decrypted"),
    ],
)
async def test_an_unreadable_value_stops_the_start_but_not_a_running_server(
    value: bytes, why: str
) -> None:
    key = RESOURCE.key("default", "foreign")
    store = MemoryStore(FakeClock())
    cache = WatchCache(store)
    await cache.load([RESOURCE])
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        await store.put(key, value, expect=0)
        await store.put("/registry/short", b"", expect=0)
        readable = written(1).entry
        await store.put(readable.key, readable.value, expect=0)
        gone = written(2).entry
        for content in (gone.value, value):
            current = await store.get(gone.key)
            await store.put(gone.key, content, expect=current.revision if current else 0)
        last = await store.delete(gone.key, expect=store.revision)
        await cache.reached(last.revision)
        running.cancel()
    assert [item.key for item in cache.of(RESOURCE).values()] == [readable.key]
    with pytest.raises(UNREADABLE, match=rf"{key} {why}.*(--storage-media-type|--encryption)"):
        await WatchCache(store).load([RESOURCE])


async def shared(*values: bytes) -> tuple[WatchCache, MemoryStore]:
    """A cache of a store with a readable object, and with these values of other programs."""
    store = MemoryStore(FakeClock())
    await store.put(RESOURCE.key("default", "m-1"), written(1).entry.value, expect=0)
    for number, value in enumerate(values):
        await store.put(RESOURCE.key("default", f"foreign-{number}"), value, expect=0)
    return WatchCache(store, is_shared=True), store


async def test_values_of_other_programs_are_skipped_at_the_start_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache, _ = await shared(b"k8s\0x", b"k8s:enc:kms:x", *[b"{"] * 30)
    await cache.load([RESOURCE])
    assert [item.key for item in cache.of(RESOURCE).values()] == [RESOURCE.key("default", "m-1")]
    lines = [record.message for record in caplog.records]
    assert "configmaps/default/foreign-0 is stored as protobuf" in lines[0]
    assert "configmaps/default/foreign-1 cannot be decrypted" in "".join(lines)
    assert len(lines) == UNREADABLE_LOGGED + 1
    assert "further values" in lines[-1]


async def test_a_kind_of_which_nothing_can_be_read_stops_the_start() -> None:
    cache, store = await shared(b"k8s\0x")
    await store.delete(RESOURCE.key("default", "m-1"), expect=2)
    with pytest.raises(UnreadableValue, match="foreign-0 is stored as protobuf"):
        await cache.load([RESOURCE])
    with pytest.raises(UnreadableValue, match="foreign-0 is stored as protobuf"):
        await WatchCache(store, is_shared=True).add(RESOURCE)


async def test_history_leaves_out_what_cannot_be_read_and_never_its_replacement() -> None:
    cache, store = await shared(b"{", b"k8s:enc:kms:x")
    await cache.load([RESOURCE])
    changes, reached = await history(store, cache.of(RESOURCE), 1, store.revision)
    assert [change.item.key for change in changes] == [RESOURCE.key("default", "m-1")]
    assert reached == store.revision
    foreign = await store.get(RESOURCE.key("default", "foreign-1"))
    assert foreign is not None
    await store.delete(foreign.key, expect=foreign.revision)
    with pytest.raises(RevisionCompacted):
        await history(store, cache.of(RESOURCE), 1, store.revision)
