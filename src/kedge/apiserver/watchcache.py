"""Watch cache: the newest objects as bytes for readers, and a log of changes for watchers.

One task (`WatchCache.run`) follows the store and feeds every write to the cache of its resource.
Reads and watches never touch the store, except for history that the log no longer holds. Four
properties make this safe:

- **List, then watch from the same revision.** A cache is loaded from a list at revision R. Writes
  after R arrive through the watch, and `feed` drops writes up to R, which the list already
  contains. An object is neither lost nor seen twice.
- **One order.** The store has one revision across all keys and delivers its events in that order. A
  single task feeds them, so each cache, its log and its listeners see the same order, and
  `WatchCache.revision` means that everything up to it is in the caches.
- **No await inside a revision.** `feed` updates the objects, the sorted keys and the log and calls
  the listeners in one turn of the event loop, for all changes of a revision if there are several. A
  list sees a whole state, and a watch that lists and then listens in one turn misses nothing. This
  replaces the lock of upstream's Cacher.
- **Read your writes.** A write responds only after `reached(revision)`, so a client that writes and
  then reads gets its own write or a newer one.

Bytes come first: the stored value already has the form that clients get, and the resourceVersion is
spliced in (`stamped`). Labels, fields and table rows are derived when they are asked for and kept
with the item. Items are never changed after they are published, except by `adopt` and `shorten`; a
list may therefore hand them to a slow response without a copy. An object that has left the log is
kept in a shorter form (`alike_bodies.py`). Its body is then made when it is read.

Upstream's cache has one ring of events per resource and closes watchers that fall behind. Here the
log is shared by all watchers of a resource, and a slow watcher stops listening and reads from the
log when it is ready again; it gets 410 Gone only if the log and the store's history have both moved
on.
"""

import asyncio
import heapq
import logging
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kedge.api.resource import Resource
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelRequirements
from kedge.machinery.turns import next_turn
from kedge.storage.store import (
    ENCRYPTED,
    PROTOBUF,
    RevisionCompacted,
    Store,
    StoreEntry,
    StoreError,
    StoreEvent,
    UndecryptableValue,
    UnreadableValue,
)

if TYPE_CHECKING:
    # Imported when the first object is shortened, which none is at the start.
    from kedge.apiserver.alike_bodies import AlikeBodies, ShortBody

log = logging.getLogger(__name__)

EVENTS_PER_TURN = 64
"""Writes that are applied before the event loop does something else."""
LOG_LENGTH = 4096
"""Changes kept in memory for each resource; watches that start further back read the store."""
LOG_BYTES = 8 << 20
"""How large they may be together. An object may have a megabyte, and four thousand changes of one
that is as large would fill four gigabytes, by a tenant who may write a single ConfigMap."""
ALL_LOGS_BYTES = 32 << 20
"""How large the logs of all resources may be together. A tenant may write dozens of resources, and
an administrator may define hundreds."""
CHANGE_BYTES = 1 << 10
"""Memory of a change besides its bytes: its key, labels, fields and a row of a table. Most objects
have less than a kilobyte, so the logs would otherwise take three times the memory that is counted
for them."""
SHORTENED_AT_ONCE = 2
"""Objects that are shortened with each change: more than leave the log, but not all at once if
hundreds make way for a large one."""
LABELS_KEPT = 32 << 10
"""Labels of larger objects are decoded for each comparison: twenty thousand labels take five times
as much memory as the object, and the logs hold many states of it."""
UNREADABLE_LOGGED = 20
"""Values of other programs that are named in the log of the server; later ones are not."""
UNREADABLE = (UnreadableValue, UndecryptableValue)
HISTORY_BYTES = 4 << 20
"""How much history is read from the store before it is sent."""


class _Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _Labels = _Labels()


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


class ItemIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """The few fields of an object's metadata that say which one it is."""

    name: str = ""
    uid: str = ""
    deletion_timestamp: str = ""


class _ItemWithIdentity(msgspec.Struct):
    metadata: ItemIdentity = ItemIdentity()


_identified = msgspec.json.Decoder(_ItemWithIdentity)
_labels = msgspec.json.Decoder(_Labelled)
_metadata = msgspec.json.Decoder(_Metadata)


