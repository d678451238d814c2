"""Feeds: hand each commit's events to the watchers in one wake-up, without ever losing one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from kedge.storage.store import FutureRevision, StoreClosed, StoreError, StoreEvent

BACKLOG = 10_000
BACKLOG_BYTES = 64 << 20
"""Events a feed keeps for a slow consumer, and their values' size, before it has to read them from
history instead."""


Replay = Callable[[str, int, int], Awaitable[Sequence[StoreEvent]]]
"""Reads history: the first events under (prefix, since, until], empty at the end."""


class Feed:
    """The live events that one watcher has not consumed yet."""

    def __init__(self, prefix: str, since: int) -> None:
        self.prefix = prefix
        self.since = since
        self.overrun = False
        self._waiting: list[StoreEvent] = []
        self._bytes = 0
        self._wakeup = asyncio.Event()

    def offer(self, events: Sequence[StoreEvent]) -> None:
        wanted = [event for event in events if event.entry.key.startswith(self.prefix)]
        if not wanted or self.overrun:
            return
        self._bytes += sum(len(event.entry.value) for event in wanted)
        if len(self._waiting) + len(wanted) > BACKLOG or self._bytes > BACKLOG_BYTES:
            self.overrun = True
            self._waiting = []
        else:
            self._waiting += wanted
        self._wakeup.set()

    def end(self) -> None:
        self._wakeup.set()

    async def take(self) -> Sequence[StoreEvent]:
        await self._wakeup.wait()
        self._wakeup.clear()
        taken, self._waiting, self._bytes = self._waiting, [], 0
        return taken


class Feeds:
    """All feeds of one store, and the revision up to which they have been served."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._open: set[Feed] = set()
        self._end: StoreError | None = None

    def publish(self, events: Sequence[StoreEvent]) -> None:
        """Pass on the events of one commit, which are in the order of their revisions."""
        if not events:
            return
        self.revision = events[-1].entry.revision
        for feed in self._open:
            feed.offer(events)

    def skip(self, revision: int) -> None:
        """Go on after a revision whose event, and perhaps others before it, cannot be had. The
        watchers look into history, and learn there that it is gone."""
        self.revision = revision
        for feed in self._open:
            feed.overrun = True
            feed.end()

    def close(self, error: StoreError | None = None) -> None:
        """End all watches, with this error or with StoreClosed."""
        self._end = self._end or error or StoreClosed()
        for feed in self._open:
            feed.end()

    async def watch(
        self, prefix: str, since: int, replay: Replay
    ) -> AsyncGenerator[StoreEvent, None]:
        """The stream of `Store.watch`, given a way to read history."""
        if since > self.revision:
            raise FutureRevision(since, self.revision)
        while True:
            with self._listen(prefix) as feed:
                # Subscribed before reading, so what is committed meanwhile waits in the feed.
                while since < feed.since and (past := await replay(prefix, since, feed.since)):
                    for event in past:
                        since = event.entry.revision
                        yield event
                since = feed.since
                while not feed.overrun:
                    for event in await self._live(feed):
                        since = event.entry.revision
                        yield event

    async def _live(self, feed: Feed) -> Sequence[StoreEvent]:
        events = () if self._end else await feed.take()
        if self._end and not events:
            raise self._end
        return events

    @contextmanager
    def _listen(self, prefix: str) -> Iterator[Feed]:
        feed = Feed(prefix, self.revision)
        self._open.add(feed)
        try:
            yield feed
        finally:
            self._open.discard(feed)
