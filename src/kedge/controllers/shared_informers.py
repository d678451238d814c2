"""Shared informers: one watch and one object cache per kind, for all controllers.

Shared: each kind is followed once, however many controllers look at it.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from kedge.api.model import Object, OwnerReference
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.informer import Informer, Key
from kedge.client.object_views import ObjectViews
from kedge.client.view import View
from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

PATIENCE = 30
"""Seconds for which a write is waited for: a watch that broke may never tell of it."""

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

Change = Callable[[T | None, T | None], None]
"""Called with the old and the new object: None before it was created, and after it was deleted."""


LabelSet = frozenset[tuple[str, str]]


def key_of(obj: Object) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


def label_set(obj: Object) -> LabelSet:
    """The labels of an object, as a key."""
    return frozenset(obj.metadata.labels.items())


def controller_of(obj: Object) -> OwnerReference | None:
    """The owner that manages an object; there is at most one."""
    for owner in obj.metadata.ownerReferences:
        if owner.controller:
            return owner
    return None


def differ_in_status_only(before: Object, now: Object) -> bool:
    """Whether two states of an object differ in nothing that its controller acts on: neither in the
    spec, which the generation counts, nor in the metadata that users write."""
    old, new = before.metadata, now.metadata
    return (
        old.uid == new.uid
        and old.generation == new.generation
        and old.deletionTimestamp == new.deletionTimestamp
        and old.labels == new.labels
        and old.annotations == new.annotations
        and old.ownerReferences == new.ownerReferences
        and old.finalizers == new.finalizers
    )


def _manager(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner.uid if owner else None


def _version(obj: Object) -> int:
    return int(obj.metadata.resourceVersion)


def _namespace(obj: Object) -> str:
    return obj.metadata.namespace


class Index(Protocol[T_contra]):
    """Follows every change of cached objects."""

    def changed(self, key: Key, before: T_contra | None, now: T_contra | None) -> None:
        """`key` is that of the object. All indexes keep the same one."""
        ...


class ObjectIndex(Generic[T]):
    """An index of cached objects by a key function, such as their owner."""

    def __init__(self, group: Callable[[T], Hashable | None]) -> None:
        self._group = group
        self._groups: dict[Hashable, dict[Key, T]] = {}

    def get(self, group: Hashable) -> list[T]:
        return list(self._groups.get(group, {}).values())

    def count(self, group: Hashable) -> int:
        return len(self._groups.get(group, {}))

    def changed(self, key: Key, before: T | None, now: T | None) -> None:
        old = None if before is None else self._group(before)
        new = None if now is None else self._group(now)
        if old is not None and old != new:
            members = self._groups[old]
            members.pop(key, None)
            if not members:
                del self._groups[old]
        if now is not None and new is not None:
            self._groups.setdefault(new, {})[key] = now


class LabelIndex(Generic[T]):
    """Cached objects by namespace and labels. A selector is compared with each set of labels, not
    with each object: the pods of a workload have the same."""

    def __init__(self, includes: Callable[[T], bool]) -> None:
        """`includes` tells which objects are kept."""
        self._includes = includes
        self._namespaces: dict[str, dict[LabelSet, dict[Key, T]]] = {}

    def selected(self, namespace: str, matches: Callable[[Mapping[str, str]], bool]) -> list[T]:
        """Return the objects of a namespace whose labels match."""
        groups = self._namespaces.get(namespace, {})
        return [
            obj
            for labels, members in groups.items()
            if matches(dict(labels))
            for obj in members.values()
        ]

    def changed(self, key: Key, before: T | None, now: T | None) -> None:
        old = label_set(before) if before is not None and self._includes(before) else None
        new = label_set(now) if now is not None and self._includes(now) else None
        if old is not None and old != new:
            self._remove(key, old)
        if now is not None and new is not None:
            self._namespaces.setdefault(key.namespace, {}).setdefault(new, {})[key] = now

    def _remove(self, key: Key, labels: LabelSet) -> None:
        namespace = key.namespace
        groups = self._namespaces[namespace]
        members = groups[labels]
        del members[key]
        if not members:
            del groups[labels]
            if not groups:
                del self._namespaces[namespace]


class ObjectCache(Generic[T]):
    """A Receiver that keeps all objects of a kind, with indexes by owner and namespace."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes: list[Index[T]] = []
        self._labelled: LabelIndex[T] | None = None
        self._orphans: LabelIndex[T] | None = None
        self._followers: list[Change[T]] = []
        self._newest = 0
        """The version of the latest change that is known."""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []
        self._by: dict[Callable[[T], Hashable | None], ObjectIndex[T]] = {}
        self._owned = self.by(_manager)

    def by(self, group: Callable[[T], Hashable | None]) -> ObjectIndex[T]:
        """A way to find objects, kept up to date; those grouped under None are left out. All who
        ask with the same function share it."""
        index = self._by.get(group)
        if index is None:
            index = self._by[group] = ObjectIndex(group)
            self._maintain(index)
        return index

    def by_labels(self) -> LabelIndex[T]:
        """A way to find objects by a selector, kept up to date. All who ask for it share it."""
        if self._labelled is None:
            self._labelled = LabelIndex(lambda _: True)
            self._maintain(self._labelled)
        return self._labelled

    def orphans_by_labels(self) -> LabelIndex[T]:
        """The same for objects that no controller manages."""
        if self._orphans is None:
            self._orphans = LabelIndex(lambda obj: controller_of(obj) is None)
            self._maintain(self._orphans)
        return self._orphans

    def _maintain(self, index: Index[T]) -> None:
        for key, obj in self._objects.items():
            index.changed(key, None, obj)
        self._indexes.append(index)

    def follow(self, follower: Change[T]) -> None:
        """Call a follower with every change, in order, after the indexes have it."""
        self._followers.append(follower)

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(Key(namespace, name))

    def owned(self, uid: str) -> list[T]:
        """Return the objects whose controller has this uid."""
        return self._owned.get(uid)

    def count_owned(self, uid: str) -> int:
        """Return the number of objects whose controller has this uid."""
        return self._owned.count(uid)

    def within(self, namespace: str) -> list[T]:
        # Made when it is first needed: few clusters have controllers that ask for pods so.
        return self.by(_namespace).get(namespace)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    async def until(self, key: Key, true_of: Callable[[T | None], bool]) -> None:
        """Return when a condition holds for an object; it gets None if the object is not there.

        A write arrives here only a moment later. A controller that decides by these objects waits
        for its own writes first; otherwise it writes them twice.
        """
        await self._wait(lambda: true_of(self._objects.get(key)))

    async def written(self, obj: T) -> None:
        """Return when this write is known, even if the object is gone again by then."""
        version = int(obj.metadata.resourceVersion)
        await self._wait(lambda: self._newest >= version)

    async def left(self, obj: T) -> None:
        """Return when it is known that this object is gone or about to go."""
        uid = obj.metadata.uid

        def has_left(now: T | None) -> bool:
            return now is None or now.metadata.uid != uid or bool(now.metadata.deletionTimestamp)

        await self.until(key_of(obj), has_left)

    async def _wait(self, is_true: Callable[[], bool]) -> None:
        if is_true():
            return
        happened = asyncio.Event()
        waiting = is_true, happened
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(PATIENCE):
                await happened.wait()
        except TimeoutError:
            log.warning("own write not observed by the cache seconds=%d", PATIENCE)
        finally:
            self._waiting.remove(waiting)

    # As a Receiver.

    def replace(self, objects: Iterable[T]) -> Iterator[None]:
        """Replace the cached objects by a list, one per step, then notify followers of each
        change."""
        found = {key_of(obj): obj for obj in objects}
        gone = [key for key in self._objects if key not in found]
        changes: list[tuple[T | None, T | None]] = []
        for key in (*gone, *found):
            changes.append((self._objects.get(key), found.get(key)))
            self._take(key, *changes[-1])
            yield
        for before, now in changes:
            self._tell(before, now)
            yield
        self._newest = max(map(_version, found.values()), default=self._newest)
        # A list does not show changes before it: every waiter checks its own condition.
        for _, happened in self._waiting:
            happened.set()

    def put(self, obj: T) -> None:
        key = key_of(obj)
        before = self._objects.get(key)
        self._take(key, before, obj)
        self._newest = _version(obj)
        self._tell(before, obj)
        self._wake()

    def remove(self, obj: T) -> None:
        key = key_of(obj)
        before = self._objects.get(key)
        self._newest = _version(obj)
        if before is not None:
            self._take(key, before, None)
            self._tell(before, None)
        self._wake()

    def _take(self, key: Key, before: T | None, now: T | None) -> None:
        if now is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = now
        for index in self._indexes:
            index.changed(key, before, now)

    def _wake(self) -> None:
        for is_true, happened in self._waiting:
            if is_true():
                happened.set()

    def _tell(self, before: T | None, now: T | None) -> None:
        for follower in self._followers:
            try:
                follower(before, now)
            except Exception:
                # An object that makes one controller fail must not stop all of them.
                about = key_of(now or before)  # type: ignore[arg-type]
                log.exception("change skipped object=%s/%s", *about)


