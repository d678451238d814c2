"""Watch: changes pushed to clients that keep up, and read from the log by clients that lag.

A watch must deliver every change after its revision, once and in order, and must not buffer: ten
thousand slow clients would otherwise fill the memory. It is in one of three states, and
`_position`, the revision up to which everything was sent, carries over from each to the next:

1. *replay*: reads the store's history, if the watch begins before the start of the cache's log;
2. *catch up*: reads the log, which all watches of a resource share;
3. *listen*: the cache calls `_push` with each change, which is written to the socket at once.

The step from 2 to 3 has no gap because there is no await between the last look at the log and the
registration of the listener. `_push` drops changes up to the position at which the watch began to
listen, so that an overlap does no harm. A client whose socket is full leaves state 3 for state 2
and costs nothing while it is slow. If it falls behind the start of the log in state 2 it gets 410
and starts again, as in upstream.

Another program that writes to the same etcd may change several objects in one revision. A watch
goes from one state to another, and ends, between revisions only.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kedge.api.core_v1.pod import pod_addresses
from kedge.api.model import ListMeta
from kedge.apiserver import protobuf_answers, render
from kedge.apiserver.api import Api
from kedge.apiserver.long_work import LONG
from kedge.apiserver.media import ResponseForm
from kedge.apiserver.object_lists import own_version, partial
from kedge.apiserver.request import Request, list_numbers
from kedge.apiserver.verbs.read import CONTINUED, own_versions, parse_own_revision
from kedge.apiserver.verbs.selection import selected
from kedge.apiserver.watchcache import (
    Change,
    Item,
    ResourceCache,
    Selection,
    event_line,
    history,
)
from kedge.machinery.errors import FieldError, StatusError, expired, invalid_options
from kedge.storage.store import RevisionCompacted
from kedge.web import websocket
from kedge.web.message import JSON, Response, Sink, Stream

BOOKMARK_SECONDS = 60.0
PUSHED_BYTES = 64 << 10
"""A larger change is not sent to all watchers in the turn of the event loop that brings it: to
encrypt a megabyte takes a millisecond or two for each of them. They send it themselves in turns."""
CONVERTED_TOGETHER = 100
"""Changes that are converted before the first of them is sent, if a webhook converts them."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Show = Callable[[str, Item], bytes]
"""(event type, object): the line that this watcher gets."""


def watch(api: Api, request: Request) -> Response:
    """Stream the changes of a selection from a revision on."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    initial = query.get("sendInitialEvents")
    check_options(match, initial, query.get("continue"))
    revision = parse_own_revision(version)
    seconds = watch_seconds(api, request)
    choice = render.response_form(request, render.offered_of(request.resource, render.WATCHED))
    events = EventEncoder(api, request, choice)
    follower = WatchStream(
        api,
        api.cache_of(request.resource),
        selected(request),
        events,
        bookmarks=query.flag("allowWatchBookmarks"),
        deadline=api.clock.monotonic() + seconds,
    )
    if initial and query.flag("sendInitialEvents"):
        start = follower.from_now(announce=query.flag("allowWatchBookmarks"), not_older=revision)
    elif revision == 0 and not initial:
        start = follower.from_now(announce=False, not_older=0)
    else:
        start = follower.from_revision(revision or api.cache.revision)

    async def stream(sink: Sink) -> None:
        await start(sink)

    return streamed(request, stream, events.content_type)


def streamed(request: Request, stream: Stream, content_type: str) -> Response:
    """Return the events as a stream of lines, or as messages to a client that asks for a WebSocket:
    browsers open no more than six other connections to a server. Upstream does both, too."""
    if websocket.is_wanted(request.http.headers):
        from kedge.web import message_stream

        return message_stream.in_messages(request.http, stream, text=content_type == JSON)
    return Response(200, stream, content_type)


def watch_seconds(api: Api, request: Request) -> int:
    """Return after how many seconds a watch ends: the client's choice, or up to an hour."""
    return list_numbers(request.query).timeout_seconds or 1800 + int(api.random.random() * 1800)


def check_options(match: str, initial: str, continue_: str) -> None:
    """Refuse combinations of parameters that contradict each other."""
    if errors := list(_option_errors(match, initial, continue_)):
        raise invalid_options("ListOptions", errors)


