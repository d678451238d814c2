"""SqliteStore: the store in one SQLite file; one thread writes it, another reads it."""

import asyncio
import builtins
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

from kedge.machinery.clock import Clock
from kedge.storage.expiry import Expiry, milliseconds
from kedge.storage.feed import Feeds
from kedge.storage.lockfile import StoreLock, hold
from kedge.storage.sqlite import database, rows
from kedge.storage.sqlite.write_queue import WriterTask
from kedge.storage.sqlite.writer import Outcome, Writer
from kedge.storage.store import (
    DISK_FULL,
    FutureRevision,
    PendingRevision,
    QueuedPut,
    StoreClosed,
    StoreEntry,
    StoreEvent,
    StorePage,
    check_key,
)
from kedge.storage.write_turns import Write

log = logging.getLogger(__name__)
T = TypeVar("T")


class SqliteStore:
    """Implements the Store protocol; create one with `await SqliteStore.open(path, clock)`."""

    def __init__(self, held: StoreLock, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._held = held
        self._path = held.path
        self._loop = loop
        self._reading = database.connect(self._path)
        self._reader = ThreadPoolExecutor(1, "kedge-store-reader")
        self._writer = Writer(held, self._deliver, clock.monotonic)
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
            with closing(database.checked(held)):
                return cls(held, clock, loop)
        except sqlite3.Error as error:
            held.close()
            raise database.failure_of(path, error) from error
        except BaseException:
            held.close()
            raise

    @property
    def revision(self) -> int:
        return self._feeds.revision

    async def newest(self) -> int:
        return self.revision

    @property
    def failure(self) -> str:
        if self._writer.broken:
            return "the file is in doubt"
        return DISK_FULL if self._writer.full else ""

    async def get(self, key: str) -> StoreEntry | None:
        entry = await self._read(lambda: rows.one(self._reading, key))
        if entry is not None:
            await self._catch_up(entry.revision)
        return entry

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        if at > self.revision:
            raise FutureRevision(at, self.revision)
        page = await self._read(lambda: rows.page_of(self._reading, prefix, at, after, limit))
        await self._catch_up(page.revision)
        return page

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        return await self.submit(key, value, expect=expect, ttl=ttl).entry

    def submit(
        self, key: str, value: bytes, *, expect: int | PendingRevision, ttl: int = 0
    ) -> QueuedPut:
        """Queue a put, perhaps on top of another one: `ChainingStore`."""
        check_key(key)
        if deadline := self._expiry.deadline(ttl):
            self._expiry.expect(deadline)
        return self._queue(key, value, expect, deadline)

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        return await self._queue(key, None, expect, 0).entry

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

    def _queue(
        self, key: str, value: bytes | None, expect: int | PendingRevision, deadline: int
    ) -> QueuedPut:
        if self._closed:
            raise StoreClosed
        future: asyncio.Future[StoreEntry] = self._loop.create_future()
        write = Write(key, value, expect, deadline, future)
        self._writer.submit(write)
        return QueuedPut(write.revision, future)

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
            raise database.failure_of(self._path, error) from error

    async def _catch_up(self, revision: int) -> None:
        """Wait until watchers have been given the revision, which a reader may see before them."""
        if revision > self.revision:
            await self._have_done(lambda: ([], None))

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        return await self._read(lambda: rows.replay(self._reading, prefix, since, until))

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
