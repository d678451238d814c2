"""The writer: groups of writes, failures, and a full disk."""

import asyncio
import errno
import logging
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kedge.machinery.tenant import tenant
from kedge.storage.reserve import LAST_BYTES, LOG_BYTES, LOW_BYTES, STEP_BYTES, Reserve
from kedge.storage.sqlite import database, writer
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.sqlite.write_queue import WriterTask
from kedge.storage.sqlite.writer import SLACK, Writer
from kedge.storage.store import (
    DISK_FULL,
    DiskFull,
    PendingRevision,
    RevisionCompacted,
    RevisionConflict,
    StoreEntry,
    StoreError,
    StoreEvent,
)
from kedge.testing.clock import FakeClock


@contextmanager
def no_file_may_exceed(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_fails_the_writes_it_hits_and_no_others(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    kept = [await store.put(f"/kept/{i}", b"x" * 4000, expect=0) for i in range(5)]
    with no_file_may_exceed(200_000):
        outcomes = await asyncio.gather(
            *(store.put(f"/lost/{i}", b"x" * 4000, expect=0) for i in range(200)),
            return_exceptions=True,
        )
        page = await store.list("")
    refused = [outcome for outcome in outcomes if isinstance(outcome, DiskFull)]
    acknowledged = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(refused) + len(acknowledged) == 200
    assert refused
    assert page.entries == sorted([*kept, *acknowledged], key=lambda entry: entry.key)
    after = await store.put("/after", b"x" * 4000, expect=0)
    assert after.revision == page.revision + 1
    await store.close()
    store = await SqliteStore.open(path, clock)
    assert (await store.list("")).entries == [after, *page.entries]
    await store.close()


class Faulty:
    """A connection on which a statement fails with an error code of SQLite."""

    def __init__(
        self, real: sqlite3.Connection, failure: Callable[[int], sqlite3.OperationalError]
    ) -> None:
        self._real = real
        self._failure = failure
        self.code = 0
        """The next insertion fails with it."""
        self.fails: Callable[[str, Any], int] = lambda statement, values: 0
        """Returns the code that a statement fails with, or 0."""
        self.rows: list[int] = []
        """How many rows each insertion had."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if self.code and statement.startswith("INSERT"):
            code, self.code = self.code, 0
            raise self._failure(code)
        if code := self.fails(statement, values):
            raise self._failure(code)
        if statement.startswith("INSERT"):
            self.rows.append(len(values) // 7)
        return self._real.execute(statement, values)


@pytest.fixture
def connections(
    monkeypatch: pytest.MonkeyPatch, failure: Callable[[int], sqlite3.OperationalError]
) -> list[Faulty]:
    """All connections of a store: those of its reader, its writer and its log."""
    opened: list[Faulty] = []
    connect = database.connect

    def faulty(path: Path) -> Faulty:
        opened.append(Faulty(connect(path), failure))
        return opened[-1]

    monkeypatch.setattr(database, "connect", faulty)
    return opened


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CORRUPT_INDEX,
        sqlite3.SQLITE_NOTADB,
    ],
)
async def test_after_a_failed_fsync_or_damage_no_write_is_taken_until_a_restart(
    path: Path, clock: FakeClock, connections: list[Faulty], code: int
) -> None:
    store = await SqliteStore.open(path, clock)
    kept = await store.put("/kept", b"1", expect=0)
    for each in connections:
        each.code = code
    why = r"kedge\.db: disk I/O error; no more writes are taken until kedge is restarted$"
    with pytest.raises(StoreError, match=why):
        await store.put("/lost", b"1", expect=0)
    with pytest.raises(StoreError, match=why):
        await store.delete("/kept", expect=kept.revision)
    assert store.failure == "the file is in doubt"
    assert (await store.list("")).entries == [kept]
    await store.close()
    store = await SqliteStore.open(path, clock)
    assert store.failure == ""
    assert (await store.put("/lost", b"1", expect=0)).revision == kept.revision + 1
    await store.close()


async def test_another_failure_fails_the_write_that_it_hits_alone(
    path: Path, clock: FakeClock, connections: list[Faulty]
) -> None:
    store = await SqliteStore.open(path, clock)
    for each in connections:
        each.code = sqlite3.SQLITE_IOERR_READ
    with pytest.raises(StoreError, match=r"kedge\.db: disk I/O error$"):
        await store.put("/lost", b"1", expect=0)
    assert store.failure == ""
    assert (await store.put("/lost", b"1", expect=0)).revision == 2
    await store.close()


async def settle(store: SqliteStore) -> None:
    """Let the writer do its first search for expired keys, which follows the opening."""
    for _ in range(2):
        await store.compact(store.revision)


@asynccontextmanager
async def paused(store: SqliteStore) -> AsyncIterator[None]:
    """Let the writer wait, so that all writes of the block are in one group."""
    await settle(store)
    waits, go = threading.Event(), threading.Event()

    def work() -> tuple[list[StoreEvent], None]:
        waits.set()
        go.wait(10)
        return [], None

    store._writer.submit(WriterTask(work, asyncio.get_running_loop().create_future()))
    waits.wait(10)
    try:
        yield
    finally:
        go.set()


async def written(
    store: SqliteStore, clock: FakeClock, values: list[bytes]
) -> list[StoreEntry | BaseException]:
    """Write the values in one group; return the outcomes."""
    async with paused(store):
        puts = [
            asyncio.ensure_future(store.put(f"/{i:03}", value, expect=0))
            for i, value in enumerate(values)
        ]
        await clock.advance(0)
    return await asyncio.gather(*puts, return_exceptions=True)


async def test_a_group_has_at_most_so_many_writes(
    path: Path, clock: FakeClock, connections: list[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 3)
    store = await SqliteStore.open(path, clock)
    outcomes = await written(store, clock, [b"x"] * 8)
    assert [each.revision for each in outcomes if isinstance(each, StoreEntry)] == [*range(2, 10)]
    assert [*chain.from_iterable(each.rows for each in connections)][-3:] == [3, 3, 2]
    await store.close()


async def test_a_write_that_was_given_up_harms_no_other_of_its_group(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    async with paused(store):
        puts = [asyncio.ensure_future(store.put(f"/{i}", b"", expect=0)) for i in range(3)]
        await clock.advance(0)
        puts[0].cancel()
    assert [entry.key for entry in await asyncio.gather(*puts[1:])] == ["/1", "/2"]
    await store.close()


async def test_a_write_too_large_for_the_disk_fails_alone(
    path: Path, clock: FakeClock, connections: list[Faulty]
) -> None:
    store = await SqliteStore.open(path, clock)

    def fails(statement: str, values: Any) -> int:
        large = statement.startswith("INSERT") and b"large" in values
        return sqlite3.SQLITE_FULL if large else 0

    for each in connections:
        each.fails = fails
    small, large = await written(store, clock, [b"small", b"large"])
    assert isinstance(small, StoreEntry)
    assert isinstance(large, DiskFull)
    await store.close()


async def test_a_group_that_fails_midway_leaves_nothing_behind(
    path: Path, clock: FakeClock, connections: list[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 512)  # more than one statement inserts
    store = await SqliteStore.open(path, clock)
    broken = [True]

    def fails(statement: str, values: Any) -> int:
        second = statement.startswith("INSERT") and "/099" in values
        return sqlite3.SQLITE_IOERR_READ if second and broken else 0

    for each in connections:
        each.fails = fails
    outcomes = await written(store, clock, [b"x"] * 100)
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert (await store.list("")).entries == []
    broken.clear()
    outcomes = await written(store, clock, [b"x"] * 100)
    assert (await store.list("")).entries == outcomes
    assert store.revision == 101
    await store.close()


async def test_a_file_that_cannot_be_read_after_a_failure_is_in_doubt(
    path: Path, clock: FakeClock, connections: list[Faulty]
) -> None:
    store = await SqliteStore.open(path, clock)
    for each in connections:
        each.fails = lambda statement, values: sqlite3.SQLITE_IOERR_READ
    with pytest.raises(StoreError, match=r"no more writes are taken until kedge is restarted$"):
        await store.put("/a", b"1", expect=0)
    assert store.failure == "the file is in doubt"
    with pytest.raises(StoreError, match=r"kedge\.db: disk I/O error$"):
        await store.get("/a")
    for each in connections:
        each.fails = lambda statement, values: 0
    await store.close()


async def test_a_full_log_is_emptied_before_the_disk_counts_as_full(
    path: Path, clock: FakeClock, connections: list[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path, clock)
    full = [True]

    def emptied(connection: sqlite3.Connection) -> None:
        full.clear()

    monkeypatch.setattr(database, "checkpoint", emptied)
    monkeypatch.setattr(Writer, "_run_full", lambda writer: pytest.fail("the log had space"))
    for each in connections:
        each.fails = lambda statement, values: (
            sqlite3.SQLITE_FULL if full and statement.startswith("INSERT") else 0
        )
    assert (await store.put("/a", b"1", expect=0)).revision == 2
    await store.close()


class Disk:
    """A disk that can be full: the file does not grow then, and few of its pages are free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.free = LAST_BYTES
        measure, grow, spend = Reserve.measure, Reserve.grow, Reserve.spend

        def measured(reserve: Reserve) -> int:
            found = measure(reserve)
            if self.full:
                found = reserve.free = self.free
            return found

        def grown(reserve: Reserve, size: int = 0) -> None:
            self._check()
            grow(reserve, size)

        def spent(reserve: Reserve, size: int) -> None:
            self._check()
            spend(reserve, size)

        monkeypatch.setattr(Reserve, "measure", measured)
        monkeypatch.setattr(Reserve, "grow", grown)
        monkeypatch.setattr(Reserve, "spend", spent)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")


async def test_on_a_full_disk_objects_are_deleted_and_hardly_grow(
    path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    disk = Disk(monkeypatch)
    store = await SqliteStore.open(path, clock)
    kept, gone = [await store.put(key, b"x" * 10, expect=0) for key in ("/kept", "/gone")]
    disk.full, disk.free = True, LAST_BYTES + 100_000
    with pytest.raises(DiskFull, match=r"kedge\.db is full: objects can still be deleted, and"):
        await store.put("/new", b"x", expect=0)
    assert store.failure == DISK_FULL
    kept = await store.put("/kept", b"x" * (10 + SLACK), expect=kept.revision)
    with pytest.raises(DiskFull):
        await store.put("/kept", b"x" * (11 + 2 * SLACK), expect=kept.revision)
    disk.free = LAST_BYTES - 1
    await store.delete("/gone", expect=gone.revision)
    with pytest.raises(DiskFull):
        await store.put("/kept", b"x", expect=kept.revision)
    assert (await store.list("")).entries == [kept]
    disk.full = False
    await store.delete("/kept", expect=kept.revision)
    await store.put("/new", b"x", expect=0)
    assert store.failure == ""
    await store.close()
    assert [record.getMessage().split(" path=")[0] for record in caplog.records] == [
        "disk full",
        "disk no longer full",
    ]


async def test_a_disk_is_no_longer_full_with_some_space_more_than_it_needs(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = await SqliteStore.open(path, clock)
    entry = await store.put("/a", b"x", expect=0)
    enough = LOW_BYTES + STEP_BYTES // 8
    disk.full, disk.free = True, enough - 1
    with pytest.raises(DiskFull):
        await store.put("/new", b"x", expect=0)
    await store.compact(store.revision)
    assert store.failure == DISK_FULL
    disk.free = LAST_BYTES
    await store.compact(store.revision)
    await store.put("/a", b"y", expect=entry.revision)
    disk.free = enough
    await store.compact(store.revision)
    await store.compact(store.revision)
    assert store.failure == ""
    await store.close()


async def test_a_store_that_is_opened_on_a_full_disk_knows_it(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SqliteStore.open(path, clock)).close()
    disk = Disk(monkeypatch)
    disk.full = True
    store = await SqliteStore.open(path, clock)
    assert store.failure == DISK_FULL
    await store.close()


async def test_space_for_the_log_is_reserved_from_the_start(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    size = path.with_name("kedge.db-wal").stat().st_size
    await store.close()
    assert size >= LOG_BYTES


async def test_a_full_disk_costs_the_history_and_no_object(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = await SqliteStore.open(path, clock)
    old = await store.put("/a", b"1", expect=0)
    new = await store.put("/a", b"2", expect=old.revision)
    disk.full = True
    with pytest.raises(DiskFull):
        await store.put("/b", b"1", expect=0)
    with pytest.raises(RevisionCompacted):
        await store.list("", at=old.revision)
    assert (await store.list("")).entries == [new]
    await store.close()


def chained(
    store: SqliteStore, first: int, values: list[bytes]
) -> list[asyncio.Future[StoreEntry]]:
    """Queue writes of one key, each on top of the one before."""
    expect: int | PendingRevision = first
    entries = []
    for value in values:
        put = store.submit("/chain", value, expect=expect)
        expect = put.revision
        entries.append(put.entry)
    return entries


async def test_writes_on_top_of_each_other_share_a_commit(
    path: Path, clock: FakeClock, connections: list[Faulty]
) -> None:
    store = await SqliteStore.open(path, clock)
    async with paused(store):
        puts = chained(store, 0, [b"1", b"2", b"3"])
    entries = await asyncio.gather(*puts)
    assert [each.value for each in entries] == [b"1", b"2", b"3"]
    assert [each.revision for each in entries] == [2, 3, 4]
    assert {each.created for each in entries} == {2}
    assert [*chain.from_iterable(each.rows for each in connections)][-1] == 3
    assert await store.get("/chain") == entries[-1]
    await store.close()


async def test_a_write_on_top_of_a_committed_one_is_accepted(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    put = store.submit("/chain", b"1", expect=0)
    first = await put.entry
    second = await store.submit("/chain", b"2", expect=put.revision).entry
    assert (first.revision, second.revision) == (2, 3)
    with pytest.raises(RevisionConflict):
        await store.submit("/chain", b"3", expect=put.revision).entry
    await store.close()


async def test_all_writes_on_top_of_a_refused_one_are_refused(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    kept = await store.put("/chain", b"0", expect=0)
    async with paused(store):
        puts = chained(store, kept.revision + 1, [b"1", b"2", b"3"])
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(each) for each in outcomes] == [RevisionConflict] * 3
    assert await store.get("/chain") == kept
    await store.close()


async def test_no_write_creates_a_key_on_top_of_a_write_that_was_given_up(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    async with paused(store):
        given_up, lost = chained(store, 0, [b"1", b"2"])
        given_up.cancel()
    with pytest.raises(RevisionConflict):
        await lost
    assert await store.get("/chain") is None
    await store.close()


async def test_a_failed_commit_fails_all_writes_on_top_even_when_its_revision_is_used_again(
    path: Path, clock: FakeClock, connections: list[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 1)
    store = await SqliteStore.open(path, clock)
    await settle(store)
    for each in connections:
        each.code = sqlite3.SQLITE_IOERR_READ
    put = store.submit("/chain", b"lost", expect=0)
    with pytest.raises(StoreError, match=r"disk I/O error$"):
        await put.entry
    kept = await store.put("/chain", b"kept", expect=0)
    with pytest.raises(RevisionConflict):
        await store.submit("/chain", b"on top of the lost one", expect=put.revision).entry
    assert await store.get("/chain") == kept
    await store.close()


async def test_a_write_waits_behind_the_one_that_it_is_on_top_of(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    async with paused(store):
        with tenant("busy"):
            for number in range(5):
                store.submit(f"/other/{number}", b"x", expect=0)
            first = store.submit("/chain", b"1", expect=0)
        with tenant("quiet"):
            second = store.submit("/chain", b"2", expect=first.revision)
    assert (await second.entry).value == b"2"
    assert (await first.entry).value == b"1"
    await store.close()


async def test_a_write_on_top_of_a_committed_one_waits_for_no_other_tenant(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 1)
    store = await SqliteStore.open(path, clock)
    with tenant("busy"):
        first = store.submit("/chain", b"1", expect=0)
    await first.entry
    async with paused(store):
        with tenant("busy"):
            others = [store.submit(f"/other/{each}", b"x", expect=0).entry for each in range(5)]
        with tenant("quiet"):
            second = store.submit("/chain", b"2", expect=first.revision)
    revisions = [each.revision for each in await asyncio.gather(second.entry, *others)]
    assert sorted(revisions).index(revisions[0]) < 2
    await store.close()