def _option_errors(match: str, initial: str, continue_: str) -> Iterator[FieldError]:
    path = "resourceVersionMatch"
    if initial and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        yield FieldError.forbidden(path, why)
    if not match:
        return
    if not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield FieldError.forbidden(path, why)
    if match != "NotOlderThan":
        yield FieldError.not_supported(path, match, ["NotOlderThan"])
    if continue_:
        yield FieldError.forbidden(path, CONTINUED)


class EventEncoder:
    """Encodes events in the form that one client asked for."""

    def __init__(self, api: Api, request: Request, choice: ResponseForm) -> None:
        self._api = api
        self._request = request
        self._choice = choice
        self._include = render.included(request)
        self._columns_sent = False
        self._encoded: tuple[Item, bytes] | None = None
        """A large object that was encoded in a thread."""
        own = request.resource.relabelling is None
        self._is_protobuf = choice.form.startswith("protobuf")
        self._event = protobuf_answers.event if self._is_protobuf else event_line
        self.plain = choice.form == "json" and own
        self.of_objects = choice.form in ("json", "partial") and own
        """Whether a sink that takes whole objects can encode them as the client asked."""

    @property
    def content_type(self) -> str:
        return protobuf_answers.WATCH_TYPE if self._is_protobuf else JSON

    async def prepare(self, item: Item) -> None:
        """Encode an object in a thread if that takes long."""
        if self._is_protobuf and len(item.body) >= LONG:
            self._encoded = (item, await self._api.long_work.run(LONG, self._body, item))

    def of(self, type_: str, item: Item) -> bytes:
        # It is used once: thousands of watches would otherwise hold a megabyte each.
        encoded, self._encoded = self._encoded, None
        if encoded is not None and encoded[0] is item:
            return self._event(type_, encoded[1])
        return self._event(type_, self._body(item))

    def error(self, error: StatusError) -> bytes:
        """Return the event that ends a watch."""
        status = error.status()
        encode = protobuf_answers.status if self._is_protobuf else msgspec.json.encode
        return self._event("ERROR", encode(status))

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        """Return a bookmark: a revision from which a later watch may start."""
        resource = self._request.resource
        meta: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        if self._choice.form == "table":
            return self._event("BOOKMARK", self._bookmark_table(meta))
        if self._choice.form in ("json", "protobuf"):
            kind, version = resource.kind, resource.api_version
        else:
            kind, version = "PartialObjectMetadata", f"meta.k8s.io/{self._choice.version}"
        document = {"kind": kind, "apiVersion": version, "metadata": meta}
        return self._event("BOOKMARK", self._marker(msgspec.json.encode(document)))

    def _marker(self, body: bytes) -> bytes:
        """Return the object of a bookmark in the form that the client asked for."""
        return self._body(Item("", 0, body)) if self._is_protobuf else body

    def _body(self, item: Item) -> bytes:
        match self._choice.form:
            case "json":
                return own_version(self._request.resource, item.body)
            case "protobuf":
                return protobuf_answers.one(self._request.resource, item)
            case "table":
                return self._table(item)
            case "addresses":
                return pod_addresses.reduced(item.body)
            case "partial" | "partial-list":
                return partial(item, self._choice.version)
            case _:
                return protobuf_answers.partial(item, self._choice.version)

    def _table(self, item: Item) -> bytes:
        meta = ListMeta(resourceVersion=str(item.revision))
        # kubectl leaves out cells for which the first table of a watch had no column.
        form = self._table_form([item])
        head = render.table_head(form, meta, columns=not self._columns_sent)
        self._columns_sent = True
        seconds = int(self._api.clock.now().timestamp())
        return head + render.row(form, item, seconds) + b"]}"

    def _table_form(self, items: Sequence[Item]) -> render.TableForm:
        resource = self._request.resource
        columns = render.columns_for(resource, items)
        return render.table_form(resource, columns, self._include, self._choice.version)

    def _bookmark_table(self, meta: dict[str, Any]) -> bytes:
        resource = self._request.resource
        head = render.table_head(
            self._table_form([]),
            ListMeta(resourceVersion=meta["resourceVersion"]),
            columns=not self._columns_sent,
        )
        self._columns_sent = True
        marker = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return head + b'{"cells":[],"object":%b}]}' % msgspec.json.encode(marker)


