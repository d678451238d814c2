import asyncio
import errno
import logging
import os
import resource
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kedge.storage import sqlite
from kedge.storage.lockfile import StoreInUse, hold
from kedge.storage.reserve import LAST_BYTES, LOG_BYTES, LOW_BYTES, STEP_BYTES, Reserve
from kedge.storage.sqlite import (
    SLACK,
    SqliteStore,
    UnknownLayout,
    WriteAheadLog,
    Writer,
    WriterTask,
)
from kedge.storage.store import (
    DISK_FULL,
    DiskFull,
    RevisionCompacted,
    StoreClosed,
    StoreDamaged,
    StoreEntry,
    StoreError,
    StoreEvent,
)
from kedge.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "kedge.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


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
    path: Path, clock: FakeClock
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


def open_files(path: Path) -> list[str]:
    """The files in the directory of a store that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [each for each in found if each.startswith(f"{path.parent}/")]


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


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def replace_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def make_file(path: Path, content: str) -> bytes:
    path.parent.mkdir(exist_ok=True)
    if content == "text":
        path.write_text("dear diary, " * 100)
    else:
        connection = sqlite3.connect(path)
        connection.execute(content)
        connection.commit()
        connection.close()
    return bytes_of(path)


async def test_a_file_of_another_layout_is_refused_untouched(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    before = make_file(path, "PRAGMA user_version = 7")
    with pytest.raises(
        UnknownLayout, match=r"layout 7.*only layout 1: nothing was changed"
    ) as refusal:
        await SqliteStore.open(path, clock)
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, 7, 1)
    assert bytes_of(path) == before


@pytest.mark.parametrize("content", ["text", "CREATE TABLE diary (day)"])
async def test_a_file_that_is_no_store_is_refused_untouched(
    path: Path, clock: FakeClock, content: str
) -> None:
    before = make_file(path, content)
    with pytest.raises(UnknownLayout, match="is not a kedge store, and"):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == before


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


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


class Faulty:
    """A connection on which a statement fails with an error code of SQLite."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
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
            raise failure(code)
        if code := self.fails(statement, values):
            raise failure(code)
        if statement.startswith("INSERT"):
            self.rows.append(len(values) // 7)
        return self._real.execute(statement, values)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Faulty]:
    """All connections of a store: those of its reader, its writer and its log."""
    opened: list[Faulty] = []
    connect = sqlite.connect

    def faulty(path: Path) -> Faulty:
        opened.append(Faulty(connect(path)))
        return opened[-1]

    monkeypatch.setattr(sqlite, "connect", faulty)
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
    monkeypatch.setattr(sqlite, "GROUP", 3)
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
    path: Path, clock: FakeClock, connections: list[Faulty]
) -> None:
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

    monkeypatch.setattr(sqlite, "checkpoint", emptied)
    monkeypatch.setattr(Writer, "_run_full", lambda writer: pytest.fail("the log had space"))
    for each in connections:
        each.fails = lambda statement, values: (
            sqlite3.SQLITE_FULL if full and statement.startswith("INSERT") else 0
        )
    assert (await store.put("/a", b"1", expect=0)).revision == 2
    await store.close()


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
        patch.setattr(sqlite, "connect", fail)
        with pytest.raises(StoreError, match=message) as refusal:
            await SqliteStore.open(path, clock)
    assert type(refusal.value) is kind
    assert open_files(path) == []
    await (await SqliteStore.open(path, clock)).close()


def test_a_lack_of_space_while_opening_is_an_error_of_the_system(path: Path) -> None:
    found = sqlite.refusal(path, failure(sqlite3.SQLITE_FULL))
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, str(path))
    assert isinstance(sqlite.refusal(path, failure(sqlite3.SQLITE_NOTADB)), UnknownLayout)
    assert isinstance(sqlite.refusal(path, failure(sqlite3.SQLITE_CORRUPT)), StoreDamaged)
    assert str(sqlite.refusal(path, failure(sqlite3.SQLITE_IOERR))) == f"{path}: disk I/O error"