class SharedInformers:
    """Creates one informer per kind. Request all kinds before `run`."""

    def __init__(self, client: Client, clock: Clock, views: ObjectViews | None = None) -> None:
        """`views` share decoded objects with other informers of the process."""
        self._client = client
        self._clock = clock
        self._views = views or ObjectViews()
        self._known: dict[tuple[str, str], ObjectCache[Any]] = {}
        self._informers: list[Informer[Any]] = []

    def of(self, resource: Resource[T]) -> ObjectCache[T]:
        """All objects of a kind."""
        name = resource.group, resource.plural
        if name not in self._known:
            known: ObjectCache[T] = ObjectCache()
            self._known[name] = known
            view = self._views.of(resource)
            self._informers.append(Informer(self._client, view, known, self._clock))
        return self._known[name]

    def viewed(self, resource: Resource[Any], decode: Callable[[bytes], T]) -> ObjectCache[T]:
        """All objects of a kind that is served from a table, reduced to a Struct's fields."""
        name = resource.group, resource.plural
        if name not in self._known:
            known: ObjectCache[T] = ObjectCache()
            self._known[name] = known
            view = View(resource, decode)
            self._informers.append(Informer(self._client, view, known, self._clock))
        return self._known[name]

    async def synced(self) -> None:
        """Return once everything that is there is known."""
        for informer in self._informers:
            await informer.synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
