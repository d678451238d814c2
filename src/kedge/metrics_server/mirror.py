"""CacheMirror: the nodes and pods of another cluster, in the caches of this server."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from kedge.apiserver.watchcache import ResourceCache
from kedge.metrics.scrape.cluster import NodeSketch, PodSketch
from kedge.storage.store import StoreEntry, StoreEvent

M = TypeVar("M", NodeSketch, PodSketch)


class CacheMirror(Generic[M]):
    """A Receiver that feeds a cache, if a field that the cache needs has changed."""

    def __init__(self, cache: ResourceCache, revisions: Iterator[int]) -> None:
        """`revisions` are counted for all caches of the server together."""
        self._cache = cache
        self._revisions = revisions
        self._known: dict[str, tuple[str, bytes]] = {}
        """The uid and the value of each object in the cache."""

    def replace(self, objects: Iterable[M]) -> None:
        """These are all there are."""
        fresh = {self._key(obj): obj for obj in objects}
        for key in self._known.keys() - fresh.keys():
            self._delete(key)
        for obj in fresh.values():
            self.put(obj)

    def put(self, obj: M) -> None:
        """An object is new or has changed."""
        key, uid = self._key(obj), obj.metadata.uid
        resource = self._cache.resource
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        value = msgspec.json.encode(head | msgspec.to_builtins(obj))
        known = self._known.get(key)
        if known == (uid, value):
            return
        if known is not None and known[0] != uid:
            # Another of the same name; that the first was deleted has been missed.
            self._delete(key)
        self._known[key] = uid, value
        self._tell("put", key, value)

    def remove(self, obj: M) -> None:
        """An object is gone."""
        key = self._key(obj)
        if key in self._known:
            self._delete(key)

    def _delete(self, key: str) -> None:
        _, value = self._known.pop(key)
        self._tell("delete", key, value)

    def _tell(self, kind: str, key: str, value: bytes) -> None:
        revision = next(self._revisions)
        entry = StoreEntry(key, value, revision, revision)
        self._cache.feed(StoreEvent("delete" if kind == "delete" else "put", entry, None))

    def _key(self, obj: M) -> str:
        return self._cache.resource.key(obj.metadata.namespace, obj.metadata.name)
