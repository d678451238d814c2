import asyncio
import errno
import os
import resource
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kedge.storage import sqlite
from kedge.storage.lockfile import StoreInUse
from kedge.storage.reserve import LAST_BYTES, Reserve
from kedge.storage.sqlite import SLACK, SqliteStore, UnknownLayout
from kedge.storage.store import DISK_FULL, DiskFull, RevisionCompacted, StoreDamaged, StoreError
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


class Faulty:
    """A connection whose next insertion fails with an error code of SQLite."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
        self.code = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if self.code and statement.startswith("INSERT"):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, self.code = self.code, 0
            raise error
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
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert [event.entry.revision for event in pieces] == [2, 3]
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
    with pytest.raises(StoreDamaged, match="it was cut off after"):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == before


async def test_a_log_without_its_file_is_refused(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    log = bytes_of(path.with_name("kedge.db-wal"))
    await store.close()
    replace_file(path.with_name("kedge.db-wal"), log)
    replace_file(path, b"")
    with pytest.raises(StoreDamaged, match="though its write-ahead log holds writes"):
        await SqliteStore.open(path, clock)