def test_a_file_that_is_no_database_is_not_made_one(path: Path) -> None:
    before = make_file(path, "text")
    with pytest.raises(UnknownLayout):
        sqlite.open_first(path)
    assert bytes_of(path) == before
    assert open_files(path) == []


def test_connections_flush_each_commit_and_leave_the_log_to_the_store(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite.connect(path)) as connection:
        found = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "wal_autocheckpoint", "journal_size_limit")
        ]
    full = 2
    assert found == [full, 0, 2 * sqlite.RESTART_BYTES]


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


async def test_history_is_read_in_pieces_of_so_many_bytes(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path, clock)
    entry = await store.put("/a", b"xxxx", expect=0)
    for _ in range(5):
        entry = await store.put("/a", b"xxxx", expect=entry.revision)
    monkeypatch.setattr(sqlite, "CHUNK_BYTES", 12)
    with closing(sqlite.connect(path)) as connection:
        pieces = sqlite.replay(connection, "", 1, entry.revision)
        monkeypatch.setattr(sqlite, "CHUNK_BYTES", 13)
        longer = sqlite.replay(connection, "", 1, entry.revision)
    assert [event.entry.revision for event in pieces] == [2, 3]
    assert [event.entry.revision for event in longer] == [2, 3, 4]
    monkeypatch.setattr(sqlite, "CHUNK_BYTES", 12)
    monkeypatch.setattr(sqlite, "CHUNK", 1)
    events = []
    async with aclosing(store.watch("", since=1)) as watch:
        async for event in watch:
            events.append(event.entry.revision)
            if len(events) == 6:
                break
    assert events == [2, 3, 4, 5, 6, 7]
    await store.close()