class Item(msgspec.Struct, eq=False, gc=False):
    """One state of one object: the bytes that clients get, and what was once derived from them.
    Part of no cycle, and there are as many as objects: searches for garbage leave it out."""

    key: str
    revision: int
    _body: "bytes | ShortBody"
    """In one field: threads read it while the event loop shortens it."""
    row: Any = None
    """A cached value of the table renderer."""
    protobuf: bytes | None = None
    """The object as protobuf, if a client has asked for it."""
    _labels: Mapping[str, str] | None = None
    _fields: Any = None
    """The source of the values of selectable fields, or the values."""

    @property
    def body(self) -> bytes:
        """The bytes that clients get."""
        body = self._body
        if isinstance(body, bytes):
            return body
        return body.whole()

    @property
    def size(self) -> int:
        """How many bytes clients get, or a few more: known without making them."""
        body = self._body
        return len(body) if isinstance(body, bytes) else body.size

    def convert(self, body: bytes) -> None:
        """Take over the body under another definition of the resource."""
        self._body = body
        self.derived_anew()

    def shorten(self, alike: "AlikeBodies") -> None:
        """Keep only what differs from alike objects: this one has not changed for a while."""
        self._labels = self._fields = None
        body = self._body
        if isinstance(body, bytes):
            self._body = alike.shortened(self.key, body) or body

    def superseded(self) -> None:
        """Drop large derived values: there is a newer state, and only watches that are behind ask
        for this one."""
        self.row = self.protobuf = None

    def derived_anew(self) -> None:
        """Forget what was derived by rules that no longer hold."""
        self.row = self._fields = None

    @property
    def labels(self) -> Mapping[str, str]:
        kept = self._labels  # once: it may be forgotten by the event loop meanwhile
        if kept is not None:
            return kept
        found = _labels.decode(self.body).metadata.labels
        if self.size <= LABELS_KEPT:
            self._labels = found
        return found

    @property
    def metadata(self) -> msgspec.Raw:
        """The object's metadata, still encoded."""
        return _metadata.decode(self.body).metadata

    @property
    def identity(self) -> ItemIdentity:
        return _identified.decode(self.body).metadata

    def document(self) -> dict[str, Any]:
        """A fresh plain document that the caller may change."""
        document: dict[str, Any] = msgspec.json.decode(self.body)
        return document

    def field(self, resource: Resource[Any], name: str) -> str:
        """Return the value of a selectable field; empty if the resource has no such field."""
        readers = resource.presentation.fields
        read = readers.get(name)
        if read is None:
            return ""
        kept = self._fields
        if kept is None:
            source = resource.decode_fields(self.body)
            # A whole object is not kept: it takes more memory than its JSON.
            is_small = resource.presentation.field_source is not None
            kept = source if is_small else {each: of(source) for each, of in readers.items()}
            self._fields = kept
        value: str = kept[name] if isinstance(kept, dict) else read(kept)
        return value


