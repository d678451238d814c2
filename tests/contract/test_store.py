"""What every store promises; one suite, run on each implementation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kedge.machinery.write_guard import WriteGuard, guarded, guarded_by
from kedge.storage.compaction import keep_history
from kedge.storage.encryption import AesGcm, EncryptedStore, Protection, StorageKey
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.memory import MemoryStore
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import (
    FutureRevision,
    GuardLost,
    RevisionCompacted,
    RevisionConflict,
    Store,
    StoreClosed,
    StoreEntry,
    StoreEvent,
)
from kedge.testing.clock import FakeClock
from kedge.testing.etcd_process import EtcdProcess
from kedge.testing.postgresql_process import PostgresProcess


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def open_store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Store:
    opened: Store
    if request.param == "memory":
        opened = MemoryStore(clock)
    elif request.param == "etcd":
        etcd: EtcdProcess = request.getfixturevalue("etcd")
        opened = await EtcdStore.open(EtcdConnection(endpoints=(etcd.endpoint,)), clock)
    elif request.param == "postgresql":
        server: PostgresProcess = request.getfixturevalue("shared_postgresql")
        opened = await PostgresStore.open(PostgresConnection(address=server.new_address()), clock)
    else:
        opened = await SqliteStore.open(tmp_path / "state.db", clock)
    if request.param == "encrypted":
        key = StorageKey(b"k8s:enc:aesgcm:v1:key:", AesGcm(b"k" * 32))
        opened = EncryptedStore(opened, lambda name: Protection([key]))
    return opened


@pytest.fixture(params=["memory", "sqlite", "encrypted", "etcd", "postgresql"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Store]:
    opened = await open_store(request, tmp_path, clock)
    yield opened
    await opened.close()


async def first(store: Store, count: int, *, prefix: str = "", since: int = 0) -> list[StoreEvent]:
    """The first so many events of a watch."""
    events: list[StoreEvent] = []
    async with aclosing(store.watch(prefix, since=since)) as watch:
        async for event in watch:
            events.append(event)
            if len(events) == count:
                break
    return events


async def fill(store: Store, *keys: str) -> list[StoreEntry]:
    return [await store.put(key, key.encode(), expect=0) for key in keys]


async def keys(store: Store, prefix: str = "", *, at: int = 0) -> list[str]:
    return [entry.key for entry in (await store.list(prefix, at=at)).entries]


async def test_an_empty_store_stands_at_revision_one(store: Store) -> None:
    page = await store.list("")
    assert (store.revision, page.revision, page.entries) == (1, 1, [])
    assert await store.get("/a") is None


async def test_a_created_key_reads_back_with_its_revision(store: Store) -> None:
    entry = await store.put("/a", b"one", expect=0)
    assert entry == StoreEntry("/a", b"one", revision=2, created=2)
    assert await store.get("/a") == entry
    assert store.revision == 2


async def test_an_update_keeps_the_create_revision(store: Store) -> None:
    created = await store.put("/a", b"one", expect=0)
    await store.put("/b", b"", expect=0)
    updated = await store.put("/a", b"two", expect=created.revision)
    assert updated == StoreEntry("/a", b"two", revision=4, created=2)


async def test_creating_an_existing_key_conflicts_and_shows_it(store: Store) -> None:
    entry = await store.put("/a", b"one", expect=0)
    with pytest.raises(RevisionConflict) as conflict:
        await store.put("/a", b"two", expect=0)
    assert (conflict.value.key, conflict.value.current) == ("/a", entry)
    assert store.revision == entry.revision


async def test_writing_with_a_stale_revision_conflicts(store: Store) -> None:
    stale = await store.put("/a", b"one", expect=0)
    newest = await store.put("/a", b"two", expect=stale.revision)
    with pytest.raises(RevisionConflict) as put:
        await store.put("/a", b"three", expect=stale.revision)
    with pytest.raises(RevisionConflict) as delete:
        await store.delete("/a", expect=stale.revision)
    assert put.value.current == delete.value.current == newest
    assert await store.get("/a") == newest


async def test_writing_to_an_absent_key_by_revision_conflicts(store: Store) -> None:
    with pytest.raises(RevisionConflict) as put:
        await store.put("/a", b"one", expect=7)
    with pytest.raises(RevisionConflict) as delete:
        await store.delete("/a", expect=7)
    assert put.value.current is delete.value.current is None


async def test_a_deletion_returns_the_last_value_at_a_revision_of_its_own(store: Store) -> None:
    created = await store.put("/a", b"one", expect=0)
    assert await store.delete("/a", expect=created.revision) == StoreEntry("/a", b"one", 3, 2)
    assert await store.get("/a") is None
    again = await store.put("/a", b"two", expect=0)
    assert again == StoreEntry("/a", b"two", revision=4, created=4)


@pytest.mark.parametrize("key", ["", "/a\0b", "/\ud800"])
async def test_a_key_that_cannot_be_kept_is_refused(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match=r"key|surrogates"):
        await store.put(key, b"", expect=0)


async def test_of_many_concurrent_creators_one_wins(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(store.put("/a", b"%d" % i, expect=0) for i in range(50)), return_exceptions=True
    )
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, StoreEntry)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, RevisionConflict)]
    assert len(losers) == 49
    assert all(loser.current == winner for loser in losers)


async def test_concurrent_writes_get_distinct_revisions_and_each_writer_its_own(
    store: Store,
) -> None:
    entries = await asyncio.gather(*(store.put(f"/{i}", b"", expect=0) for i in range(700)))
    assert sorted(entry.revision for entry in entries) == list(range(2, 702))
    assert {entry.key: entry for entry in (await store.list("")).entries} == {
        entry.key: entry for entry in entries
    }


# etcd orders concurrent requests by itself, and other servers write to it, too.
@pytest.mark.parametrize("store", ["memory", "sqlite", "encrypted", "postgresql"], indirect=True)
async def test_a_store_of_this_process_writes_in_the_order_asked(store: Store) -> None:
    entries = await asyncio.gather(*(store.put(f"/{i}", b"", expect=0) for i in range(700)))
    assert [entry.revision for entry in entries] == list(range(2, 702))


async def test_a_write_given_up_by_its_caller_harms_no_other(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        given_up = group.create_task(store.put("/a", b"", expect=0))
        kept = group.create_task(store.put("/b", b"", expect=0))
        given_up.cancel()
    assert await store.get("/b") == kept.result()


async def test_a_list_holds_exactly_the_prefix_in_order(store: Store) -> None:
    await fill(store, "/pods/b", "/pods/a/x", "/pods/a", "/podsandmore", "/nodes/a", "/pods/é")
    assert await keys(store, "/pods/") == ["/pods/a", "/pods/a/x", "/pods/b", "/pods/é"]
    assert len(await keys(store)) == 6


async def test_pages_tile_the_list_and_count_what_remains(store: Store) -> None:
    await fill(store, *(f"/a/{i}" for i in range(5)), "/b")
    seen: list[str] = []
    counts: list[tuple[bool, int]] = []
    for _ in range(3):
        page = await store.list("/a/", after=seen[-1] if seen else "", limit=2)
        seen += [entry.key for entry in page.entries]
        counts.append((page.more, page.remaining))
    assert seen == [f"/a/{i}" for i in range(5)]
    assert counts == [(True, 3), (True, 1), (False, 0)]


async def test_a_page_that_ends_exactly_at_the_end_says_so(store: Store) -> None:
    await fill(store, "/a/1", "/a/2")
    page = await store.list("/a/", limit=2)
    assert (len(page.entries), page.more, page.remaining) == (2, False, 0)


async def test_a_list_continues_at_its_revision_while_the_store_moves_on(store: Store) -> None:
    a, b, c, _ = await fill(store, "/a", "/b", "/c", "/d")
    page = await store.list("", limit=1)
    await store.delete("/b", expect=b.revision)
    await store.put("/c", b"new", expect=c.revision)
    await store.put("/bb", b"", expect=0)
    rest = await store.list("", at=page.revision, after="/a", limit=2)
    assert page.entries == [a]
    assert (rest.entries, rest.revision, rest.remaining) == ([b, c], page.revision, 1)


async def test_history_shows_every_revision_as_it_was(store: Store) -> None:
    one = await store.put("/a", b"1", expect=0)
    two = await store.put("/a", b"2", expect=one.revision)
    await store.delete("/a", expect=two.revision)
    three = await store.put("/a", b"3", expect=0)
    past = [(await store.list("", at=at)).entries for at in range(1, 6)]
    assert past == [[], [one], [two], [], [three]]


async def test_the_future_can_be_neither_listed_nor_watched_nor_compacted(store: Store) -> None:
    with pytest.raises(FutureRevision):
        await store.list("", at=2)
    with pytest.raises(FutureRevision):
        await first(store, 1, since=2)
    with pytest.raises(FutureRevision):
        await store.compact(2)


async def test_a_watch_replays_history_and_goes_on_live(store: Store) -> None:
    old = await store.put("/a", b"1", expect=0)
    watching = asyncio.ensure_future(first(store, 3, since=1))
    updated = await store.put("/a", b"2", expect=old.revision)
    deleted = await store.delete("/a", expect=updated.revision)
    assert await watching == [
        StoreEvent("put", old, None),
        StoreEvent("put", updated, old),
        StoreEvent("delete", deleted, updated),
    ]


async def test_a_watch_starts_after_the_revision_given(store: Store) -> None:
    a, b = await fill(store, "/a", "/b")
    assert await first(store, 1, since=a.revision) == [StoreEvent("put", b, None)]


async def test_a_watch_sees_only_its_prefix(store: Store) -> None:
    watching = asyncio.ensure_future(first(store, 2, prefix="/pods/"))
    await fill(store, "/pods/a", "/podsandmore", "/nodes/a", "/pods/b")
    assert [event.entry.key for event in await watching] == ["/pods/a", "/pods/b"]


async def test_a_writer_that_returns_finds_watchers_already_served(store: Store) -> None:
    async with aclosing(store.watch("", since=1)) as watch:
        pending = asyncio.ensure_future(anext(watch))
        entry = await store.put("/a", b"", expect=0)
        assert store.revision == entry.revision
        assert await pending == StoreEvent("put", entry, None)


async def test_watchers_that_join_during_a_storm_miss_nothing(store: Store) -> None:
    async def write(start: int) -> None:
        for i in range(start, start + 50):
            await store.put(f"/{i}", b"", expect=0)

    async with asyncio.TaskGroup() as group:
        for start in range(0, 400, 50):
            group.create_task(write(start))
        watches = []
        for _ in range(8):
            page = await store.list("")
            seen = len(page.entries)
            watches.append(group.create_task(first(store, 400 - seen, since=page.revision)))
    for watch in watches:
        revisions = [event.entry.revision for event in watch.result()]
        assert revisions == list(range(402 - len(revisions), 402))


async def test_a_slow_watcher_catches_up_from_history(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedge.storage.feed.BACKLOG", 10)
    async with aclosing(store.watch("", since=1)) as watch:
        pending = asyncio.ensure_future(anext(watch))
        await fill(store, "/first")
        seen = [(await pending).entry.revision]
        await fill(store, *(f"/{i}" for i in range(300)))
        while len(seen) < 301:
            seen.append((await anext(watch)).entry.revision)
    assert seen == list(range(2, 303))


async def test_large_values_are_read_from_history_in_pieces(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedge.storage.feed.BACKLOG_BYTES", 1_000)
    monkeypatch.setattr("kedge.storage.sqlite.rows.CHUNK_BYTES", 1_000)
    monkeypatch.setattr("kedge.storage.postgresql.store.CHUNK_BYTES", 1_000)
    async with aclosing(store.watch("", since=1)) as watch:
        pending = asyncio.ensure_future(anext(watch))
        await store.put("/first", b"x" * 600, expect=0)
        seen = [(await pending).entry.revision]
        for i in range(20):
            await store.put(f"/{i}", b"x" * 600, expect=0)
        while len(seen) < 21:
            seen.append((await anext(watch)).entry.revision)
    assert seen == list(range(2, 23))


async def test_compaction_forgets_the_past_but_not_the_present(store: Store) -> None:
    one = await store.put("/a", b"1", expect=0)
    gone = await store.put("/b", b"", expect=0)
    await store.delete("/b", expect=gone.revision)
    two = await store.put("/a", b"2", expect=one.revision)
    await store.compact(4)
    with pytest.raises(RevisionCompacted) as listing:
        await store.list("", at=3)
    with pytest.raises(RevisionCompacted) as watching:
        await first(store, 1, since=0)
    assert (listing.value.revision, listing.value.oldest) == (3, 4)
    assert (watching.value.revision, watching.value.oldest) == (0, 4)
    assert (await store.list("", at=4)).entries == [one]
    assert await first(store, 1, since=4) == [StoreEvent("put", two, one)]
    assert (await store.list("")).entries == [two]


async def test_compacting_everything_keeps_entries_and_revision(store: Store) -> None:
    a, b = await fill(store, "/a", "/b")
    await store.delete("/b", expect=b.revision)
    await store.compact(store.revision)
    await store.compact(2)
    page = await store.list("")
    assert (page.entries, page.revision, store.revision) == ([a], 4, 4)
    assert (await store.put("/c", b"", expect=0)).revision == 5


async def test_a_compaction_of_many_revisions_lets_writers_through(store: Store) -> None:
    entry = await store.put("/a", b"", expect=0)
    for _ in range(600):
        entry = await store.put("/a", b"", expect=entry.revision)
    async with asyncio.TaskGroup() as group:
        group.create_task(store.compact(store.revision))
        other = group.create_task(store.put("/b", b"", expect=0))
    assert (await store.list("")).entries == [entry, other.result()]


async def test_a_key_expires_as_an_ordinary_deletion(store: Store, clock: FakeClock) -> None:
    entry = await store.put("/event", b"hello", expect=0, ttl=60)
    await clock.advance(59)
    assert await store.get("/event") == entry
    watching = asyncio.ensure_future(first(store, 1, since=entry.revision))
    await clock.advance(1)
    assert await watching == [StoreEvent("delete", StoreEntry("/event", b"hello", 3, 2), entry)]
    assert await store.get("/event") is None


async def test_a_shorter_life_is_not_held_up_by_a_longer_one(
    store: Store, clock: FakeClock
) -> None:
    await store.put("/long", b"", expect=0, ttl=3600)
    await store.put("/short", b"", expect=0, ttl=10)
    watching = asyncio.ensure_future(first(store, 1, since=3))
    await clock.advance(10)
    assert [event.entry.key for event in await watching] == ["/short"]
    assert await keys(store) == ["/long"]


async def test_writing_again_replaces_the_time_to_live(store: Store, clock: FakeClock) -> None:
    kept = await store.put("/kept", b"", expect=0, ttl=10)
    renewed = await store.put("/renewed", b"", expect=0, ttl=10)
    await store.put("/probe", b"", expect=0, ttl=10)
    await store.put("/kept", b"", expect=kept.revision)
    await store.put("/renewed", b"", expect=renewed.revision, ttl=30)
    watching = asyncio.ensure_future(first(store, 2, since=store.revision))
    await clock.advance(10)
    await clock.advance(20)
    assert [event.entry.key for event in await watching] == ["/probe", "/renewed"]
    assert await keys(store) == ["/kept"]


async def test_history_older_than_its_age_is_compacted(store: Store, clock: FakeClock) -> None:
    old = await store.put("/a", b"1", expect=0)
    keeping = asyncio.ensure_future(keep_history(store, clock, age=300))
    await clock.advance(0)
    await store.put("/a", b"2", expect=old.revision)
    await clock.advance(299)
    assert (await store.list("", at=2)).entries == [old]
    assert (await store.list("", at=1)).entries == []
    await clock.advance(1)
    while True:
        try:
            await store.list("", at=1)
        except RevisionCompacted:
            break
    keeping.cancel()
    assert (await store.list("", at=2)).entries == [old]


async def test_a_closed_store_refuses_everything(store: Store) -> None:
    await store.put("/a", b"", expect=0)
    watching = asyncio.ensure_future(first(store, 2))
    await store.list("")
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await watching
    with pytest.raises(StoreClosed):
        await store.get("/a")
    with pytest.raises(StoreClosed):
        await store.put("/b", b"", expect=0)


async def test_writes_under_way_are_finished_by_closing(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(store.put(f"/{i}", b"", expect=0)) for i in range(20)]
        await asyncio.wait(writes, timeout=0)
        await store.close()
    assert {write.result().revision for write in writes} == set(range(2, 22))


# Guards.


@pytest.fixture(params=["memory", "etcd", "postgresql"])
async def shared(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Store]:
    """A store that several servers can share, and the one in memory."""
    opened = await open_store(request, tmp_path, clock)
    yield opened
    await opened.close()


async def test_a_guarded_write_happens_while_the_guard_holds(shared: Store) -> None:
    [term] = await fill(shared, "/term")
    with guarded_by(WriteGuard("/term", term.revision)):
        made = await shared.put("/a", b"1", expect=0)
        changed = await shared.put("/a", b"2", expect=made.revision)
        await shared.put("/b", b"1", expect=0, ttl=60)
        await shared.delete("/a", expect=changed.revision)
    assert [entry.key for entry in (await shared.list("/")).entries] == ["/b", "/term"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_no_guarded_write_happens_once_the_guard_is_lost(
    shared: Store, is_deleted: bool
) -> None:
    [term, kept] = await fill(shared, "/term", "/kept")
    guard = WriteGuard("/term", term.revision)
    if is_deleted:
        await shared.delete("/term", expect=term.revision)
    else:
        await shared.put("/term", b"other", expect=term.revision)
    before = await shared.newest()
    with guarded_by(guard):
        assert not guard.is_lost
        with pytest.raises(GuardLost, match="/term"):
            await shared.put("/a", b"1", expect=0)
        assert guard.is_lost
        with pytest.raises(GuardLost):
            await shared.put("/kept", b"1", expect=kept.revision)
        with pytest.raises(GuardLost):
            await shared.put("/b", b"1", expect=0, ttl=60)
        with pytest.raises(GuardLost):
            await shared.delete("/kept", expect=kept.revision)
    assert await shared.newest() == before
    await shared.put("/a", b"1", expect=0)


async def test_a_write_with_a_conflict_and_without_its_guard_is_refused(shared: Store) -> None:
    [kept] = await fill(shared, "/kept")
    with guarded_by(WriteGuard("/term", 7)), pytest.raises((RevisionConflict, GuardLost)) as caught:
        await shared.put("/kept", b"1", expect=0)
    if isinstance(caught.value, RevisionConflict):
        assert caught.value.current == kept


async def test_writes_of_different_guards_are_told_apart(shared: Store) -> None:
    [old] = await fill(shared, "/term")
    new = await shared.put("/term", b"new", expect=old.revision)

    async def write(key: str, revision: int) -> bool:
        try:
            await guarded(WriteGuard("/term", revision), shared.put(key, b"", expect=0))
        except GuardLost:
            return False
        return True

    revisions = [old.revision, new.revision] * 20
    outcomes = await asyncio.gather(*(write(f"/w{i}", r) for i, r in enumerate(revisions)))
    assert outcomes == [False, True] * 20


async def test_keys_expire_also_if_a_former_leader_wrote_them(
    shared: Store, clock: FakeClock
) -> None:
    [term] = await fill(shared, "/term")
    with guarded_by(WriteGuard("/term", term.revision)):
        await shared.put("/event", b"", expect=0, ttl=5)
    await shared.put("/term", b"other", expect=term.revision)
    newest = await shared.newest()
    await clock.advance(6)
    async with asyncio.timeout(5):
        [gone] = await first(shared, 1, prefix="/event", since=newest)
    assert gone.kind == "delete"
