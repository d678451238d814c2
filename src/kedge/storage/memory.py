"""MemoryStore: the whole store in dictionaries, lost when the process ends."""

import builtins
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Sequence

from kedge.machinery.clock import Clock
from kedge.machinery.write_guard import current_guard
from kedge.storage.expiry import Expiry
from kedge.storage.feed import Feeds
from kedge.storage.store import (
    FIRST_REVISION,
    FutureRevision,
    GuardLost,
    RevisionCompacted,
    StoreClosed,
    StoreEntry,
    StoreEvent,
    StorePage,
    check_key,
    delete_event,
    prefix_end,
    put_event,
)


class MemoryStore:
    """Implements the Store protocol; history is the list of events since the last compaction."""

    def __init__(self, clock: Clock) -> None:
        self._entries: dict[str, StoreEntry] = {}
        self._keys: list[str] = []
        """The keys of `_entries`, sorted."""
        self._deadlines: dict[str, int] = {}
        self._history: list[StoreEvent] = []
        self._compacted = 0
        self._feeds = Feeds(FIRST_REVISION)
        self._expiry = Expiry(clock, self._sweep)
        self._closed = False

    @property
    def revision(self) -> int:
        return self._feeds.revision

    async def newest(self) -> int:
        return self.revision

    @property
    def failure(self) -> str:
        return ""

    async def get(self, key: str) -> StoreEntry | None:
        self._check_open()
        return self._entries.get(key)

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        self._check_open()
        entries, keys = self._state(at or self.revision)
        end = prefix_end(prefix)
        first = max(bisect_left(keys, prefix), bisect_right(keys, after))
        last = bisect_left(keys, end) if end else len(keys)
        stop = min(last, first + limit) if limit > 0 else last
        remaining = max(0, last - stop)
        found = [entries[key] for key in keys[first:stop]]
        return StorePage(found, at or self.revision, remaining > 0, remaining)

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        self._check_open()
        check_key(key)
        self._check_guard()
        event = put_event(self._entries.get(key), key, value, expect, self.revision + 1)
        if event.previous is None:
            insort(self._keys, key)
        self._entries[key] = event.entry
        self._deadlines.pop(key, None)
        self._record(event)
        if deadline := self._expiry.deadline(ttl):
            self._deadlines[key] = deadline
            self._expiry.expect(deadline)
        return event.entry

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        self._check_open()
        self._check_guard()
        return self._delete(key, expect)

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision > self._compacted:
            del self._history[: self._position(revision)]
            self._compacted = revision

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        return self._feeds.watch(prefix, since, self._replay)

    async def close(self) -> None:
        self._closed = True
        await self._expiry.close()
        self._feeds.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _check_guard(self) -> None:
        guard = current_guard()
        if guard is None:
            return
        found = self._entries.get(guard.key)
        if found is None or found.revision != guard.revision:
            raise GuardLost(guard)

    def _state(self, at: int) -> tuple[dict[str, StoreEntry], builtins.list[str]]:
        """The entries at a revision, with their sorted keys: today's, with later events undone."""
        if at > self.revision:
            raise FutureRevision(at, self.revision)
        if at < self._compacted:
            raise RevisionCompacted(at, self._compacted)
        if at == self.revision:
            return self._entries, self._keys
        entries = dict(self._entries)
        for event in reversed(self._history[self._position(at) :]):
            if event.previous:
                entries[event.entry.key] = event.previous
            else:
                del entries[event.entry.key]
        return entries, sorted(entries)

    def _position(self, revision: int) -> int:
        """How many events of the history lie at or below the revision."""
        return bisect_right(self._history, revision, key=lambda event: event.entry.revision)

    async def _replay(self, prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        if since < self._compacted:
            raise RevisionCompacted(since, self._compacted)
        between = self._history[self._position(since) : self._position(until)]
        return [event for event in between if event.entry.key.startswith(prefix)]

    def _delete(self, key: str, expect: int) -> StoreEntry:
        event = delete_event(self._entries.get(key), key, expect, self.revision + 1)
        del self._entries[key]
        del self._keys[bisect_left(self._keys, key)]
        self._deadlines.pop(key, None)
        self._record(event)
        return event.entry

    def _record(self, event: StoreEvent) -> None:
        self._history.append(event)
        self._feeds.publish([event])

    async def _sweep(self, now: int) -> int | None:
        due = sorted((moment, key) for key, moment in self._deadlines.items() if moment <= now)
        for _, key in due:
            self._delete(key, self._entries[key].revision)
        return min(self._deadlines.values(), default=None)