def bodies_of(items: Iterable[Item]) -> list[bytes]:
    """Return the bytes of many items, without a call for each that is kept whole."""
    return [body if isinstance(body := item._body, bytes) else body.whole() for item in items]


ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Change(msgspec.Struct, eq=False, gc=False):
    """One event of the log. A deletion's item is the last state under the deletion's revision."""

    type: ChangeType
    item: Item
    previous: Item | None
    _line: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes that are kept for it: the object, its labels and fields."""
        return self.item.size + CHANGE_BYTES

    @property
    def revision(self) -> int:
        return self.item.revision

    @property
    def line(self) -> bytes:
        """The event as a watcher without any wishes gets it; made once for all that listen."""
        if self._line is None:
            self._line = event_line(self.type, self.item.body)
        return self._line or event_line(self.type, self.item.body)

    def sent(self) -> None:
        """Keep the line no longer: the lines of a full log would take as much memory as its
        objects. Watchers that lag, and read the log, make their own."""
        self._line = b""


def event_line(type_: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), body)


class Selection:
    """Which objects of a resource a list or watch is about."""

    __slots__ = ("everything", "fields", "labels", "name", "namespace", "resource")

    def __init__(
        self,
        resource: Resource[Any],
        namespace: str,
        labels: LabelRequirements,
        fields: FieldSelector,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.labels = labels
        self.fields = fields
        self.name = fields.exact("metadata.name")
        self.everything = labels.empty and fields.empty
        """Whether the namespace alone decides."""

    @property
    def prefix(self) -> str:
        return self.resource.prefix + (f"{self.namespace}/" if self.namespace else "")

    def matches(self, item: Item) -> bool:
        if not item.key.startswith(self.prefix):
            return False
        if not self.labels.empty and not self.labels.matches(item.labels):
            return False
        return self.fields.empty or self.fields.matches(lambda name: self._field(item, name))

    def _field(self, item: Item, name: str) -> str:
        if name == "metadata.name":
            return item.key.rpartition("/")[2]
        if name == "metadata.namespace":
            return item.key.split("/")[-2] if self.resource.namespaced else ""
        return item.field(self.resource, name)

    def sees(self, change: Change) -> ChangeType | None:
        """Return the type of the event that a watcher of this selection gets, or None.

        An update can move an object into or out of a selection. The watcher must see ADDED or
        DELETED then, although the object was neither created nor deleted; otherwise its cache would
        keep an object that no longer matches. This needs the previous state, which is why a Change
        keeps it.
        """
        if self.everything:
            return change.type if change.item.key.startswith(self.prefix) else None
        was = change.previous is not None and self.matches(change.previous)
        if change.type == "DELETED":
            return "DELETED" if was else None
        if self.matches(change.item):
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else None


class ResourceCache:
    """The objects of one resource as they are now, and their latest changes."""

    def __init__(
        self, resource: Resource[Any], loaded: int, alike: "Callable[[], AlikeBodies]"
    ) -> None:
        """`alike` returns what shortens objects that have left the log."""
        self.resource = resource
        self.loaded = loaded
        """The store revision that this cache began with."""
        self.changed = loaded
        """The revision of the latest change."""
        self.log: deque[Change] = deque()
        self._log_bytes = 0
        self.log_start = loaded
        """Changes after this revision are all in the log."""
        self.listeners: set[Callable[[Change | None], None]] = set()
        """Called with every change; None means that the resource is no longer served as before."""
        self.ended = False
        self.epoch = 0
        """Counts the changes of the version in which the objects are stored."""
        self.unreadable: dict[str, StoreError] = {}
        """Objects of other programs that cannot be read, if no former state of them is known."""
        self._head = splice_head(resource)
        self._items: dict[str, Item] = {}
        self._keys: list[str] = []
        self._alike = alike
        self._quiet: deque[Item] = deque()
        """Objects that have left the log, to be shortened."""

    def __len__(self) -> int:
        return len(self._items)

    async def adopt(
        self, resource: Resource[Any], clock: Clock, entries: Iterable[StoreEntry] = ()
    ) -> None:
        """Go on under a changed definition of the same resource.

        Converting all objects takes long, so it is done in many turns of the event loop, into a
        mapping that no reader sees. The results take effect in one turn. Objects that were written
        between these turns are recognised by identity (a write makes a new Item) and converted in
        the last turn; there are few of them.

        `entries` is what the store holds, for a kind whose versions a webhook converts: it must get
        each object in the version in which it was stored, which the items may not have kept.
        """
        stored = {entry.key: entry for entry in entries}
        anew: dict[str, tuple[Item, bytes]] = {}
        for item in tuple(self._items.values()):
            await clock.give_way()
            entry = stored.get(item.key)
            is_same = entry is not None and entry.revision == item.revision
            document = msgspec.json.decode(entry.value) if entry and is_same else item.document()
            anew[item.key] = item, _reread(resource, document, item.revision)
        changed = (
            resource.api_version != self.resource.api_version
            or resource.conversion is not self.resource.conversion
        )
        self.resource = resource
        self._head = splice_head(resource)
        for key, item in self._items.items():
            known, body = anew.get(key, (None, b""))
            if known is not item:
                # Written during the turns above: convert this state, not the one that was replaced.
                body = _reread(resource, item.document(), item.revision)
            item.convert(body)
        if changed:
            # The log holds bytes in the old version, and watches would ask the old webhook. It is
            # dropped, and watches end with None: their clients start again from the store's
            # history, which is converted when it is read.
            self.log.clear()
            self._log_bytes = 0
            self.log_start = self.changed
            self.epoch += 1
            for listener in tuple(self.listeners):
                listener(None)

    def load(self, entries: Iterable[StoreEntry]) -> None:
        """Begin with these objects; raises UnreadableValue or UndecryptableValue."""
        self._items = {entry.key: self.item(entry) for entry in entries}
        self._keys = sorted(self._items)

    def load_readable(self, entries: Iterable[StoreEntry]) -> None:
        """Begin with those of the objects that can be read; raises UnreadableValue or
        UndecryptableValue if none can.

        The server was then started in the wrong way, perhaps without its keys. Its controllers
        would take all objects for absent.
        """
        for entry in entries:
            try:
                self._items[entry.key] = self.item(entry)
            except UNREADABLE as error:
                self.unreadable[entry.key] = error
        if self.unreadable and not self._items:
            raise next(iter(self.unreadable.values()))
        self._keys = sorted(self._items)

    def item(self, entry: StoreEntry) -> Item:
        if entry.value.startswith(ENCRYPTED):
            raise UndecryptableValue(entry.key)  # the server runs without its key
        try:
            return Item(entry.key, entry.revision, self.stamped(entry.value, entry.revision))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            # Only other programs that write to the same etcd store such values.
            is_protobuf = entry.value.startswith(PROTOBUF)
            why = "is stored as protobuf" if is_protobuf else f"cannot be read ({error})"
            raise UnreadableValue(entry.key, why) from error

    def can_read(self, entry: StoreEntry) -> bool:
        try:
            self.item(entry)
        except UNREADABLE:
            return False
        return True

    def stamped(self, value: bytes, revision: int) -> bytes:
        """Return the stored value as clients see it, with its resourceVersion.

        The version is known only after the commit, so it cannot be part of the stored bytes. The
        server writes every object with the same first fields, so the place of the splice is a
        prefix of fixed length: two copies of bytes instead of a decode and an encode. A value with
        another beginning was stored under another version of the kind and takes the slow way.
        """
        head = self._head
        if value.endswith(b"\n"):
            value = value[:-1]  # kube-apiserver ends each value so; watches have one event per line
        if self.resource.read is None and value.startswith(head):
            return b'%b"resourceVersion":"%d",%b' % (head, revision, value[len(head) :])
        return _reread(self.resource, msgspec.json.decode(value), revision)

    def get(self, key: str) -> Item | None:
        return self._items.get(key)

    def select(self, selection: Selection) -> list[Item]:
        """Everything selected, in the order of the keys."""
        found = self.candidates(selection)
        return found if selection.everything else [i for i in found if selection.matches(i)]

    def candidates(self, selection: Selection, after: str = "", most: int = 0) -> list[Item]:
        """Return the items that match the selection's place, in the order of the keys: those with
        keys after one, and at most so many, if it is not 0."""
        items = self._items
        if selection.name and (selection.namespace or not self.resource.namespaced):
            item = items.get(self.resource.key(selection.namespace, selection.name))
            return [] if item is None or item.key <= after else [item]
        place = self._range(selection.prefix, after)
        # Without a copy of all keys if every object is in the place.
        is_all = len(place) == len(items)
        keys = self._keys if is_all else self._keys[place.start : place.stop]
        return [items[key] for key in (keys[:most] if most else keys)]

    def count(self, selection: Selection, after: str) -> int:
        """Return how many items there are in the selection's place, with keys after one."""
        return len(self._range(selection.prefix, after))

    def last_key(self, selection: Selection) -> str:
        """Return the last key in the selection's place; empty if there is none."""
        if selection.name and (selection.namespace or not self.resource.namespaced):
            return self.resource.key(selection.namespace, selection.name)
        place = self._range(selection.prefix)
        return self._keys[place[-1]] if place else ""

    def values(self) -> Iterable[Item]:
        return self._items.values()

    def _range(self, prefix: str, after: str = "") -> range:
        """Return the places of keys with a prefix, after one of them."""
        keys = self._keys
        start = bisect_right(keys, after) if after else 0
        if prefix == self.resource.prefix:
            return range(start, len(keys))
        # All keys with the prefix "a/" lie between "a/" and "a0", because "0" is the character
        # after "/". Two bisections find a namespace among all objects of a resource.
        start = max(start, bisect_left(keys, prefix))
        return range(start, bisect_left(keys, prefix[:-1] + "0"))

    def change(self, event: StoreEvent) -> Change:
        """A write from the store's history; raises UnreadableValue or UndecryptableValue."""
        previous = None if event.previous is None else self.item(event.previous)
        if event.kind == "delete":
            return Change("DELETED", self.item(event.entry), previous)
        return Change("MODIFIED" if previous else "ADDED", self.item(event.entry), previous)

    def feed(self, event: StoreEvent) -> None:
        """Apply the next write to this resource and call the listeners. Raises UnreadableValue or
        UndecryptableValue for a value of another program, and serves the former state on."""
        entry = event.entry
        if entry.revision <= self.loaded:
            # The list that filled this cache contained the write already.
            return
        previous = self._items.get(entry.key)
        if self.unreadable:
            self.unreadable.pop(entry.key, None)
        item = self._deleted(entry, previous) if event.kind == "delete" else self.item(entry)
        if event.kind == "delete":
            # The store sends the last value with a deletion. `previous` is the same object at its
            # own revision, which selectors compare; the event carries the revision of the deletion,
            # so that a client that resumes from it does not get the deletion again.
            change = Change("DELETED", item, previous or item)
            if previous is not None:
                del self._items[entry.key]
                del self._keys[bisect_left(self._keys, entry.key)]
        else:
            change = Change("ADDED" if previous is None else "MODIFIED", item, previous)
            if previous is not None:
                item.key = previous.key  # the same string for all states, the maps and the list
            self._items[entry.key] = item
            if previous is None:
                insort(self._keys, entry.key)
        if previous is not None:
            previous.superseded()
        self._record(change)

    def _deleted(self, entry: StoreEntry, previous: Item | None) -> Item:
        """Return the last state of an object; the last readable one if another program replaced
        it."""
        try:
            return self.item(entry)
        except UNREADABLE:
            if previous is None:
                raise
            return Item(entry.key, entry.revision, previous.body)

    def _record(self, change: Change) -> None:
        self.changed = change.revision
        self.log.append(change)
        self._log_bytes += change.size
        # The newest change always stays, however large: a log that is empty although something
        # changed would send every watcher to the store.
        while len(self.log) > LOG_LENGTH or (self._log_bytes > LOG_BYTES and len(self.log) > 1):
            self._drop_first()
        self._shorten_some()
        # A copy, because a listener may remove itself: a watch whose client reads too slowly does.
        for listener in tuple(self.listeners):
            listener(change)
        change.sent()

    def changes_after(self, revision: int) -> list[Change]:
        """Return the changes after a revision; complete unless it lies before `log_start`.

        The search goes backwards: a watch that stopped for a moment needs the last few of 4,096.
        """
        fresh: list[Change] = []
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            fresh.append(change)
        fresh.reverse()
        return fresh

    @property
    def log_bytes(self) -> int:
        return self._log_bytes

    def halve_log(self) -> None:
        """Drop the older half of the log, counted in bytes."""
        keep = self._log_bytes // 2
        while self._log_bytes > keep and len(self.log) > 1:
            self._drop_first()

    def _drop_first(self) -> None:
        dropped = self.log.popleft()
        self._log_bytes -= dropped.size
        self.log_start = dropped.revision
        if self._is_current(dropped.item):
            self._quiet.append(dropped.item)

    def _shorten_some(self) -> None:
        for _ in range(min(SHORTENED_AT_ONCE, len(self._quiet))):
            item = self._quiet.popleft()
            if self._is_current(item):
                item.shorten(self._alike())

    def _is_current(self, item: Item) -> bool:
        return self._items.get(item.key) is item

    async def shorten(self, clock: Clock) -> None:
        """Keep only what differs from alike objects of all that have not changed of late, in many
        turns of the event loop."""
        for item in tuple(self._items.values()):
            await clock.give_way()
            if item.revision <= self.log_start:
                item.shorten(self._alike())