class WatchStream:
    """One watch, without a buffer of its own."""

    def __init__(
        self,
        api: Api,
        cache: ResourceCache,
        selection: Selection,
        lines: EventEncoder,
        *,
        bookmarks: bool,
        deadline: float,
    ) -> None:
        self._api = api
        self._cache = cache
        self._epoch = cache.epoch
        self._selection = selection
        self._lines = lines
        self._bookmarks = bookmarks
        self._deadline = deadline
        self._position = 0
        self._heard = 0
        """The position at which the watch began to listen."""
        self._sink: Sink
        self._tell: Callable[[str, bytes], None] | None = None
        """Takes objects instead of lines, if the sink does."""
        self._lagging: asyncio.Future[None] | None = None
        self._waits_for_webhook = selection.resource.conversion is not None
        """Whether each object must be converted by a webhook before it is sent."""

    def from_now(self, *, announce: bool, not_older: int) -> Callable[[Sink], Any]:
        """Stream the objects that exist, then the changes."""

        async def run(sink: Sink) -> None:
            self._pour_into(sink)
            if not await self._reached(not_older):
                return
            # A cache that was filled a moment ago may be ahead of the others.
            self._position = max(self._api.cache.revision, self._cache.loaded)
            try:
                if not await self._send_existing(sink):
                    return
            except StatusError as error:
                sink.write(self._lines.error(error))
                return
            if announce:
                sink.write(self._lines.bookmark(self._position, {INITIAL_EVENTS_END: "true"}))
            await self._follow()

        return run

    async def _send_existing(self, sink: Sink) -> bool:
        """Send the objects that exist; False if the time is up before."""
        for portion in self._portions(self._cache.candidates(self._selection)):
            for item in await own_versions(self._selection, portion):
                await self._api.clock.give_way()
                if self._is_late():
                    return False
                if not self._selection.everything and not self._selection.matches(item):
                    continue
                await self._lines.prepare(item)
                sink.write(self._lines.of("ADDED", item))
                if sink.paused:
                    await sink.drain()
        return True

    def _portions(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Split items into those that are converted together; all, if nothing is converted."""
        size = CONVERTED_TOGETHER if self._waits_for_webhook else max(len(items), 1)
        return (items[i : i + size] for i in range(0, len(items), size))

    def from_revision(self, revision: int) -> Callable[[Sink], Any]:
        """Stream the changes after a revision."""

        async def run(sink: Sink) -> None:
            self._pour_into(sink)
            self._position = revision
            try:
                await self._replay()
            except RevisionCompacted as lost:
                sink.write(self._lines.error(_too_old(revision, lost.oldest)))
                return
            except StatusError as error:
                sink.write(self._lines.error(error))
                return
            await self._follow()

        return run

    def _pour_into(self, sink: Sink) -> None:
        self._sink = sink
        if self._lines.of_objects:
            self._tell = getattr(sink, "tell", None)

    async def _reached(self, revision: int) -> bool:
        """Wait for a revision of the future; False if the time is up before."""
        cache, clock = self._api.cache, self._api.clock
        while cache.revision < revision:
            left = self._deadline - clock.monotonic()
            if left <= 0 or self._over():
                return False
            await clock.sleep(min(left, 1.0))
        return True

    async def _replay(self) -> None:
        """Send the changes that are older than the log, from the store's history."""
        # The log moves on while history is read and sent, so there may be more to read.
        while self._position < self._cache.log_start:
            until = self._cache.log_start
            changes, reached = await history(self._api.store, self._cache, self._position, until)
            for change in await self._converted(changes):
                await self._api.clock.give_way()
                if self._is_first(change) and self._is_late():
                    return
                if self._selection.sees(change) is not None:
                    await self._lines.prepare(change.item)
                self._send(change)
                if self._sink.paused:
                    await self._sink.drain()
            self._position = max(self._position, reached)

    async def _follow(self) -> None:
        clock = self._api.clock
        next_bookmark = clock.monotonic() + BOOKMARK_SECONDS
        while not self._is_late() and not self._over():
            if not await self._catch_up():
                return
            await self._listen(min(self._deadline, next_bookmark) - clock.monotonic())
            if clock.monotonic() >= next_bookmark:
                next_bookmark += BOOKMARK_SECONDS
                self._mark()
        self._mark()

    def _is_late(self) -> bool:
        """Whether the time of the watch is up. Its client goes on after the last change it got."""
        return self._api.clock.monotonic() >= self._deadline

    def _over(self) -> bool:
        """Whether the resource is gone, or stored in another version than this watch began with."""
        return self._cache.ended or self._cache.epoch != self._epoch

    async def _catch_up(self) -> bool:
        """Send the changes in the log; False if the next one is no longer there."""
        while True:
            if self._sink.paused:
                await self._sink.drain()
            if self._position < self._cache.log_start:
                self._sink.write(self._lines.error(_too_old(self._position, self._cache.log_start)))
                return False
            fresh = self._cache.changes_after(self._position)
            if not fresh:
                return True
            if self._waits_for_webhook:
                try:
                    fresh = await self._converted(_first_revisions(fresh, CONVERTED_TOGETHER))
                except StatusError as error:
                    self._sink.write(self._lines.error(error))
                    return False
            for change in fresh:
                await self._api.clock.give_way()
                if self._is_first(change) and self._is_late():
                    return False
                if self._sink.paused:
                    if self._is_first(change):
                        break
                    await self._sink.drain()
                if self._selection.sees(change) is not None:
                    await self._lines.prepare(change.item)
                self._send(change)

    def _is_first(self, change: Change) -> bool:
        """Whether the next change to be sent begins a revision."""
        return change.revision > self._position

    async def _converted(self, changes: list[Change]) -> list[Change]:
        """Return the changes with objects in the version of the watch, if a webhook converts them.
        The states before them matter only to selectors."""
        if not self._waits_for_webhook:
            return changes
        selection = self._selection
        items = await own_versions(selection, [change.item for change in changes])
        if selection.everything:
            return [
                Change(change.type, item, None) for change, item in zip(changes, items, strict=True)
            ]
        before = [change.previous for change in changes if change.previous is not None]
        previous = iter(await own_versions(selection, before))
        return [
            Change(change.type, item, None if change.previous is None else next(previous))
            for change, item in zip(changes, items, strict=True)
        ]

    async def _listen(self, seconds: float) -> None:
        """Let the cache push each change, until the time is up or the client lags."""
        from kedge.machinery.task_group import TaskGroup

        lagging = self._lagging = asyncio.get_running_loop().create_future()
        self._heard = self._position
        self._cache.listeners.add(self._push)
        try:
            async with TaskGroup() as group:
                timer = group.create_task(self._api.clock.sleep(max(seconds, 0)))
                timer.add_done_callback(lambda _: _resolve(lagging))
                await lagging
                timer.cancel()
        finally:
            self._cache.listeners.discard(self._push)
            self._lagging = None

    def _push(self, change: Change | None) -> None:
        lagging = self._lagging
        if lagging is None or lagging.done():
            return
        if change is None or (self._is_first(change) and self._must_wait(change)):
            lagging.set_result(None)
        elif change.revision > self._heard:
            self._push_now(change, lagging)
        if lagging.done():
            self._cache.listeners.discard(self._push)

    def _must_wait(self, change: Change) -> bool:
        """Whether the watch sends a change in a turn of its own."""
        return self._sink.paused or change.size > PUSHED_BYTES or self._waits_for_webhook

    def _push_now(self, change: Change, lagging: asyncio.Future[None]) -> None:
        try:
            self._send(change)
        except Exception as error:
            # A change that cannot be shown ends this watch, not the cache that feeds them all.
            lagging.set_exception(error)

    def _send(self, change: Change) -> None:
        self._position = change.revision
        seen = self._selection.sees(change)
        if seen is None:
            return
        if self._lines.plain and seen == change.type and self._tell is None:
            self._sink.write(change.line)
        elif seen == "DELETED" and change.type != "DELETED":
            self._show("DELETED", self._departed(change))
        else:
            self._show(seen, change.item)

    def _show(self, type_: str, item: Item) -> None:
        if self._tell is not None:
            self._tell(type_, item.body)
        else:
            self._sink.write(self._lines.of(type_, item))

    def _departed(self, change: Change) -> Item:
        """Return the last matching state of an object that left the selection."""
        assert change.previous is not None
        document = change.previous.document()
        document["metadata"]["resourceVersion"] = str(change.revision)
        return Item(change.previous.key, change.revision, msgspec.json.encode(document))

    def _mark(self) -> None:
        if self._bookmarks:
            # A bookmark promises that everything before it was sent.
            if self._cache.changed <= self._position:
                self._position = max(self._position, self._api.cache.revision)
            self._sink.write(self._lines.bookmark(self._position))


def _first_revisions(changes: list[Change], count: int) -> list[Change]:
    """Return so many changes, and those that belong to the revision of the last one."""
    while count < len(changes) and changes[count].revision == changes[count - 1].revision:
        count += 1
    return changes[:count]


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _too_old(revision: int, oldest: int) -> StatusError:
    return expired(f"too old resource version: {revision} ({oldest})")
