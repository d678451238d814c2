"""WriteChains: writers of an object take turns, and may build on writes that are not committed.

Writers of one object wait for each other. If each waited for the commit of the one before, an
object would change at most once per commit. So a writer gives the turn away as soon as its write is
queued. The next one makes its change of the state that will be stored then (`QueuedObject`), and
the store accepts it only on top of that write. Both may be in one commit.

The revision of a queued write is not known, so only a change may build on one whose result does not
depend on it (`write.modify`). A write fails with RevisionConflict if the one below it fails,
whatever the reason, and its request begins again with the state that is stored. Nothing is
acknowledged, and no reader sees anything, before its own commit.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from kedge.api.catalog import Catalog
from kedge.apiserver.admission.template_basis import ADMISSION_GROUP, DECIDING_KINDS
from kedge.apiserver.watchcache import Item, ResourceCache, WatchCache
from kedge.storage.store import ChainingStore, QueuedPut, Store

_UNKNOWN: Final = 0
"""Stands for the revision of a queued write: an update with this version fits any state."""


class QueuedObject:
    """The state of an object that a queued write will store."""

    __slots__ = ("_objects", "_value", "is_over", "key", "put")

    def __init__(self, key: str, value: bytes, put: QueuedPut, objects: ResourceCache) -> None:
        self.key = key
        self.put = put
        self.is_over = asyncio.Event()
        """Set when readers see the write, or it has failed."""
        self._value = value
        self._objects = objects

    def item(self) -> Item:
        """Return the object as readers will see it, but for its version."""
        return Item(self.key, _UNKNOWN, self._objects.stamped(self._value, _UNKNOWN))

    @property
    def has_failed(self) -> bool:
        entry = self.put.entry
        return entry.done() and (entry.cancelled() or entry.exception() is not None)


class WriteChains:
    """The turns of all objects, and their queued states."""

    def __init__(self, store: Store, cache: WatchCache, catalog: Catalog) -> None:
        self._store = store if isinstance(store, ChainingStore) else None
        self._deciding = _deciding(cache, catalog)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._last: dict[str, QueuedObject] = {}
        """The newest queued state of each object that has one."""

    def turn(self, key: str) -> asyncio.Lock:
        """Return what a writer of an object holds from reading it until its write is queued."""
        lock = self._turns.get(key)
        if lock is None:
            lock = self._turns[key] = asyncio.Lock()
        return lock

    async def settled(self, key: str) -> None:
        """Return once no write of the object is queued. The caller has the turn."""
        while (last := self._last.get(key)) is not None:
            await last.is_over.wait()

    @property
    def are_possible(self) -> bool:
        """Whether writes may be queued for others to build on: the store must know how, and
        there must be no webhook or policy, which would see the unknown version."""
        return self._store is not None and not any(map(len, self._deciding))

    def last(self, key: str) -> QueuedObject | None:
        """Return the newest queued state of an object; None if there is none to build on."""
        last = self._last.get(key)
        return None if last is None or last.has_failed else last

    def submit(
        self,
        objects: ResourceCache,
        key: str,
        value: bytes,
        *,
        before: Item | QueuedObject,
        ttl: int,
    ) -> QueuedObject:
        """Queue a write in place of a state, stored or queued. The caller gives the turn away, and
        then waits for the outcome without doing anything else first."""
        assert self._store is not None
        expect = before.revision if isinstance(before, Item) else before.put.revision
        put = self._store.submit(key, value, expect=expect, ttl=ttl)
        queued = self._last[key] = QueuedObject(key, value, put, objects)
        return queued

    def end(self, queued: QueuedObject) -> None:
        """Forget a write that readers see, or that has failed."""
        queued.is_over.set()
        if self._last.get(queued.key) is queued:
            del self._last[queued.key]


def _deciding(cache: WatchCache, catalog: Catalog) -> Sequence[ResourceCache]:
    """Return the webhooks and the policies that are in force."""
    found = [catalog.find(ADMISSION_GROUP, "v1", plural) for plural in DECIDING_KINDS.values()]
    return tuple(cache.of(resource) for resource in found if resource is not None)
