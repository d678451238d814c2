"""PostgresStore: the store in a schema of a PostgreSQL database, which several servers may share.

Four connections: one writes, one reads single rows, one reads lists, and one gets notifications and
reads the events of other servers. Nothing here is remembered for longer than a request: the
database has the truth.
"""

import asyncio
import builtins
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Self

from kedge.machinery.clock import Clock, every, machine_clock
from kedge.machinery.task_group import OwnedTask
from kedge.storage.expiry import Expiry, milliseconds
from kedge.storage.feed import Feeds
from kedge.storage.postgresql import rows, schema
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind, store_error
from kedge.storage.postgresql.patience import RETRY_SECONDS, Patience
from kedge.storage.postgresql.reader import PostgresReader
from kedge.storage.postgresql.session import CALL_SECONDS, PostgresServers, PostgresSession
from kedge.storage.postgresql.statements import Statements, statements
from kedge.storage.postgresql.writer import PostgresWriter, fence, new_instance
from kedge.storage.store import (
    DISK_FULL,
    FutureRevision,
    RevisionCompacted,
    StoreClosed,
    StoreEntry,
    StoreError,
    StoreEvent,
    StorePage,
    StoreReplaced,
    StoreUnavailable,
    WriteOutcomeUnknown,
    check_key,
)

PAGE_KEYS: Final = 500
"""Keys in one answer: decoding them keeps the event loop busy for some milliseconds."""
PAGE_BYTES: Final = 8 << 20
CHUNK_EVENTS: Final = 500
CHUNK_BYTES: Final = 4 << 20
"""Events that are read from history at once, and the size of their values."""
POLL_SECONDS: Final = 5.0
"""How often the head is read if no notification comes: one may be lost, or a connection."""
COMPACTION_STEP: Final = 256
"""Changes that are compacted in one transaction. Lists wait that long; writes do not wait."""
COMPACTION_SECONDS: Final = 60.0
EXPIRED_KEYS: Final = 256
"""Keys that expire in one transaction."""
SWEEP_MILLISECONDS: Final = 60_000
"""How often keys are looked for that another server wrote, which may be gone since."""
HELLO_SECONDS: Final = 5.0
_HELLO: Final = "hello"
_LATEST: Final = (1 << 63) - 1

log = logging.getLogger(__name__)
Fetch = Callable[..., Awaitable[Sequence[Any]]]


