"""The store in a SQLite file: what survives restarts, and what readers see."""

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kedge.storage.lockfile import StoreInUse
from kedge.storage.sqlite import database
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import (
    DiskFull,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreEvent,
)
from kedge.testing.clock import FakeClock


async def test_entries_history_and_revision_survive_a_restart(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    old = await store.put("/a", b"1", expect=0)
    new = await store.put("/a", b"2", expect=old.revision)
    await store.close()
    store = await SqliteStore.open(path, clock)
    assert store.revision == new.revision
    assert (await store.list("", at=old.revision)).entries == [old]
    assert await store.get("/a") == new
    await store.close()


async def test_history_is_replayed_after_a_restart_as_it_was_watched(
    path: Path, clock: FakeClock
) -> None:
    async def first(store: SqliteStore, count: int) -> list[StoreEvent]:
        async with aclosing(store.watch("", since=1)) as watch:
            return [await anext(watch) for _ in range(count)]

    store = await SqliteStore.open(path, clock)
    old = await store.put("/a", b"1", expect=0)
    new = await store.put("/a", b"2", expect=old.revision)
    await store.delete("/a", expect=new.revision)
    await store.put("/a", b"3", expect=0)
    live = await first(store, 4)
    await store.close()
    store = await SqliteStore.open(path, clock)
    assert await first(store, 4) == live
    assert [event.kind for event in live] == ["put", "put", "delete", "put"]
    await store.close()


async def test_a_closed_store_leaves_no_thread_and_no_open_file(
    open_files: Callable[[Path], list[str]], path: Path, clock: FakeClock
) -> None:
    def threads() -> set[str]:
        names = (thread.name for thread in threading.enumerate())
        return {name.rstrip("_0") for name in names if name.startswith("kedge-store")}

    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    await store.get("/a")
    assert threads() == {"kedge-store-writer", "kedge-store-reader"}
    await store.close()
    assert threads() == set()
    assert open_files(path) == []
    with pytest.raises(StoreClosed):
        await store.compact(1)


async def test_a_revision_is_not_handed_out_again_after_compaction_and_restart(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    entry = await store.put("/a", b"", expect=0)
    gone = await store.delete("/a", expect=entry.revision)
    await store.compact(gone.revision)
    await store.close()
    store = await SqliteStore.open(path, clock)
    assert store.revision == gone.revision
    assert (await store.put("/a", b"", expect=0)).revision == gone.revision + 1
    await store.close()


async def test_what_fell_due_while_the_store_was_closed_expires_at_once(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    entry = await store.put("/event", b"", expect=0, ttl=60)
    await store.close()
    await clock.advance(61)
    store = await SqliteStore.open(path, clock)
    event = await anext(store.watch("", since=entry.revision))
    assert (event.kind, event.previous) == ("delete", entry)
    await store.close()


async def test_only_the_owner_may_read_the_files(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/secret", b"", expect=0)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await store.close()
    assert set(modes.values()) == {0o600}
    assert {"kedge.db", "kedge.db-wal", "kedge.db.lock"} <= modes.keys()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_second_opening_is_refused_until_the_first_is_closed(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    with pytest.raises(
        StoreInUse, match=r"kedge\.db is in use by process \d+: stop that one first"
    ):
        await SqliteStore.open(path, clock)
    await store.close()
    await (await SqliteStore.open(path, clock)).close()


async def settle(store: SqliteStore) -> None:
    """Let the writer do its first search for expired keys, which follows the opening."""
    for _ in range(2):
        await store.compact(store.revision)


async def test_a_reader_is_not_ahead_of_watchers(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    await settle(store)
    deliver, held = store._writer._deliver, SimpleQueue[Any]()
    store._writer._deliver = lambda events, outcomes: held.put((events, outcomes))
    put = asyncio.ensure_future(store.put("/a", b"1", expect=0))
    delivery = await asyncio.to_thread(held.get, timeout=10)
    readers = [asyncio.ensure_future(each) for each in (store.get("/a"), store.list(""))]
    more = [await asyncio.to_thread(held.get, timeout=10) for _ in readers]
    assert not any(reader.done() for reader in readers)
    assert store.revision == 1
    store._writer._deliver = deliver
    for each in (delivery, *more):
        deliver(*each)
    entry = await put
    assert await readers[0] == entry
    assert store.revision == entry.revision
    await readers[1]
    await store.close()


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (sqlite3.SQLITE_IOERR_READ, StoreError, r"kedge\.db: disk I/O error$"),
        (sqlite3.SQLITE_FULL, DiskFull, r"kedge\.db is full: "),
        (sqlite3.SQLITE_CORRUPT, StoreDamaged, r"is damaged: disk I/O error\. Nothing was"),
    ],
)
async def test_a_file_that_cannot_be_opened_is_refused_and_not_in_use(
    open_files: Callable[[Path], list[str]],
    failure: Callable[[int], sqlite3.OperationalError],
    path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[StoreError],
    message: str,
) -> None:
    def fail(path: Path) -> sqlite3.Connection:
        raise failure(code)

    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", fail)
        with pytest.raises(StoreError, match=message) as refusal:
            await SqliteStore.open(path, clock)
    assert type(refusal.value) is kind
    assert open_files(path) == []
    await (await SqliteStore.open(path, clock)).close()