async def test_a_file_that_others_could_read_becomes_private(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    os.chmod(path, 0o644)
    await (await SqliteStore.open(path, clock)).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_a_file_that_was_refused_is_not_in_use(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    make_file(path, "PRAGMA user_version = 7")
    for _ in range(2):
        with pytest.raises(UnknownLayout):
            await SqliteStore.open(path, clock)
    make_file(path, "PRAGMA user_version = 1")
    await (await SqliteStore.open(path, clock)).close()


async def test_the_log_does_not_grow_for_ever(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "COPY_BYTES", 200_000)
    monkeypatch.setattr(sqlite, "RESTART_BYTES", 800_000)
    store = await SqliteStore.open(path, clock)
    for turn in range(60):
        await asyncio.gather(*(store.put(f"/{turn}/{i}", b"x" * 3000, expect=0) for i in range(20)))
    size = path.with_name("kedge.db-wal").stat().st_size
    await store.close()
    assert size < 5_000_000


class Checkpoints:
    """Notes the connections whose log is copied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: list[sqlite3.Connection] = []
        self.came = threading.Event()
        monkeypatch.setattr(sqlite, "checkpoint", self._note)

    def _note(self, connection: sqlite3.Connection) -> None:
        self.of.append(connection)
        self.came.set()


async def test_the_rest_of_the_log_is_copied_when_all_is_quiet(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "QUIET", 0.01)
    store = await SqliteStore.open(path, clock)
    done = Checkpoints(monkeypatch)
    await store.put("/a", b"1", expect=0)
    assert await asyncio.to_thread(done.came.wait, 10)
    await store.close()


def test_the_log_is_copied_by_a_side_thread_and_now_and_then_by_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    page = 8192
    monkeypatch.setattr(sqlite, "COPY_BYTES", 2 * page)
    monkeypatch.setattr(sqlite, "RESTART_BYTES", 4 * page)
    done = Checkpoints(monkeypatch)
    with closing(sqlite.connect(path)) as writing, closing(WriteAheadLog(path)) as log:
        side = log._connection

        def tended(*, quiet: bool = False) -> list[sqlite3.Connection]:
            """Tend the log and wait for its side thread; return the checkpoints of it."""
            done.of.clear()
            log.tend(writing, quiet=quiet)
            if log._copying is not None:
                log._copying.result()
            return [*done.of]

        assert not log.untidy
        assert tended() == []
        log.grew(page - 1, 0)
        assert log.untidy
        log.grew(0, 1)
        assert tended() == []
        log.grew(1, 0)
        assert tended() == [side, side]
        assert tended() == []
        log.grew(0, 2)
        assert tended() == [side, side]
        assert tended() == [writing]
        assert not log.untidy
        log.grew(1, 0)
        assert log.untidy
        assert tended(quiet=True) == [writing]
        assert not log.untidy
        log.grew(0, 2)
        log.tend(writing, quiet=False)
        done.of.clear()
        log.flush(writing)
        assert done.of[-1] is writing
        assert not log.untidy
        assert tended() == []


async def test_a_store_whose_lock_file_was_removed_learns_anew_how_far_it_got(
    path: Path, clock: FakeClock
) -> None:
    await (await SqliteStore.open(path, clock)).close()
    older = bytes_of(path)
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    await store.close()
    os.unlink(f"{path}.lock")
    await (await SqliteStore.open(path, clock)).close()
    replace_file(path, older)
    with pytest.raises(StoreDamaged, match="it ends at revision 1, but writes up to 2 were acknow"):
        await SqliteStore.open(path, clock)


async def test_writes_that_were_acknowledged_and_are_gone_are_missed(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    await store.close()
    older = bytes_of(path)
    store = await SqliteStore.open(path, clock)
    await store.put("/b", b"1", expect=0)
    await store.close()
    replace_file(path, older)
    with pytest.raises(StoreDamaged, match="it ends at revision 2, but writes up to 3 were acknow"):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == older
    os.unlink(f"{path}.lock")
    store = await SqliteStore.open(path, clock)
    assert store.revision == 2
    await store.close()


async def test_a_file_that_was_cut_off_is_refused_untouched(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    replace_file(path, before := bytes_of(path)[:-4096])
    sizes = f"it was cut off after {len(before)} of {len(before) + 4096} bytes"
    with pytest.raises(StoreDamaged, match=sizes):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == before


def test_the_largest_pages_are_counted_too(path: Path) -> None:
    path.parent.mkdir()
    header = b"SQLite format 3\0" + (1).to_bytes(2, "big") + bytes(10) + (2).to_bytes(4, "big")
    replace_file(path, header.ljust(131_072))
    sqlite.check_files(path)
    replace_file(path, header.ljust(131_071))
    with pytest.raises(StoreDamaged, match="cut off after 131071 of 131072 bytes"):
        sqlite.check_files(path)


class Inspected:
    """A connection whose file has a fault."""

    def execute(self, statement: str) -> Any:
        return self

    def fetchone(self) -> tuple[str]:
        return ("row 1 missing\nfrom index",)


async def test_a_file_with_a_fault_is_refused_up_to_a_size(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SqliteStore.open(path, clock)).close()
    connection: Any = Inspected()
    size = len(bytes_of(path))
    with closing(hold(path)) as held:
        monkeypatch.setattr(sqlite, "CHECKED_BYTES", size)
        with pytest.raises(StoreDamaged, match=r"damaged: row 1 missing from index\. Nothing was"):
            sqlite.check_content(connection, held)
        monkeypatch.setattr(sqlite, "CHECKED_BYTES", size - 1)
        monkeypatch.setattr(sqlite, "head", lambda connection: held.reached)
        sqlite.check_content(connection, held)


async def test_a_log_without_its_file_is_refused(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    log = bytes_of(path.with_name("kedge.db-wal"))
    await store.close()
    replace_file(path.with_name("kedge.db-wal"), log)
    why = "is damaged: it is missing or empty, though its write-ahead log holds writes. Nothing"
    replace_file(path, b"")
    with pytest.raises(StoreDamaged, match=why):
        await SqliteStore.open(path, clock)
    os.unlink(path)
    with pytest.raises(StoreDamaged, match=why):
        await SqliteStore.open(path, clock)