class WatchCache:
    """All resource caches, fed by one watch of the whole store."""

    def __init__(self, store: Store, *, is_shared: bool = False) -> None:
        """`is_shared` says that other programs write to the store, perhaps what cannot be read."""
        self.store = store
        self._is_shared = is_shared
        self._unreadable = 0
        """Values of other programs that were skipped."""
        self.revision = store.revision
        """Everything up to here is in the caches."""
        self._caches: dict[str, ResourceCache] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._log_bytes = 0
        """Bytes of all logs; never less than they have."""
        self._known: AlikeBodies | None = None

    async def add(self, resource: Resource[Any]) -> ResourceCache:
        """Begin to serve one more resource from the objects that the store holds.

        The watch is already running and drops events of a resource without a cache. No event is
        lost all the same: the callers publish the resource after this returns, so that no client
        can write an object between the list and the assignment.
        """
        cache = self._caches.get(resource.registry)
        if cache is None:
            page = await self.store.list(resource.prefix)
            cache = ResourceCache(resource, page.revision, self._alike)
            self._fill(cache, page.entries)
            self._caches[resource.registry] = cache
        return cache

    async def load(self, resources: Iterable[Resource[Any]]) -> None:
        """Begin to serve many resources with a single read of the store."""
        page = await self.store.list("/registry/")
        self.revision = page.revision
        shares: dict[str, list[StoreEntry]] = {}
        for resource in resources:
            self._caches[resource.registry] = ResourceCache(resource, page.revision, self._alike)
            shares[resource.registry] = []
        for entry in page.entries:
            cache = self._cache_of(entry.key)
            if cache is not None:
                shares[cache.resource.registry].append(entry)
        for registry, entries in shares.items():
            self._fill(self._caches[registry], entries)

    def _alike(self) -> "AlikeBodies":
        """Return what shortens the objects of all resources: what it remembers is bounded for all
        of them together."""
        if self._known is None:
            from kedge.apiserver.alike_bodies import AlikeBodies

            self._known = AlikeBodies()
        return self._known

    def _fill(self, cache: ResourceCache, entries: Iterable[StoreEntry]) -> None:
        if not self._is_shared:
            cache.load(entries)
            return
        cache.load_readable(entries)
        for error in cache.unreadable.values():
            self._log_unreadable(error)

    def remove(self, resource: Resource[Any]) -> None:
        """Stop serving a resource and end its watches."""
        cache = self._caches.pop(resource.registry, None)
        if cache is not None:
            cache.ended = True
            for listener in tuple(cache.listeners):
                listener(None)

    def at(self, key: str) -> ResourceCache | None:
        """Return the cache that has the object of a key."""
        return self._cache_of(key)

    def of(self, resource: Resource[Any]) -> ResourceCache:
        return self._caches[resource.registry]

    def all(self) -> Iterable[ResourceCache]:
        return self._caches.values()

    async def run(self) -> None:
        """Follow the store, for ever."""
        fed = 0
        parts: list[StoreEvent] = []
        async for event in self.store.watch("", since=self.revision):
            fed += 1
            if event.more:
                parts.append(event)
                continue
            if fed >= EVENTS_PER_TURN:
                # After a slow commit thousands may be due, each for a hundred watchers.
                await next_turn()
                fed = 0
            if parts:
                for part in parts:
                    self._feed(part)
                parts = []
            self._feed(event)
            # After the feed: a waiter that sees the revision must find the object.
            self.revision = event.entry.revision
            if self._waiters:
                self._wake()

    async def shorten(self, clock: Clock) -> None:
        """Keep only what differs from alike objects of all that were loaded."""
        for cache in tuple(self._caches.values()):
            await cache.shorten(clock)

    def _feed(self, event: StoreEvent) -> None:
        cache = self._cache_of(event.entry.key)
        if cache is None:
            return
        before = cache.log_bytes
        try:
            cache.feed(event)
        except UNREADABLE as error:
            # Its former state is served on: one value must not end the watches of all others.
            key = event.entry.key
            if event.kind == "put" and cache.get(key) is None:
                cache.unreadable[key] = error
            self._log_unreadable(error)
        self._log_bytes += cache.log_bytes - before
        if self._log_bytes > ALL_LOGS_BYTES:
            self._shorten_logs()

    def _log_unreadable(self, error: StoreError) -> None:
        self._unreadable += 1
        if self._unreadable <= UNREADABLE_LOGGED:
            log.error("value of another program skipped error=%s", error)
        if self._unreadable == UNREADABLE_LOGGED:
            log.error("further values of other programs that are skipped are not logged")

    def _shorten_logs(self) -> None:
        """Halve the largest log. Its watchers that start further back read the store.

        Logs also become shorter where this class does not see it (a changed definition, compacted
        history), so the sum is counted anew: the running one only says when to look. Halving
        makes the next look come late, whatever the number of resources.
        """
        self._log_bytes = sum(cache.log_bytes for cache in self._caches.values())
        while self._log_bytes > ALL_LOGS_BYTES:
            largest = max(self._caches.values(), key=lambda cache: cache.log_bytes)
            before = largest.log_bytes
            largest.halve_log()
            self._log_bytes -= before - largest.log_bytes
            if before == largest.log_bytes:
                return  # a single change in each log

    async def reached(self, revision: int) -> None:
        """Return once the caches hold that revision.

        The waiters are a heap by revision, with a counter that breaks ties: the feeding task looks
        at the smallest only, and pays nothing for the others.
        """
        if revision > self.revision:
            future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (revision, next(self._order), future))
            await future

    def _wake(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.revision:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    def _cache_of(self, key: str) -> ResourceCache | None:
        if not key.startswith("/registry/"):
            return None
        _, _, first, *more = key.split("/", 3)
        if not more:
            return None  # not a key of an object
        (rest,) = more
        found = self._caches.get(first)
        if found is not None:
            return found
        return self._caches.get(f"{first}/{rest.partition('/')[0]}")


def splice_head(resource: Resource[Any]) -> bytes:
    """How the stored bytes of a resource begin; its version is spliced in right after."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    return msgspec.json.encode(head)[:-2]


def _reread(resource: Resource[Any], document: dict[str, Any], revision: int) -> bytes:
    """A document that was perhaps stored in another version or under another definition."""
    if resource.read is not None:
        document = resource.read(document)
    version = resource.api_version if resource.conversion is None else document["apiVersion"]
    head = {"kind": resource.kind, "apiVersion": version, "metadata": document["metadata"]}
    document["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(head | {k: v for k, v in document.items() if k not in head})


async def history(
    store: Store, cache: ResourceCache, since: int, until: int
) -> tuple[list[Change], int]:
    """The first changes in (since, until] of a resource, from the store, and the revision that they
    reach up to; raises RevisionCompacted."""
    changes: list[Change] = []
    size = 0
    # The whole store is followed, not the resource alone: a write of exactly `until` must come by.
    events = store.watch("", since=since)
    try:
        async for event in events:
            if event.entry.key.startswith(cache.resource.prefix):
                change = _readable_change(cache, event, since)
                if change is not None:
                    changes.append(change)
                    size += change.size
            is_enough = event.entry.revision >= until or size >= HISTORY_BYTES
            if is_enough and not event.more:
                return changes, event.entry.revision
    finally:
        await events.aclose()
    return changes, until


def _readable_change(cache: ResourceCache, event: StoreEvent, since: int) -> Change | None:
    """Return a write from history; None if its value cannot be read. Raises RevisionCompacted if
    the value that it replaced cannot be read: watchers may have a state from before that, and must
    list again."""
    try:
        return cache.change(event)
    except UNREADABLE:
        if event.kind == "put" and (event.previous is None or cache.can_read(event.previous)):
            return None
        raise RevisionCompacted(since, event.entry.revision) from None
