"""EtcdStore: the store in an etcd cluster, which other servers may use at the same time.

Nothing here is remembered for longer than a request: etcd has the truth. One watch of all keys
feeds all watchers, and tells up to which revision they have been served.
"""

import asyncio
import builtins
import heapq
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Final, Self

from kedge.machinery.clock import Clock, machine_clock
from kedge.machinery.task_group import OwnedTask
from kedge.machinery.write_guard import WriteGuard, current_guard
from kedge.storage.etcd import messages as m
from kedge.storage.etcd.changes import changes, store_entry
from kedge.storage.etcd.client import PATIENCE_SECONDS, EtcdClient
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.failures import EtcdFailure, FailureKind, store_error
from kedge.storage.etcd.fence import CreationFence
from kedge.storage.etcd.leases import SharedLeases
from kedge.storage.expiry import Expiry
from kedge.storage.feed import Feeds
from kedge.storage.store import (
    DISK_FULL,
    DiskFull,
    FutureRevision,
    GuardLost,
    RevisionCompacted,
    RevisionConflict,
    StoreClosed,
    StoreEntry,
    StoreError,
    StoreEvent,
    StorePage,
    StoreReplaced,
    StoreUnavailable,
    WriteOutcomeUnknown,
    check_key,
    prefix_end,
)

PAGE_KEYS: Final = 500
"""Keys in one answer of etcd: decoding them keeps the event loop busy for some milliseconds."""
CHUNK_EVENTS: Final = 1000
CHUNK_BYTES: Final = 4 << 20
"""Events that are read from history at once, and the size of their values."""
RECONNECT_SECONDS: Final = 0.2
_ABSENT: Final = b"kedge/absent"
"""A key that never exists: to read it tells the revision of etcd and nothing else."""

log = logging.getLogger(__name__)


