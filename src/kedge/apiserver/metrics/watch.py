"""UsageWatch: events of usage; a slow reader gets only the last event of each object."""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec

from kedge.apiserver import render
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.verbs.read import parse_revision
from kedge.apiserver.verbs.watch import (
    BOOKMARK_SECONDS,
    INITIAL_EVENTS_END,
    EventEncoder,
    check_options,
    streamed,
    watch_seconds,
)
from kedge.apiserver.watchcache import Item, event_line
from kedge.machinery.errors import expired
from kedge.metrics.collection import Collection, UsageChange
from kedge.metrics.selection import UsageSelection
from kedge.metrics.usage_object import UsageObject
from kedge.web.message import JSON, Response, Sink

ToItem = Callable[[UsageObject], Item]
_PIECE = 256 << 10
_SHARED = 2048
"""Events that are written once for all watches; longer lists are written as they are sent."""
_KEPT = 16
"""Texts of events that are kept for other watches."""


def watch(
    api: Api, request: Request, collection: Collection, selection: UsageSelection, to_item: ToItem
) -> Response:
    """Watch a selection from a version on; version 0 begins with all objects."""
    query = request.query
    version, initial = query.get("resourceVersion"), query.get("sendInitialEvents")
    check_options(query.get("resourceVersionMatch"), initial, query.get("continue"))
    since = parse_revision(version)
    everything = query.flag("sendInitialEvents") or (not initial and not since)
    if initial and not everything and not since:
        since = collection.versions.last
    seconds = watch_seconds(api, request)
    choice = render.response_form(request, ("json", "table", "partial", "partial-list"))
    lines = EventEncoder(api, request, choice)
    follower = UsageWatch(
        api,
        collection,
        selection,
        lines,
        to_item,
        same=(
            request.resource.api_version,
            request.namespace,
            query.get("labelSelector"),
            query.get("fieldSelector"),
        ),
        bookmarks=query.flag("allowWatchBookmarks"),
        deadline=api.clock.monotonic() + seconds,
    )

    async def stream(sink: Sink) -> None:
        announce = query.flag("sendInitialEvents") and query.flag("allowWatchBookmarks")
        await follower.run(sink, 0 if everything else since, announce=announce)

    return streamed(request, stream, JSON)


class UsageWatch:
    """One watch. Its only state is the version up to which it has sent events: it looks up changes
    in the collection when the peer can take them, so a slow peer costs no memory."""

    def __init__(
        self,
        api: Api,
        collection: Collection,
        selection: UsageSelection,
        lines: EventEncoder,
        to_item: ToItem,
        *,
        same: object,
        bookmarks: bool,
        deadline: float,
    ) -> None:
        self._clock = api.clock
        self._collection = collection
        self._selection = selection
        self._lines = lines
        self._to_item = to_item
        self._same = same
        """Equal for watches that get the same events in the same form."""
        self._bookmarks = bookmarks
        self._deadline = deadline
        self._position = 0
        self._wake = asyncio.Event()
        self._sink: Sink

    async def run(self, sink: Sink, since: int, *, announce: bool) -> None:
        from kedge.machinery.task_group import TaskGroup

        self._sink = sink
        versions = self._collection.versions
        if since and since < self._collection.forgotten:
            error = expired(f"too old resource version: {since} ({self._collection.forgotten})")
            sink.write(event_line("ERROR", msgspec.json.encode(error.status())))
            return
        # Aggregates that nothing listens to are forgotten, also while a slow peer reads them.
        self._collection.listeners[self._wake.set] = self._selection
        try:
            # A version from the future is that of another server and means nothing here.
            if not since or since > versions.last:
                await self._begin()
            else:
                self._position = since
            if announce:
                sink.write(self._lines.bookmark(self._position, {INITIAL_EVENTS_END: "true"}))
            async with TaskGroup() as group:
                timer = group.create_task(self._wake_in_time())
                await self._follow()
                timer.cancel()
        finally:
            del self._collection.listeners[self._wake.set]

    async def _begin(self) -> None:
        """Send all objects."""
        self._position = self._collection.versions.last
        for entry in self._collection.select(self._selection):
            self._sink.write(self._line("ADDED", entry))
            await self._clock.give_way()
            if self._sink.paused:
                await self._sink.drain()

    async def _follow(self) -> None:
        next_bookmark = self._clock.monotonic() + BOOKMARK_SECONDS
        while True:
            await self._send()
            now = self._clock.monotonic()
            if now >= self._deadline:
                break
            if now >= next_bookmark:
                next_bookmark = now + BOOKMARK_SECONDS
                self._mark()
            await self._wake.wait()
            self._wake.clear()
        self._mark()

    async def _send(self) -> None:
        """Send events; an object that changes again meanwhile is sent once, in its newest state."""
        while self._position < self._collection.versions.last:
            for until, text in await self._events():
                self._sink.write(text)
                self._position = until
                if self._sink.paused:
                    await self._sink.drain()
                    break

    async def _events(self) -> Iterable[tuple[int, bytes]]:
        """The events since the last version, in pieces, each with its last version."""
        kept, key = self._collection.news, (self._same, self._position)
        if self._lines.plain and key in kept:
            return kept[key]
        changes = self._collection.changes_after(self._position, self._selection)
        last = self._collection.versions.last
        # JSON that does not exist yet is made in turns of the event loop, not for all at once.
        for _, _, entry in changes:
            entry.rest()
            await self._clock.give_way()
        news = self._written(changes, last)
        if not self._lines.plain or len(changes) > _SHARED or len(kept) >= _KEPT:
            return news
        kept[key] = shared = tuple(news)
        return shared

    def _written(self, changes: Iterable[UsageChange], last: int) -> Iterator[tuple[int, bytes]]:
        piece: list[bytes] = []
        size = 0
        for version, type_, entry in changes:
            piece.append(self._line(type_, entry))
            size += len(piece[-1])
            if size >= _PIECE:
                yield version, b"".join(piece)
                piece, size = [], 0
        yield last, b"".join(piece)

    def _line(self, type_: str, entry: UsageObject) -> bytes:
        if self._lines.plain:
            return event_line(type_, entry.body())
        return self._lines.of(type_, self._to_item(entry))

    def _mark(self) -> None:
        if self._bookmarks:
            self._sink.write(self._lines.bookmark(self._position))

    async def _wake_in_time(self) -> None:
        """Wake up when a bookmark or the end of the watch is due."""
        while True:
            left = self._deadline - self._clock.monotonic()
            await self._clock.sleep(max(min(left, BOOKMARK_SECONDS), 0.01))
            self._wake.set()
