"""SqliteStore: the store in one SQLite file; one thread writes it, another reads it."""

import asyncio
import builtins
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

from kedge.machinery.clock import Clock
from kedge.storage import statements as sql
from kedge.storage.expiry import Expiry, milliseconds
from kedge.storage.feed import Feeds
from kedge.storage.lockfile import hold
from kedge.storage.store import (
    FIRST_REVISION,
    Closed,
    Compacted,
    Conflict,
    Entry,
    Event,
    FutureRevision,
    Page,
    StoreError,
    check_key,
    delete_event,
    prefix_end,
    put_event,
)

GROUP = 512
"""Most writes that share one commit."""
CHUNK = 256
"""Keys expired or events replayed in one go, so that nobody waits long."""
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

log = logging.getLogger(__name__)
T = TypeVar("T")
Row = tuple[int, str, int, int, bool, bytes, int]
Outcome = tuple[asyncio.Future[Any], Any]
Deliver = Callable[[Sequence[Event], Sequence[Outcome]], None]


class UnknownLayout(StoreError):
    """The file was written by another version of kedge, or by something else."""

    def __init__(self, path: Path, found: int | None) -> None:
        what = "is not a kedge store" if found is None else f"has storage layout {found}"
        super().__init__(
            f"{path} {what}, and this kedge reads only layout {sql.LAYOUT}: start the version of"
            " kedge that wrote the file, or move the file away to begin with an empty store"
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

    def event(self, current: Entry | None, revision: int) -> Event:
        if self.value is None:
            return delete_event(current, self.key, self.expect, revision)
        return put_event(current, self.key, self.value, self.expect, revision)


class Chore:
    """Anything else the writer does between two groups; yields events and a result."""

    __slots__ = ("future", "work")

    def __init__(
        self, work: Callable[[], tuple[list[Event], Any]], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.future = future


class Writer:
    """The thread that owns the writing connection: groups what waits into one durable commit."""

    def __init__(self, path: Path, deliver: Deliver) -> None:
        """`deliver` is called on the thread after each commit, with its events and outcomes."""
        self._path = path
        self._connection = connect(path)
        self._deliver = deliver
        self._queue: SimpleQueue[Write | Chore | None] = SimpleQueue()
        self._log = Log(path)
        self._broken = ""
        self.head = head(self._connection)
        self._thread = Thread(target=self._run, name="kedge-store-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Write | Chore) -> None:
        self._queue.put(request)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._log.close()
        self._connection.close()

    def sweep(self, now: int) -> tuple[list[Event], int | None]:
        """A chore: delete some keys that are due; the result is the next deadline."""
        keys = [key for (key,) in self._connection.execute(sql.DUE, (now, CHUNK))]
        entries = self._lookup(keys)
        events = [
            delete_event(entries[key], key, entries[key].revision, revision)
            for revision, key in enumerate(keys, self.head + 1)
        ]
        self._save([row(event, 0) for event in events])
        return events, self._connection.execute(sql.NEXT_DEADLINE).fetchone()[0]

    def compact(self, revision: int) -> tuple[list[Event], int]:
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
                if isinstance(request, Chore):
                    self._do(request)
            self._log.tend(self._connection, quiet=not requests)

    def _take(self) -> list[Write | Chore | None]:
        """What waits, up to a group; nothing if the store fell quiet with log left to copy."""
        taken: list[Write | Chore | None] = []
        try:
            taken.append(self._queue.get(timeout=QUIET if self._log.untidy else None))
            while len(taken) < GROUP:
                taken.append(self._queue.get_nowait())
        except Empty:
            pass
        return taken

    def _commit(self, writes: Sequence[Write]) -> None:
        try:
            events, outcomes = self._attempt(lambda: self._write(writes))
        except StoreError as error:
            events, outcomes = [], [(write.future, StoreError(*error.args)) for write in writes]
        self._deliver(events, outcomes)

    def _do(self, chore: Chore) -> None:
        events: list[Event] = []
        try:
            events, result = self._attempt(chore.work)
        except StoreError as error:
            result = error
        self._deliver(events, [(chore.future, result)])

    def _attempt(self, work: Callable[[], T]) -> T:
        if self._broken:
            raise StoreError(self._broken)
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
            self._broken = f"{message}; no more writes are taken until kedge is restarted"
        return StoreError(self._broken or message)

    def _write(self, writes: Sequence[Write]) -> tuple[list[Event], list[Outcome]]:
        entries: dict[str, Entry | None] = {**self._lookup({write.key for write in writes})}
        events: list[Event] = []
        rows: list[Row] = []
        outcomes: list[Outcome] = []
        for write in writes:
            try:
                event = write.event(entries.get(write.key), self.head + len(events) + 1)
            except Conflict as conflict:
                outcomes.append((write.future, conflict))
                continue
            entries[write.key] = None if write.value is None else event.entry
            events.append(event)
            rows.append(row(event, write.deadline))
            outcomes.append((write.future, event.entry))
        self._save(rows)
        return events, outcomes

    def _lookup(self, keys: Iterable[str]) -> dict[str, Entry]:
        return {
            values[0]: Entry(*values)
            for part in parts(list(keys))
            for values in self._connection.execute(sql.LOOKUPS[len(part)], part)
        }

    def _save(self, rows: Sequence[Row]) -> None:
        """Make the rows durable, all or none."""
        if not rows:
            return
        if len(rows) <= sql.MOST:
            self._insert(rows)  # by itself all or none
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for part in parts(rows):
                self._insert(part)
            self._connection.execute("COMMIT")
        self.head = rows[-1][0]
        self._log.grew(sum(len(values[5]) for values in rows), len(rows))

    def _insert(self, rows: Sequence[Row]) -> None:
        self._connection.execute(sql.INSERTS[len(rows)], [*chain.from_iterable(rows)])


class Log:
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

    def close(self) -> None:
        self._side.shutdown()
        self._connection.close()

    def _copy(self) -> None:
        # The second round is short, and leaves next to nothing for the writer.
        checkpoint(self._connection)
        checkpoint(self._connection)


class SqliteStore:
    """Fulfils the Store protocol; `await SqliteStore.open(path, clock)` makes one."""

    def __init__(
        self, held: int, path: Path, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._held = held
        self._loop = loop
        self._reading = connect(path)
        self._reader = ThreadPoolExecutor(1, "kedge-store-reader")
        self._writer = Writer(path, self._deliver)
        self._feeds = Feeds(self._writer.head)
        self._expiry = Expiry(clock, self._sweep)
        self._closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> Self:
        """Open the file, creating it and its directory if need be."""
        loop = asyncio.get_running_loop()
        held = await asyncio.to_thread(prepare, path)
        store = await asyncio.to_thread(cls, held, path, clock, loop)
        store._expiry.expect(milliseconds(clock.now()))
        return store

    @property
    def revision(self) -> int:
        return self._feeds.revision

    async def get(self, key: str) -> Entry | None:
        entry = await self._read(lambda: one(self._reading, key))
        if entry is not None:
            await self._catch_up(entry.revision)
        return entry

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> Page:
        if at > self.revision:
            raise FutureRevision(at, self.revision)
        page = await self._read(lambda: page_of(self._reading, prefix, at, after, limit))
        await self._catch_up(page.revision)
        return page

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> Entry:
        check_key(key)
        if deadline := self._expiry.deadline(ttl):
            self._expiry.expect(deadline)
        return await self._write(key, value, expect, deadline)

    async def delete(self, key: str, *, expect: int) -> Entry:
        return await self._write(key, None, expect, 0)

    async def compact(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        while await self._have_done(lambda: self._writer.compact(revision)) < revision:
            pass

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[Event, None]:
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
        os.close(self._held)

    async def _write(self, key: str, value: bytes | None, expect: int, deadline: int) -> Entry:
        if self._closed:
            raise Closed
        future: asyncio.Future[Entry] = self._loop.create_future()
        self._writer.submit(Write(key, value, expect, deadline, future))
        return await future

    async def _have_done(self, work: Callable[[], tuple[builtins.list[Event], T]]) -> T:
        if self._closed:
            raise Closed
        future: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit(Chore(work, future))
        return await future

    async def _read(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise Closed
        try:
            return await self._loop.run_in_executor(self._reader, work)
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error

    async def _catch_up(self, revision: int) -> None:
        """Wait until watchers have been given the revision, which a reader may see before them."""
        if revision > self.revision:
            await self._have_done(lambda: ([], None))

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[Event]:
        return await self._read(lambda: replay(self._reading, prefix, since, until))

    async def _sweep(self, now: int) -> int | None:
        return await self._have_done(lambda: self._writer.sweep(now))

    def _deliver(self, events: Sequence[Event], outcomes: Sequence[Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, events, outcomes)
        except RuntimeError:
            log.warning("store outlived its event loop events=%d", len(events))

    def _settle(self, events: Sequence[Event], outcomes: Sequence[Outcome]) -> None:
        self._feeds.publish(events)
        for future, outcome in outcomes:
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def prepare(path: Path) -> int:
    """Lock the file, and see to it that it has our layout; returns what holds the lock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = hold(path)
    try:
        # SQLite gives its own files beside this one the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        check_layout(path)
        path.chmod(0o600)
    except BaseException:
        os.close(held)
        raise
    return held


def check_layout(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if is_new(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(sql.SCHEMA)
        application, layout = identity(connection)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise UnknownLayout(path, None) from error
        raise StoreError(f"{path}: {error}") from error
    finally:
        connection.close()
    if application != sql.APPLICATION:
        raise UnknownLayout(path, None)
    if layout != sql.LAYOUT:
        raise UnknownLayout(path, layout)


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


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in stretches of as many as a statement takes."""
    for start in range(0, len(items), sql.MOST):
        yield items[start : start + sql.MOST]


def row(event: Event, deadline: int) -> Row:
    entry, previous = event.entry, event.previous
    deleted = event.kind == "delete"
    value = b"" if deleted else entry.value
    replaced = previous.revision if previous else 0
    return entry.revision, entry.key, entry.created, replaced, deleted, value, deadline


def head(connection: sqlite3.Connection) -> int:
    return max(int(connection.execute(sql.HEAD).fetchone()[0]), FIRST_REVISION)


def compacted(connection: sqlite3.Connection) -> int:
    return int(connection.execute(sql.COMPACTED).fetchone()[0])


def one(connection: sqlite3.Connection, key: str) -> Entry | None:
    found = connection.execute(sql.LOOKUPS[1], (key,)).fetchone()
    return Entry(*found) if found else None


def page_of(connection: sqlite3.Connection, prefix: str, at: int, after: str, limit: int) -> Page:
    with snapshot(connection):
        revision = at or head(connection)
        check_kept(connection, revision)
        wanted = bounds(prefix, after) | {"at": revision, "limit": limit or -1}
        entries = [Entry(*values) for values in connection.execute(sql.LIST, wanted)]
        remaining = 0
        if limit and len(entries) == limit:
            wanted |= bounds(prefix, entries[-1].key)
            (remaining,) = connection.execute(sql.COUNT, wanted).fetchone()
    return Page(entries, revision, remaining > 0, remaining)


def replay(connection: sqlite3.Connection, prefix: str, since: int, until: int) -> list[Event]:
    with snapshot(connection):
        check_kept(connection, since)
        wanted = bounds(prefix) | {"since": since, "until": until, "limit": CHUNK}
        return [past(values) for values in connection.execute(sql.REPLAY, wanted)]


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
        raise Compacted(revision, oldest)


def bounds(prefix: str, after: str = "") -> dict[str, Any]:
    # No key holds NUL, so this is the first possible one after `after`. To SQLite every blob is
    # greater than any text, hence an end for the range that has none.
    first = max(prefix, f"{after}\0") if after else prefix
    return {"first": first, "end": prefix_end(prefix) or b""}


def past(values: Sequence[Any]) -> Event:
    """The event of one row of history."""
    key, revision, created, deleted, value, previous, previous_created, replaced = values
    before = Entry(key, replaced, previous, previous_created) if previous else None
    if deleted:
        return Event("delete", Entry(key, replaced, revision, created), before)
    return Event("put", Entry(key, value, revision, created), before)
