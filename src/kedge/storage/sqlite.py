"""SqliteStore: the store in one SQLite file; one thread writes it, another reads it."""

import asyncio
import builtins
import copy
import errno
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

from kedge.machinery import reserve_files
from kedge.machinery.clock import Clock
from kedge.storage import statements as sql
from kedge.storage.expiry import Expiry, milliseconds
from kedge.storage.feed import Feeds
from kedge.storage.lockfile import StoreLock, hold
from kedge.storage.reserve import (
    LAST_BYTES,
    LOW_BYTES,
    STEP_BYTES,
    Reserve,
    allocate_log,
    row_bytes,
)
from kedge.storage.store import (
    DISK_FULL,
    FIRST_REVISION,
    DiskFull,
    FutureRevision,
    RevisionCompacted,
    RevisionConflict,
    StoreClosed,
    StoreDamaged,
    StoreEntry,
    StoreError,
    StoreEvent,
    StorePage,
    check_key,
    delete_event,
    prefix_end,
    put_event,
)

GROUP = 512
"""Most writes that share one commit."""
CHUNK = 256
CHUNK_BYTES = 8 << 20
"""History is read in pieces of at most so many events, and of about so many bytes."""
"""Keys expired or events replayed in one batch, so that other work waits only briefly."""
COMPACTION_STEP = 32
"""Revisions compacted in one go: about a millisecond, which is what a writer then waits longer."""
COPY_BYTES = 8 << 20
"""Log written until a side thread copies it into the file, which disturbs no writer."""
RESTART_BYTES = 32 << 20
"""Log written until the writer itself copies the rest, so that the log starts over."""
QUIET = 1.0
"""Seconds without a write after which the writer copies the rest of the log."""
FATAL = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_FSYNC}
"""Errors after which the file cannot be trusted to take further writes."""
FULL = {
    sqlite3.SQLITE_FULL,
    # A quota or a file size limit has the same effect as a full disk.
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
"""Errors that mean that there is no space."""
SLACK = 4096
"""Bytes by which an object may grow on a full disk: a status, a deletion timestamp."""
RELIEF_STEPS = 32
"""Compactions in one go on a full disk."""
WAL_MAGIC = 0x377F0682
"""The first bytes of a write-ahead log, except the last bit."""
CHECKED_BYTES = 32 << 20
"""A file up to this size is checked completely when it is opened; larger ones where they are
read."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Row = tuple[int, str, int, int, bool, bytes, int]
Outcome = tuple[asyncio.Future[Any], Any]
Deliver = Callable[[Sequence[StoreEvent], Sequence[Outcome]], None]


class UnknownLayout(StoreError):
    """The file was written by another version of kedge, or by something else."""

    def __init__(self, path: Path, found: int | None) -> None:
        what = "is not a kedge store" if found is None else f"has storage layout {found}"
        super().__init__(
            f"{path} {what}, and this kedge reads only layout {sql.LAYOUT}: nothing was changed."
            " Start the version of kedge that wrote the file, put the right file back, or begin"
            " anew with 'kedge down --purge'"
        )
        self.path = path
        self.found = found
        self.expected = sql.LAYOUT


class Write:
    """A put or, without a value, a deletion, waiting for the writer."""

    __slots__ = ("deadline", "expect", "future", "key", "value")

    def __init__(
        self, key: str, value: bytes | None, expect: int, deadline: int, future: asyncio.Future[Any]
    ) -> None:
        self.key = key
        self.value = value
        self.expect = expect
        self.deadline = deadline
        self.future = future

    def event(self, current: StoreEntry | None, revision: int) -> StoreEvent:
        if self.value is None:
            return delete_event(current, self.key, self.expect, revision)
        return put_event(current, self.key, self.value, self.expect, revision)


class WriterTask:
    """Anything else the writer does between two groups; yields events and a result."""

    __slots__ = ("future", "work")

    def __init__(
        self, work: Callable[[], tuple[list[StoreEvent], Any]], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.future = future


class Writer:
    """The thread that owns the writing connection: groups queued writes into one durable commit."""

    def __init__(self, held: StoreLock, deliver: Deliver) -> None:
        """`deliver` is called on the thread after each commit, with its events and outcomes."""
        path = held.path
        self._path = path
        self._held = held
        self._connection = connect(path)
        self._deliver = deliver
        self._queue: SimpleQueue[Write | WriterTask | None] = SimpleQueue()
        self._log = WriteAheadLog(path)
        self.broken = ""
        """Why all writes are refused; empty if they are not."""
        self.full = False
        """Whether only deletions and small changes are accepted, until there is space."""
        self.head = head(self._connection)
        held.reach(self.head)
        self._reserve = Reserve(path, self._connection)
        allocate_log(path)
        self._relieve()
        self._thread = Thread(target=self._run, name="kedge-store-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Write | WriterTask) -> None:
        self._queue.put(request)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._log.close()
        self._connection.close()
        self._reserve.close()

    def sweep(self, now: int) -> tuple[list[StoreEvent], int | None]:
        """A chore: delete some keys that are due; the result is the next deadline."""
        keys = [key for (key,) in self._connection.execute(sql.DUE, (now, CHUNK))]
        entries = self._lookup(keys)
        events = [
            delete_event(entries[key], key, entries[key].revision, revision)
            for revision, key in enumerate(keys, self.head + 1)
        ]
        self._save([row(event, 0) for event in events])
        return events, self._connection.execute(sql.NEXT_DEADLINE).fetchone()[0]

    def compact(self, revision: int) -> tuple[list[StoreEvent], int]:
        """A chore: compact a few revisions, at most to that one; the result is how far it got."""
        since = compacted(self._connection)
        until = min(since + COMPACTION_STEP, revision)
        if until <= since:
            return [], since
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in sql.COMPACT:
            self._connection.execute(statement, {"since": since, "until": until})
        self._connection.execute("COMMIT")
        self._log.grew(0, until - since)
        return [], until

    def _run(self) -> None:
        stopping = False
        while not stopping:
            requests = self._take()
            stopping = None in requests
            if writes := [request for request in requests if isinstance(request, Write)]:
                self._commit(writes)
            for request in requests:
                if isinstance(request, WriterTask):
                    self._do(request)
            self._log.tend(self._connection, quiet=not requests)
            if self.full:
                self._relieve()

    def _take(self) -> list[Write | WriterTask | None]:
        """Return queued writes, up to one group; empty if idle while the log needs a checkpoint."""
        taken: list[Write | WriterTask | None] = []
        try:
            waits = self._log.untidy or self.full
            taken.append(self._queue.get(timeout=QUIET if waits else None))
            while len(taken) < GROUP:
                taken.append(self._queue.get_nowait())
        except Empty:
            pass
        return taken

    def _commit(self, writes: Sequence[Write]) -> None:
        try:
            events, outcomes = self._attempt(lambda: self._write(writes))
        except DiskFull as error:
            if len(writes) > 1:
                # The log has space for fewer: one large write must not fail the others.
                middle = len(writes) // 2
                self._commit(writes[:middle])
                self._commit(writes[middle:])
                return
            events, outcomes = [], [(write.future, error) for write in writes]
        except StoreError as error:
            events, outcomes = [], [(write.future, _copy_of(error)) for write in writes]
        self._deliver(events, outcomes)

    def _do(self, chore: WriterTask) -> None:
        events: list[StoreEvent] = []
        try:
            events, result = self._attempt(chore.work)
        except StoreError as error:
            result = error
        self._deliver(events, [(chore.future, result)])

    def _attempt(self, work: Callable[[], T]) -> T:
        """Do the work; on a full disk retry after a checkpoint, then retry with the space
        reserved for deletions."""
        for remedy in (self._make_room, self._run_full):
            try:
                return self._try(work)
            except DiskFull:
                remedy()
        return self._try(work)

    def _make_room(self) -> None:
        self._log.flush(self._connection)

    def _run_full(self) -> None:
        if not self.full:
            self.full = True
            log.error("disk full path=%s accepted=deletions and small changes", self._path)
        self._relieve()

    def _relieve(self) -> None:
        """Accept all writes again if there is space, on the disk or by compacting history."""
        try:
            # More than staying normal needs, so that the state does not flip with every write.
            if self._reserve.measure() < (LOW_BYTES + STEP_BYTES // 8 if self.full else LOW_BYTES):
                self._reserve.grow()
        except (OSError, sqlite3.Error) as error:
            self._undo(error)
            self.full = True
            self._forget()
        else:
            self._take_all()

    def _forget(self) -> None:
        """Compact all history: objects are worth more."""
        for _ in range(RELIEF_STEPS):
            try:
                if self.compact(self.head)[1] >= self.head:
                    break
            except sqlite3.Error as error:
                self._undo(error)
                break
        self._log.flush(self._connection)
        self._reserve.measure()

    def _take_all(self) -> None:
        if self.full:
            log.warning("disk no longer full path=%s accepted=everything", self._path)
        self.full = False
        allocate_log(self._path)

    def _try(self, work: Callable[[], T]) -> T:
        if self.broken:
            raise StoreError(self.broken)
        try:
            return work()
        except Exception as error:
            raise self._undo(error) from error

    def _undo(self, error: Exception) -> StoreError:
        """Roll back after a failure; if the file is in doubt even then, take no more writes."""
        message = f"{self._path}: {error}"
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            doubtful = head(self._connection) != self.head or is_fatal(error)
        except sqlite3.Error:
            doubtful = True
        if doubtful:
            self.broken = f"{message}; no more writes are taken until kedge is restarted"
        elif is_full(error):
            return no_space(self._path)
        return StoreError(self.broken or message)

    def _write(self, writes: Sequence[Write]) -> tuple[list[StoreEvent], list[Outcome]]:
        entries: dict[str, StoreEntry | None] = {**self._lookup({write.key for write in writes})}
        events: list[StoreEvent] = []
        rows: list[Row] = []
        outcomes: list[Outcome] = []
        for write in writes:
            try:
                event = write.event(entries.get(write.key), self.head + len(events) + 1)
                self._check_room(event)
            except (RevisionConflict, DiskFull) as refusal:
                outcomes.append((write.future, refusal))
                continue
            entries[write.key] = None if write.value is None else event.entry
            events.append(event)
            rows.append(row(event, write.deadline))
            outcomes.append((write.future, event.entry))
        self._save(rows)
        return events, outcomes

    def _check_room(self, event: StoreEvent) -> None:
        """On a full disk accept only deletions and writes that hardly grow an object, such as
        leases and statuses."""
        if not self.full or event.kind == "delete":
            return
        before, after = event.previous, event.entry
        small = before is not None and len(after.value) <= len(before.value) + SLACK
        if not small or self._reserve.free < LAST_BYTES:
            raise no_space(self._path)

    def _lookup(self, keys: Iterable[str]) -> dict[str, StoreEntry]:
        return {
            values[0]: StoreEntry(*values)
            for part in parts(list(keys))
            for values in self._connection.execute(sql.LOOKUPS[len(part)], part)
        }

    def _save(self, rows: Sequence[Row]) -> None:
        """Make the rows durable, all or none."""
        if not rows:
            return
        size = sum(row_bytes(values[5]) for values in rows)
        if self.full:
            self._reserve.free -= size
        else:
            self._reserve.spend(size)
        if len(rows) <= sql.MOST:
            self._insert(rows)  # by itself all or none
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for part in parts(rows):
                self._insert(part)
            self._connection.execute("COMMIT")
        self.head = rows[-1][0]
        self._held.reach(self.head)
        if self._reserve.free < 0:
            self._reserve.settle()
        self._log.grew(sum(len(values[5]) for values in rows), len(rows))

    def _insert(self, rows: Sequence[Row]) -> None:
        self._connection.execute(sql.INSERTS[len(rows)], [*chain.from_iterable(rows)])


class WriteAheadLog:
    """Keeps the write-ahead log short without writers having to wait for it.

    A side thread copies most of the log into the file. Only when nothing at all is left to copy can
    the log start over, so now and then the writer copies the little that came in meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._side = ThreadPoolExecutor(1, "kedge-store-log")
        self._copying: Future[None] | None = None
        self._since_copy = 0
        self._since_restart = 0

    @property
    def untidy(self) -> bool:
        return self._since_restart > 0

    def grew(self, value_bytes: int, changes: int) -> None:
        # About two pages per change besides the value; SQLite does not tell the exact figure.
        grown = value_bytes + changes * 8192
        self._since_copy += grown
        self._since_restart += grown

    def tend(self, writing: sqlite3.Connection, *, quiet: bool) -> None:
        """Called by the writer between two groups, and when it has nothing to do."""
        if self._copying is not None and not self._copying.done():
            return
        if quiet or (self._copying is not None and self._since_restart >= RESTART_BYTES):
            self._since_copy = self._since_restart = 0
            checkpoint(writing)
        self._copying = None
        if self._since_copy >= COPY_BYTES:
            self._since_copy = 0
            self._copying = self._side.submit(self._copy)

    def flush(self, writing: sqlite3.Connection) -> None:
        """Checkpoint the whole log, so that the next write starts at its beginning."""
        if self._copying is not None:
            self._copying.result()
            self._copying = None
        self._since_copy = self._since_restart = 0
        checkpoint(writing)

    def close(self) -> None:
        self._side.shutdown()
        self._connection.close()

    def _copy(self) -> None:
        # The second round is short, and leaves next to nothing for the writer.
        checkpoint(self._connection)
        checkpoint(self._connection)


class SqliteStore:
    """Implements the Store protocol; create one with `await SqliteStore.open(path, clock)`."""

    def __init__(self, held: StoreLock, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._held = held
        self._path = held.path
        self._loop = loop
        self._reading = connect(self._path)
        self._reader = ThreadPoolExecutor(1, "kedge-store-reader")
        self._writer = Writer(held, self._deliver)
        self._feeds = Feeds(self._writer.head)
        self._expiry = Expiry(clock, self._sweep)
        self._closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> Self:
        """Open the file, creating it and its directory if need be."""
        loop = asyncio.get_running_loop()
        store = await asyncio.to_thread(cls._open, path, clock, loop)
        store._expiry.expect(milliseconds(clock.now()))
        return store

    @classmethod
    def _open(cls, path: Path, clock: Clock, loop: asyncio.AbstractEventLoop) -> Self:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = hold(path)
        try:
            # Open until the others are: closing the last connection deletes the log, and its
            # space may be gone on a full disk.
            with closing(checked(held)):
                return cls(held, clock, loop)
        except sqlite3.Error as error:
            held.close()
            raise failure_of(path, error) from error
        except BaseException:
            held.close()
            raise

    @property
    def revision(self) -> int:
        return self._feeds.revision

    @property
    def failure(self) -> str:
        if self._writer.broken:
            return "the file is in doubt"
        return DISK_FULL if self._writer.full else ""

    async def get(self, key: str) -> StoreEntry | None:
        entry = await self._read(lambda: one(self._reading, key))
        if entry is not None:
            await self._catch_up(entry.revision)
        return entry

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        if at > self.revision:
            raise FutureRevision(at, self.revision)
        page = await self._read(lambda: page_of(self._reading, prefix, at, after, limit))
        await self._catch_up(page.revision)
        return page

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        check_key(key)
        if deadline := self._expiry.deadline(ttl):
            self._expiry.expect(deadline)
        return await self._write(key, value, expect, deadline)

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        return await self._write(key, None, expect, 0)

    async def compact(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        while await self._have_done(lambda: self._writer.compact(revision)) < revision:
            pass

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        return self._feeds.watch(prefix, since, self._replay)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._expiry.close()
        await asyncio.to_thread(self._let_go)
        self._feeds.close()

    def _let_go(self) -> None:
        self._reader.shutdown()
        self._reading.close()
        self._writer.close()
        self._held.close()

    async def _write(self, key: str, value: bytes | None, expect: int, deadline: int) -> StoreEntry:
        if self._closed:
            raise StoreClosed
        future: asyncio.Future[StoreEntry] = self._loop.create_future()
        self._writer.submit(Write(key, value, expect, deadline, future))
        return await future

    async def _have_done(self, work: Callable[[], tuple[builtins.list[StoreEvent], T]]) -> T:
        if self._closed:
            raise StoreClosed
        future: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit(WriterTask(work, future))
        return await future

    async def _read(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosed
        try:
            return await self._loop.run_in_executor(self._reader, work)
        except sqlite3.Error as error:
            raise failure_of(self._path, error) from error

    async def _catch_up(self, revision: int) -> None:
        """Wait until watchers have been given the revision, which a reader may see before them."""
        if revision > self.revision:
            await self._have_done(lambda: ([], None))

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        return await self._read(lambda: replay(self._reading, prefix, since, until))

    async def _sweep(self, now: int) -> int | None:
        return await self._have_done(lambda: self._writer.sweep(now))

    def _deliver(self, events: Sequence[StoreEvent], outcomes: Sequence[Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, events, outcomes)
        except RuntimeError:
            log.warning("store outlived its event loop events=%d", len(events))

    def _settle(self, events: Sequence[StoreEvent], outcomes: Sequence[Outcome]) -> None:
        self._feeds.publish(events)
        for future, outcome in outcomes:
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def checked(held: StoreLock) -> sqlite3.Connection:
    """Open the file after checking that it is undamaged and has our layout; makes a new one."""
    path = held.path
    check_files(path)
    # SQLite gives its own files beside this one the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)
    if path.stat().st_size > 0:
        reserve_files.with_room(path.parent, lambda: look_through(held))
    return reserve_files.with_room(path.parent, lambda: open_first(path))


def look_through(held: StoreLock) -> None:
    """Raise the error if the file is damaged. Opens it read-only: closing a writable connection
    would checkpoint the log, and destroy the rest of a torn one."""
    path = held.path
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            if not is_new(connection):
                check_layout(path, *identity(connection))
                check_content(connection, held)
        except sqlite3.DatabaseError as error:
            raise refusal(path, error) from error


def check_files(path: Path) -> None:
    """Raise StoreDamaged if the files' sizes and headers cannot be those of a store."""
    size, header = start_of(path)
    _, log_header = start_of(Path(f"{path}-wal"))
    logged = int.from_bytes(log_header[:4], "big") & ~1 == WAL_MAGIC
    if size == 0 and logged:
        raise damaged(path, "it is missing or empty, though its write-ahead log holds writes")
    # With a log, the file may not have all pages yet.
    pages, page_bytes = int.from_bytes(header[28:32], "big"), int.from_bytes(header[16:18], "big")
    expected = pages * (65536 if page_bytes == 1 else page_bytes)
    if header.startswith(b"SQLite format 3\0") and not logged and size < expected:
        raise damaged(path, f"it was cut off after {size} of {expected} bytes")


def start_of(path: Path) -> tuple[int, bytes]:
    """Return the size and the first bytes of a file; 0 and nothing if it does not exist."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(100)
    except FileNotFoundError:
        return 0, b""


def open_first(path: Path) -> sqlite3.Connection:
    """Open the file; a new one gets our layout."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if is_new(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(sql.SCHEMA)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise refusal(path, error) from error
    return connection


def refusal(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """Return the error if the file cannot be opened; lack of space becomes an OSError, for
    `with_room`."""
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return UnknownLayout(path, None)
    if is_full(error):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return failure_of(path, error)


def check_layout(path: Path, application: int, layout: int) -> None:
    if application != sql.APPLICATION:
        raise UnknownLayout(path, None)
    if layout != sql.LAYOUT:
        raise UnknownLayout(path, layout)


def check_content(connection: sqlite3.Connection, held: StoreLock) -> None:
    """Raise StoreDamaged if pages are inconsistent, or if acknowledged writes are lost."""
    path = held.path
    if path.stat().st_size <= CHECKED_BYTES:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(path, found.replace("\n", " "))
    if (newest := head(connection)) < held.reached:
        raise damaged(
            path,
            f"it ends at revision {newest}, but writes up to {held.reached} were acknowledged:"
            f" its write-ahead log {path.name}-wal is missing or cut off, or the file is an older"
            " copy",
        )


def damaged(path: Path, why: str) -> StoreDamaged:
    name = path.name
    return StoreDamaged(
        f"{path}, which holds all objects of the cluster, is damaged: {why}. Nothing was changed."
        f" Put back a copy of the directory, or of {name} alone, and then remove {name}-wal,"
        f" {name}-shm and {name}.lock; to go on with what is there, remove {name}.lock; 'sqlite3"
        f" {name} .recover' prints what can be read of a file that cannot be opened; 'kedge down"
        " --purge' deletes the cluster, to begin anew"
    )


def no_space(path: Path) -> DiskFull:
    return DiskFull(
        f"the disk that holds {path} is full: objects can still be deleted, and written again once"
        " there is space"
    )


def failure_of(path: Path, error: sqlite3.Error) -> StoreError:
    if is_fatal(error):
        return damaged(path, str(error))
    return no_space(path) if is_full(error) else StoreError(f"{path}: {error}")


def is_new(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return tables == 0 and identity(connection) == (0, 0)


def identity(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    return application, layout


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=4 * sql.MOST
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    # A log that is written over is faster than one that grows, so this much of it is left standing.
    connection.execute(f"PRAGMA journal_size_limit = {2 * RESTART_BYTES}")
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy what can be copied from the log into the file without making anybody wait."""
    try:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error as error:
        # Nothing is lost: the log keeps what was not copied, and the next round tries again.
        log.warning("checkpoint failed error=%s", error)


def is_fatal(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code in FATAL or code & 0xFF in FATAL


def is_full(error: Exception) -> bool:
    """Return whether the error is a lack of space."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (
        code in FULL
        or isinstance(error, DiskFull)
        or reserve_files.is_full(error)
        or (isinstance(error, OSError) and error.errno == errno.EFBIG)
    )


def _copy_of(error: StoreError) -> StoreError:
    """Copy the exception, since each waiter raises its own."""
    return copy.copy(error)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in stretches of as many as a statement takes."""
    for start in range(0, len(items), sql.MOST):
        yield items[start : start + sql.MOST]


def row(event: StoreEvent, deadline: int) -> Row:
    entry, previous = event.entry, event.previous
    deleted = event.kind == "delete"
    value = b"" if deleted else entry.value
    replaced = previous.revision if previous else 0
    return entry.revision, entry.key, entry.created, replaced, deleted, value, deadline


def head(connection: sqlite3.Connection) -> int:
    return max(int(connection.execute(sql.HEAD).fetchone()[0]), FIRST_REVISION)


def compacted(connection: sqlite3.Connection) -> int:
    return int(connection.execute(sql.COMPACTED).fetchone()[0])


def one(connection: sqlite3.Connection, key: str) -> StoreEntry | None:
    found = connection.execute(sql.LOOKUPS[1], (key,)).fetchone()
    return StoreEntry(*found) if found else None


def page_of(
    connection: sqlite3.Connection, prefix: str, at: int, after: str, limit: int
) -> StorePage:
    with snapshot(connection):
        revision = at or head(connection)
        check_kept(connection, revision)
        wanted = bounds(prefix, after) | {"at": revision, "limit": limit or -1}
        entries = [StoreEntry(*values) for values in connection.execute(sql.LIST, wanted)]
        remaining = 0
        if limit and len(entries) == limit:
            wanted |= bounds(prefix, entries[-1].key)
            (remaining,) = connection.execute(sql.COUNT, wanted).fetchone()
    return StorePage(entries, revision, remaining > 0, remaining)


def replay(connection: sqlite3.Connection, prefix: str, since: int, until: int) -> list[StoreEvent]:
    with snapshot(connection):
        check_kept(connection, since)
        wanted = bounds(prefix) | {"since": since, "until": until, "limit": CHUNK}
        events, size = [], 0
        for values in connection.execute(sql.REPLAY, wanted):
            events.append(event := past(values))
            size += len(event.entry.value) + len(event.previous.value if event.previous else b"")
            if size >= CHUNK_BYTES:
                break
        return events


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all reads inside see the same moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def check_kept(connection: sqlite3.Connection, revision: int) -> None:
    if revision < (oldest := compacted(connection)):
        raise RevisionCompacted(revision, oldest)


def bounds(prefix: str, after: str = "") -> dict[str, Any]:
    # No key holds NUL, so this is the first possible one after `after`. To SQLite every blob is
    # greater than any text, hence an end for the range that has none.
    first = max(prefix, f"{after}\0") if after else prefix
    return {"first": first, "end": prefix_end(prefix) or b""}


def past(values: Sequence[Any]) -> StoreEvent:
    """The event of one row of history."""
    key, revision, created, deleted, value, previous, previous_created, replaced = values
    before = StoreEntry(key, replaced, previous, previous_created) if previous else None
    if deleted:
        return StoreEvent("delete", StoreEntry(key, replaced, revision, created), before)
    return StoreEvent("put", StoreEntry(key, value, revision, created), before)