class EtcdStore:
    """Implements the Store protocol; create one with `await EtcdStore.open(connection, clock)`."""

    def __init__(self, client: EtcdClient, clock: Clock, header: m.EtcdHeader) -> None:
        self._client = client
        self._machine = machine_clock(clock)
        self._cluster = header.cluster
        self._feeds = Feeds(header.revision)
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._leases = SharedLeases(self._machine, self._grant)
        self._fence = CreationFence(self._write_fence)
        self._due: list[tuple[int, str, int]] = []
        """Keys that this server deletes: when, which, and at which revision; a heap."""
        self._expiry = Expiry(clock, self._sweep)
        self._disconnected = ""
        self._is_full = False
        self._closed = False
        self._end: StoreError | None = None
        """Why writes are no longer followed."""
        self._writes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._following = OwnedTask(self._follow())

    @classmethod
    async def open(cls, connection: EtcdConnection, clock: Clock) -> Self:
        """Connect to etcd; raises StoreError if no member answers."""
        client = EtcdClient(connection, machine_clock(clock))
        try:
            status = m.read_status(await client.read(m.STATUS, b""))
            answer = await client.read(m.RANGE, m.range_request(_ABSENT, count_only=True))
        except EtcdFailure as failure:
            await client.close()
            raise _unreachable(failure) from None
        except BaseException:
            await client.close()
            raise
        header = m.read_header(answer)
        log.info(
            "etcd connected endpoints=%s version=%s revision=%d bytes=%d",
            client.endpoints,
            status.version,
            header.revision,
            status.size,
        )
        return cls(client, clock, header)

    @property
    def revision(self) -> int:
        return self._feeds.revision

    async def newest(self) -> int:
        return (await self._current()).revision

    @property
    def failure(self) -> str:
        return self._disconnected or (DISK_FULL if self._is_full else "")

    async def get(self, key: str) -> StoreEntry | None:
        answer = await self._range(m.range_request(key.encode()))
        if not answer.found:
            return None
        entry = store_entry(answer.found[0])
        await self._catch_up(entry.revision)
        return entry

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
        async with self._writing():
            entry = await self._put(key, value, expect, ttl)
            if deadline := self._expiry.deadline(ttl):
                heapq.heappush(self._due, (deadline, key, entry.revision))
                self._expiry.expect(deadline)
            return entry

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        request = m.delete_if(key.encode(), expect, current_guard())
        async with self._writing():
            return await self._compare_and_swap(key, None, expect, request)

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision <= 1:
            return  # nothing happened before
        try:
            await self._client.read(m.COMPACT, m.compact_request(revision))
        except EtcdFailure as failure:
            if failure.kind is FailureKind.FUTURE:
                raise FutureRevision(revision, self.revision) from None
            if failure.kind is not FailureKind.COMPACTED:
                raise self._read_error(failure) from None

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        if since <= self.revision:
            return self._feeds.watch(prefix, since, self._replay)
        return self._watch_from_future(prefix, since)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._expiry.close()
        await self._idle.wait()
        await self._following.close()
        self._feeds.close()
        self._wake(everybody=True)
        await self._client.close()

    # Reading.

    async def _range(self, request: bytes) -> m.RangeAnswer:
        self._check_open()
        served = self.revision
        try:
            answer = m.read_range(await self._client.read(m.RANGE, request))
        except EtcdFailure as failure:
            raise self._read_error(failure) from None
        self._check_cluster(answer.header, served)
        return answer

    async def _page(self, prefix: str, at: int, after: str, limit: int) -> StorePage:
        start = max(prefix.encode() or m.ALL, after.encode() + b"\0")
        end = prefix_end(prefix).encode() or m.ALL
        entries: builtins.list[StoreEntry] = []
        revision, remaining = at, 1
        while remaining and (not limit or len(entries) < limit):
            wanted = min(PAGE_KEYS, limit - len(entries)) if limit else PAGE_KEYS
            request = m.range_request(start, end, limit=wanted, revision=revision)
            try:
                answer = await self._range(request)
            except RevisionCompacted:
                raise RevisionCompacted(revision, await self._oldest()) from None
            except FutureRevision:
                raise FutureRevision(revision, self.revision) from None
            revision = revision or answer.header.revision
            entries += map(store_entry, answer.found)
            remaining = answer.total - len(answer.found)
            start = answer.found[-1].key + b"\0" if answer.found else start
        return StorePage(entries, revision, remaining > 0, remaining)

    async def _current(self) -> m.EtcdHeader:
        """Return the newest revision of etcd, not of this server."""
        return (await self._range(m.range_request(_ABSENT, count_only=True))).header

    async def _oldest(self) -> int:
        """Return the oldest revision that can be read."""
        try:
            async with aclosing(changes(self._client, 1)) as found:
                await anext(found)
                await anext(found)
        except RevisionCompacted as compacted:
            return compacted.oldest
        except EtcdFailure:
            pass
        return 1

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        self._check_end()

    def _check_cluster(self, header: m.EtcdHeader, served: int) -> None:
        """Raise StoreReplaced if etcd is another one, or has lost writes: `served` is the revision
        that watchers had been given before etcd was asked."""
        if header.cluster == self._cluster and header.revision >= served:
            return
        replaced = StoreReplaced(
            f"etcd at {self._client.endpoints} is not as it was: revision {header.revision} of"
            f" cluster {header.cluster:x} after revision {served} of cluster {self._cluster:x}. It"
            " was restored or replaced; the server starts again with what etcd has now"
        )
        self._stop_following(replaced)
        raise replaced

    def _read_error(self, failure: EtcdFailure) -> StoreError:
        """Return the error of a request without effects."""
        if failure.kind is FailureKind.COMPACTED:
            return RevisionCompacted(0, 0)
        if failure.kind is FailureKind.FUTURE:
            return FutureRevision(0, self.revision)
        if failure.kind is FailureKind.UNKNOWN:
            failure = EtcdFailure(FailureKind.WITHOUT_EFFECT, failure.endpoint, failure.text)
        return store_error(failure)

    # Writing.

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Count a write that is under way: close() waits for it."""
        self._check_open()
        self._writes += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if not self._writes:
                self._idle.set()

    async def _put(self, key: str, value: bytes, expect: int, ttl: int) -> StoreEntry:
        while True:
            lease = await self._leases.lease(ttl) if ttl else 0
            try:
                entry = await (
                    self._update(key, value, expect, lease)
                    if expect
                    else self._create(key, value, lease)
                )
            except EtcdFailure as failure:
                if failure.kind is not FailureKind.LEASE:
                    raise store_error(failure) from None
                self._leases.forget()  # the machine was asleep for longer than a lease lives
                continue
            self._is_full = False
            return entry

    async def _grant(self, seconds: int) -> int:
        try:
            # A lease that is granted twice ends by itself, without any key.
            return m.read_lease(await self._client.read(m.LEASE_GRANT, m.lease_request(seconds)))
        except EtcdFailure as failure:
            raise self._write_error(failure, 0) from None

    async def _update(self, key: str, value: bytes, expect: int, lease: int = 0) -> StoreEntry:
        request = m.put_if(key.encode(), value, expect, lease, guard=current_guard())
        return await self._compare_and_swap(key, value, expect, request)

    async def _compare_and_swap(
        self, key: str, value: bytes | None, expect: int, request: bytes
    ) -> StoreEntry:
        """Carry out a write of one key that exists, and wait until watchers have been given it.

        If etcd does not say whether it did, history tells. If history has no trace of the write, it
        may still come, so it is repeated: no key is at one revision twice, so the comparison lets
        only one of them happen.
        """
        served, is_repeated = self.revision, False
        give_up = self._machine.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self._try_to_write(key, value, expect, request)
            except EtcdFailure as failure:
                if failure.kind is not FailureKind.UNKNOWN:
                    raise
                found = await self._find_write(key, value, expect, served)
                if found is not None:
                    return found
                if self._machine.monotonic() > give_up:
                    raise store_error(failure) from None
                is_repeated = True
            except (RevisionConflict, _OtherComparison) as refusal:
                if is_repeated and (found := await self._find_write(key, value, expect, served)):
                    return found
                guard = current_guard()
                if guard is None or isinstance(refusal, RevisionConflict):
                    raise
                raise GuardLost(guard) from None

    async def _create(self, key: str, value: bytes, lease: int) -> StoreEntry:
        """Carry out a write of one key that does not exist, and wait until watchers have been given
        it. It is repeated as others are, but not before the former try is fenced off."""
        served = self.revision
        give_up = self._machine.monotonic() + PATIENCE_SECONDS
        while True:
            since = self._fence.revision
            fence = (self._fence.key.encode(), since)
            request = m.put_if(key.encode(), value, 0, lease, guard=current_guard(), fence=fence)
            try:
                return await self._try_to_write(key, value, 0, request)
            except _OtherComparison:
                guard = current_guard()
                if guard is not None and not await self._holds(guard):
                    raise GuardLost(guard) from None
                await self._fence.move(since)
            except EtcdFailure as failure:
                if failure.kind is not FailureKind.UNKNOWN:
                    raise
                found = await self._find_write(key, value, 0, served)
                if found is None:
                    await self._fence_off(key, since)
                    found = await self._find_write(key, value, 0, served)
                if found is not None:
                    return found
                if self._machine.monotonic() > give_up:
                    raise self._read_error(failure) from None  # it did not, and will not, happen

    async def _fence_off(self, key: str, since: int) -> None:
        """Return when former tries to create the key cannot happen any more."""
        try:
            await self._fence.move(since)
        except (StoreUnavailable, WriteOutcomeUnknown, DiskFull) as error:
            raise _unconfirmed(key, error) from None

    async def _write_fence(self, key: str, expect: int) -> StoreEntry:
        # The key is never deleted. So of two tries to create it, one fails.
        request = m.put_if(key.encode(), b"", expect)
        return await self._compare_and_swap(key, b"", expect, request)

    async def _holds(self, guard: WriteGuard) -> bool:
        entry = await self.get(guard.key)
        return entry is not None and entry.revision == guard.revision

    async def _try_to_write(
        self, key: str, value: bytes | None, expect: int, request: bytes
    ) -> StoreEntry:
        """Send a write once. Raises RevisionConflict, _OtherComparison, or EtcdFailure if etcd does
        not say whether it happened."""
        served = self.revision
        try:
            answer = m.read_txn(await self._client.write(m.TXN, request))
        except EtcdFailure as failure:
            if failure.kind is FailureKind.UNKNOWN:
                raise
            raise self._write_error(failure, len(value or b"")) from None
        self._check_cluster(answer.header, served)
        await self._catch_up(answer.header.revision)
        if answer.succeeded:
            return _written(key, value, answer)
        current = None if answer.found is None else store_entry(answer.found)
        if (current.revision if current else 0) == expect:
            raise _OtherComparison
        raise RevisionConflict(key, current)

    async def _find_write(
        self, key: str, value: bytes | None, expect: int, since: int
    ) -> StoreEntry | None:
        """Return the outcome of a write from history: the only write that replaced the revision
        `expect` of the key, if it has this value. Raises WriteOutcomeUnknown if etcd cannot be
        asked."""
        try:
            until = (await self._current()).revision
            await self._catch_up(until)
            while since < until:
                events = await self._replay(key, since, until)
                for event in events:
                    replaced = event.previous.revision if event.previous else 0
                    written = event.entry.value if event.kind == "put" else None
                    if event.entry.key == key and replaced == expect and written == value:
                        return event.entry
                since = events[-1].entry.revision if events else until
        except (StoreUnavailable, RevisionCompacted) as error:
            raise _unconfirmed(key, error) from None
        return None

    def _write_error(self, failure: EtcdFailure, size: int) -> StoreError:
        if failure.kind is FailureKind.LEASE:
            return failure
        if failure.kind is FailureKind.FULL:
            self._is_full = True  # until a write succeeds
        return store_error(failure, size)

    async def _sweep(self, now: int) -> int | None:
        """Delete the keys of this server whose time is over."""
        while self._due and self._due[0][0] <= now:
            due = heapq.heappop(self._due)
            try:
                await self.delete(due[1], expect=due[2])
            except RevisionConflict:
                continue  # deleted, or written again with another time
            except StoreError:
                heapq.heappush(self._due, due)
                raise
        return self._due[0][0] if self._due else None

    # Following.

    async def _follow(self) -> None:
        """Publish each write, also across the loss of connections, until cancelled."""
        try:
            while self._end is None:
                await self._follow_connection()
            log.error("etcd replaced error=%s", self._end)
        except Exception as error:
            # No other task notices the end of this one: writes would wait for ever.
            log.exception("etcd is not followed any more")
            self._stop_following(
                WriteOutcomeUnknown(
                    f"the changes in etcd at {self._client.endpoints} cannot be followed any more"
                    f" ({error!r}). A write under way may have happened; the server starts again"
                )
            )

    def _stop_following(self, error: StoreError) -> None:
        """End all watches, and the waits for writes, with an error."""
        self._end = error
        self._feeds.close(error)
        self._wake(everybody=True)

    async def _follow_connection(self) -> None:
        """Publish writes until a connection fails."""
        try:
            await self._follow_once()
        except RevisionCompacted as compacted:
            log.error("etcd history lost since=%d oldest=%d", self.revision, compacted.oldest)
            await self._skip()
        except EtcdFailure as failure:
            await self._lost(failure)
        except StoreError as error:
            await self._pause(error)

    async def _pause(self, error: StoreError) -> None:
        self._disconnected = str(error)
        await self._machine.sleep(RECONNECT_SECONDS)

    async def _follow_once(self) -> None:
        async with aclosing(changes(self._client, self.revision)) as batches:
            async for events in batches:
                if self._disconnected:
                    # Asked of the leader: the member of this watch may be behind the others.
                    await self._current()
                    log.info("etcd reconnected revision=%d", self.revision)
                    self._disconnected = ""
                self._feeds.publish(events)
                self._wake()

    async def _lost(self, failure: EtcdFailure) -> None:
        if not self._disconnected:
            log.warning("etcd disconnected error=%s", failure)
        self._disconnected = f"etcd at {failure.endpoint} does not answer"
        if failure.kind is FailureKind.TOKEN:
            try:
                await self._client.renew_token()
            except EtcdFailure as refused:
                log.error("etcd refuses the user error=%s", refused)
        await self._machine.sleep(RECONNECT_SECONDS)

    async def _skip(self) -> None:
        """Go on behind events that cannot be read any more."""
        try:
            header = await self._current()
        except StoreError as error:
            await self._pause(error)
            return
        self._feeds.skip(header.revision)
        self._wake()

    async def _catch_up(self, revision: int) -> None:
        """Wait until watchers have been given the revision."""
        if revision > self.revision:
            self._check_end()
            future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (revision, next(self._order), future))
            await future
            if revision > self.revision:
                self._check_end()
                raise StoreClosed

    def _check_end(self) -> None:
        if self._end is not None:
            raise self._end

    def _wake(self, *, everybody: bool = False) -> None:
        """Let tasks go on that wait for a revision which was published, or all if none follows."""
        while self._waiters and (everybody or self._waiters[0][0] <= self.revision):
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    async def _watch_from_future(self, prefix: str, since: int) -> AsyncGenerator[StoreEvent, None]:
        """Watch from a revision that another server may have given out already."""
        header = await self._current()
        await self._catch_up(min(since, header.revision))
        async with aclosing(self._feeds.watch(prefix, since, self._replay)) as events:
            async for event in events:
                yield event

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        """Read the first events of history, with a watch of its own. All keys are watched, so that
        the revision `until` is sure to come."""
        while True:
            try:
                return await self._replay_once(prefix, since, until)
            except EtcdFailure as failure:
                self._check_open()
                log.warning("etcd history not read, retrying error=%s", failure)
            await self._machine.sleep(RECONNECT_SECONDS)

    async def _replay_once(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        found: builtins.list[StoreEvent] = []
        size = 0
        async with aclosing(changes(self._client, since)) as batches:
            async for events in batches:
                for event in events:
                    if event.entry.revision <= until and event.entry.key.startswith(prefix):
                        found.append(event)
                        size += len(event.entry.value)
                has_ended = bool(events) and events[-1].entry.revision >= until
                if has_ended or len(found) >= CHUNK_EVENTS or size >= CHUNK_BYTES:
                    break
        return found


def _written(key: str, value: bytes | None, answer: m.TxnAnswer) -> StoreEntry:
    revision, found = answer.header.revision, answer.found
    if value is None:
        assert found is not None
        return StoreEntry(key, found.value, revision, found.created)
    return StoreEntry(key, value, revision, revision if found is None else found.created)


class _OtherComparison(StoreError):
    """The key is as expected, but the guard or the fence is not."""


def _unconfirmed(key: str, error: StoreError) -> WriteOutcomeUnknown:
    return WriteOutcomeUnknown(
        f"etcd did not confirm the write of {key}: {error}. Read the object to see whether it"
        " happened"
    )


def _unreachable(failure: EtcdFailure) -> StoreError:
    if failure.kind is FailureKind.UNKNOWN:
        failure = EtcdFailure(FailureKind.WITHOUT_EFFECT, failure.endpoint, failure.text)
    return store_error(failure)