class PostgresStore:
    """Implements the Store protocol; create one with `await PostgresStore.open(...)`."""

    def __init__(
        self, servers: PostgresServers, queries: Statements, clock: Clock, found: schema.Found
    ) -> None:
        self._servers = servers
        self._sql = queries
        self._machine = machine_clock(clock)
        self._source = found.source
        self._feeds = Feeds(found.revision)
        self._disconnected = ""
        self._closed = False
        self._end: StoreError | None = None
        """Why the database is not used any more."""
        self._notified = 0
        """The newest revision of a notification."""
        self._wakeup = asyncio.Event()
        self._greeted = asyncio.Event()
        self._instance = new_instance()
        patience = Patience(self._machine)
        self._rows = PostgresReader(PostgresSession(servers, self._check), patience)
        """For queries that read a row or two. Each request may wait for one of them."""
        self._lists = PostgresReader(PostgresSession(servers, self._check), patience)
        """For all queries that may take a while."""
        self._writer = PostgresWriter(
            PostgresSession(servers, self._begin_writing),
            queries,
            patience,
            self._machine,
            revision=lambda: self.revision,
            publish=self._publish,
            ended=lambda: self._note(0),
            token=self._instance,
        )
        self._listener = PostgresSession(servers, self._begin_listening)
        self._expiry = Expiry(clock, self._sweep)
        self._tasks: builtins.list[OwnedTask] = []

    @classmethod
    async def open(cls, connection: PostgresConnection, clock: Clock) -> Self:
        """Connect, and make the tables if there are none; raises StoreError."""
        servers = await asyncio.to_thread(PostgresServers, connection)
        queries = statements(connection.address.schema)
        found = await schema.prepare(servers, queries, machine_clock(clock))
        store = cls(servers, queries, clock, found)
        try:
            await store._listen()
            await store._fetch(queries.head)  # now, not with the first list, if too few are left
        except BaseException:
            await store.close()
            raise
        store._expiry.expect(milliseconds(clock.now()))
        return store

    @property
    def revision(self) -> int:
        return self._feeds.revision

    @property
    def failure(self) -> str:
        return self._disconnected or (DISK_FULL if self._writer.is_full else "")

    async def get(self, key: str) -> StoreEntry | None:
        found = await self._fetch_row(self._sql.get, key.encode())
        if not found:
            return None
        entry = rows.store_entry(found[0])
        # Another server may have written it just now. These are few changes, and lists take long.
        await self._catch_up(entry.revision, self._fetch_row)
        return entry

    async def newest(self) -> int:
        newest: int = (await self._fetch_row(self._sql.head))[0][0]
        return newest

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        while True:
            try:
                page = await self._page(prefix, at, after, limit)
            except RevisionCompacted:
                if at:
                    raise
                continue  # it took longer than history is kept
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
        if revision > self.revision and revision > (newest := await self.newest()):
            raise FutureRevision(revision, newest)
        reached = 0
        while reached < revision:
            found = await self._fetch(
                self._sql.compact, revision, COMPACTION_STEP, seconds=COMPACTION_SECONDS
            )
            reached = found[0][0]

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        if since <= self.revision:
            return self._feeds.watch(prefix, since, self._replay)
        return self._watch_from_future(prefix, since)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._expiry.close()
        await self._writer.close()
        for task in self._tasks:
            await task.close()
        self._listener.disconnect()
        await self._rows.close()
        await self._lists.close()
        self._feeds.close()

    # Reading.

    async def _fetch_row(self, query: str, *arguments: Any) -> Sequence[Any]:
        self._check_open()
        return await self._rows.fetch(query, *arguments)

    async def _fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        self._check_open()
        return await self._lists.fetch(query, *arguments, seconds=seconds)

    async def _page(self, prefix: str, at: int, after: str, limit: int) -> StorePage:
        first, end = rows.key_range(prefix, after)
        entries: builtins.list[StoreEntry] = []
        revision, has_more = at, True
        while has_more and (not limit or len(entries) < limit):
            wanted = min(PAGE_KEYS, limit - len(entries)) if limit else PAGE_KEYS
            query = self._sql.page_at if revision else self._sql.page_now
            found = await self._fetch(query, first, end, revision, wanted, PAGE_BYTES)
            head, compacted, fetched = found[0][:3]
            if revision > head:
                raise FutureRevision(revision, head)
            if revision and revision < compacted:
                raise RevisionCompacted(revision, compacted)
            revision = revision or head
            page = [row for row in found if row[3] is not None]
            entries += [rows.store_entry(row[3:7]) for row in page]
            has_more = fetched == wanted or len(page) < fetched
            first = page[-1][3] + b"\0" if page else first
        remaining = 0
        if has_more:
            remaining = (await self._fetch(self._sql.count_at, first, end, revision))[0][0]
        return StorePage(entries, revision, remaining > 0, remaining)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._end is not None:
            raise self._end

    # Writing.

    async def _write(self, key: str, value: bytes | None, expect: int, deadline: int) -> StoreEntry:
        self._check_open()
        return await self._writer.write(key, value, expect, deadline)

    async def _publish(self, events: Sequence[StoreEvent]) -> None:
        """Give the events of own writes to watchers, which are committed."""
        fresh = [event for event in events if event.entry.revision > self.revision]
        if not fresh:
            return
        if fresh[0].entry.revision == self.revision + 1:
            self._feeds.publish(fresh)
            return
        try:
            await self._advance(self._writer.fetch, fresh[-1].entry.revision)
        except PostgresFailure as failure:
            # The one who listens will read them.
            log.warning("events not read yet error=%s", failure)
            self._wakeup.set()

    async def _sweep(self, now: int) -> int | None:
        """Delete the keys whose time is over, of all servers."""
        newest, following = (await self._fetch(self._sql.sweep, now, EXPIRED_KEYS))[0]
        if newest is not None:
            await self._catch_up(newest)
        return min(following or _LATEST, now + SWEEP_MILLISECONDS)

    # Following.

    async def _follow(self) -> None:
        """Publish each write of other servers, also across the loss of connections."""
        try:
            while self._end is None:
                await self._follow_connection()
        except Exception as error:
            # No other task notices the end of this one.
            log.exception("postgresql is not followed any more")
            self._stop(
                WriteOutcomeUnknown(
                    f"the changes in postgresql at {self._servers.names} cannot be followed any"
                    f" more ({error!r}). A write under way may have happened; the server starts"
                    " again"
                )
            )

    async def _follow_connection(self) -> None:
        try:
            await self._follow_once()
        except PostgresFailure as failure:
            self._lost(failure, store_error(failure))
        except StoreReplaced as replaced:
            log.error("postgresql replaced error=%s", replaced)
            self._stop(replaced)
            return
        except StoreError as error:
            self._lost(error, error)
        self._listener.disconnect()
        await self._machine.sleep(RETRY_SECONDS)

    async def _follow_once(self) -> None:
        while True:
            self._wakeup.clear()
            await self._advance(self._listener.fetch, self.revision + 1)
            if self._disconnected:
                log.info("postgresql reconnected revision=%d", self.revision)
                self._disconnected = ""
            await self._wakeup.wait()

    def _lost(self, failure: StoreError, error: StoreError) -> None:
        if isinstance(failure, PostgresFailure):
            if failure.kind is PostgresFailureKind.GONE:
                self._stop(self._replaced(f"{failure.text}"))
                return
            if failure.is_passing:
                error = StoreError(f"postgresql at {failure.server} does not answer")
        if not self._disconnected:
            log.warning("postgresql disconnected error=%s", failure)
        self._disconnected = str(error)

    def _stop(self, error: StoreError) -> None:
        """End all watches and requests with an error."""
        self._end = self._end or error
        self._feeds.close(self._end)

    def _replaced(self, why: str) -> StoreReplaced:
        address = self._servers.connection.address
        return StoreReplaced(
            f"{address.place} at {self._servers.names} is not as it was: {why}. It was restored or"
            " replaced, or a standby without the newest writes has become the primary server; the"
            " server starts again with what the database has now"
        )

    async def _advance(self, fetch: Fetch, until: int) -> None:
        """Read events of the database and publish them, at least up to a revision if there is
        one, and all that follow. Several tasks may do so at once: each publishes what is next."""
        while True:
            served = self.revision
            found = rows.history(
                await fetch(
                    self._sql.replay,
                    *(served, _LATEST, b"", rows.AFTER_ALL, CHUNK_EVENTS, CHUNK_BYTES),
                )
            )
            if found.head < served:
                replaced = self._replaced(f"revision {found.head} after {served}")
                self._stop(replaced)
                raise replaced
            if found.compacted > served:
                log.error("history lost since=%d oldest=%d", served, found.compacted)
                self._feeds.skip(max(found.head, self.revision))
                return
            self._feeds.publish(
                [event for event in found.events if event.entry.revision > self.revision]
            )
            if self.revision >= max(until, found.head) or not found.events:
                return

    async def _catch_up(self, revision: int, fetch: Fetch | None = None) -> None:
        """See to it that watchers have been given the revision, which is in the database."""
        if revision > self.revision:
            await self._advance(fetch or self._fetch, revision)

    async def _wake(self) -> None:
        self._wakeup.set()

    def _note(self, revision: int) -> None:
        """Wake the one who listens if another server has written. Own writes are published by their
        answers, which come at the same time as their notifications."""
        self._notified = max(self._notified, revision)
        if self._notified > self.revision and not self._writer.is_busy:
            self._wakeup.set()

    def _notice(self, connected: Any, pid: int, channel: str, payload: str) -> None:
        if payload.startswith(_HELLO):
            if payload == f"{_HELLO} {self._instance}":
                self._greeted.set()
        elif payload.isdecimal() and len(payload) < 20:
            self._note(int(payload))

    async def _watch_from_future(self, prefix: str, since: int) -> AsyncGenerator[StoreEvent, None]:
        """Watch from a revision that another server may have given out already."""
        await self._catch_up(min(since, await self.newest()))
        async with aclosing(self._feeds.watch(prefix, since, self._replay)) as events:
            async for event in events:
                yield event

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        """Read the first events of history."""
        first, end = rows.key_range(prefix)
        while True:
            try:
                found = await self._fetch(
                    self._sql.replay, since, until, first, end, CHUNK_EVENTS, CHUNK_BYTES
                )
            except StoreUnavailable as error:
                log.warning("history not read, retrying error=%s", error)
                await self._machine.sleep(RETRY_SECONDS)
                continue
            past = rows.history(found)
            if past.compacted > since:
                raise RevisionCompacted(since, past.compacted)
            return past.events

    # Connections.

    async def _check(self, connected: Any) -> None:
        """Raise StoreReplaced if a new connection leads to another database, or to one that has
        lost writes."""
        served = self.revision
        try:
            found = await schema.describe(connected, self._sql)
        except self._servers.library.PostgresError as error:
            failure = self._servers.failure(error, self._servers.names)
            if failure.kind is not PostgresFailureKind.GONE:
                raise failure from None
            found = None
        if found is None:
            replaced = self._replaced("its tables are gone")
        elif not found.here == found.source == self._source:
            replaced = self._replaced(f"database {found.here} after {self._source}")
        elif found.revision < served:
            replaced = self._replaced(f"revision {found.revision} after {served}")
        else:
            return
        self._stop(replaced)
        raise replaced

    async def _begin_writing(self, connected: Any) -> None:
        await fence(connected, self._instance, self._machine, CALL_SECONDS)
        await self._check(connected)

    async def _begin_listening(self, connected: Any) -> None:
        await self._check(connected)
        connected.add_termination_listener(lambda _: self._wakeup.set())
        await connected.add_listener(self._sql.channel, self._notice)

    async def _listen(self) -> None:
        """Begin to follow; raises StoreError if notifications do not arrive."""
        try:
            await self._listener.connection()
        except PostgresFailure as failure:
            raise store_error(failure.without_effect()) from None
        hello = f"{_HELLO} {self._instance}"
        await self._fetch_row("SELECT pg_notify($1, $2)", self._sql.channel, hello)
        try:
            await asyncio.wait_for(self._greeted.wait(), HELLO_SECONDS)
        except TimeoutError:
            raise schema.pooled(self._servers.names) from None
        self._tasks = [
            OwnedTask(self._follow()),
            OwnedTask(every(POLL_SECONDS, self._wake, self._machine)),
        ]
