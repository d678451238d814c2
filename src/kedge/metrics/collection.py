"""Collection: the newest usage of each object of one kind, by version and by index."""

import asyncio
from bisect import bisect_left, insort
from collections import abc, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from kedge.machinery.clock import Clock
from kedge.metrics.frame import Frame
from kedge.metrics.heap import trim
from kedge.metrics.selection import UsageSelection
from kedge.metrics.usage_object import UsageObject

At = TypeVar("At", str, tuple[str, str])
"""The key of an index."""

NOTIFIED_AT_ONCE: Final = 8
"""Listeners that are called before the event loop serves other tasks."""
AT_ONCE: Final = 128
"""Objects whose JSON is made before the event loop serves other tasks."""
KEPT_READY: Final = 21.0
"""Seconds for which the JSON of all objects is kept up to date after a list of all of them. Clients
that list every twenty seconds do not wait for it; for rarer ones it would cost too much."""
REMEMBERED: Final = 300.0
"""Seconds for which deletions are kept for watches that resume."""


class UsageChange(NamedTuple):
    """An event of a watch: ADDED, MODIFIED or DELETED."""

    version: int
    type: str
    entry: UsageObject


class Versions:
    """Resource versions: numbers that also rise from one run of the server to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.first = self.last = self._now()

    def catch_up(self) -> None:
        """Keep up with the clock, in microseconds, so that versions of different runs compare."""
        self.last = max(self.last, self._now())

    def next(self) -> int:
        self.last += 1
        return self.last

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


Writer = Callable[[Sequence[UsageObject]], tuple[list[bytes], list[bytes]]]
"""Makes the JSON of objects in one form, metadata and the rest; each object keeps both."""


class Collection:
    """The objects of one kind. After changes, call `settle`."""

    def __init__(self, versions: Versions, clock: Clock, *, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self.versions = versions
        self._clock = clock
        self.entries: dict[str, UsageObject] = {}
        """All objects by key, whether listed or not."""
        self.forgotten = versions.first
        """Deletions up to this version have been dropped."""
        self.lists: dict[tuple[str, str], bytes | list[bytes]] = {}
        """Bodies of whole lists since the last change, by form and namespace."""
        self.listeners: dict[Callable[[], None], UsageSelection] = {}
        """Callbacks of watches, and what each of them selects."""
        self.news: dict[object, Sequence[tuple[int, bytes]]] = {}
        """Events written since the last change, for watches that need the same ones."""
        self._ready: dict[str, tuple[float, Writer]] = {}
        """Forms in which JSON is made as soon as objects are reported, and until when."""
        self._written = False
        """Whether JSON was made in advance and may still be kept."""
        self._pending: dict[Callable[[], None], None] = {}
        """Listeners that have not been called since the last change."""
        self._recent: dict[str, UsageObject] = {}
        """Listed objects, in the order of their versions."""
        self._in_order: list[UsageObject] | None = None
        """Listed objects, in the order of names; None if it must be made again."""
        self._keys: list[str] = []
        self._gone: deque[tuple[float, UsageObject]] = deque()
        # Dicts without values: a third of the memory of sets.
        self._by_label: dict[tuple[str, str], dict[str, None]] = {}
        self._by_node: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def put(self, entry: UsageObject) -> None:
        """List an object with a new version."""
        entry.stamp(self.versions.next())
        key = entry.key
        if entry.listed:
            del self._recent[key]
        else:
            self._list(entry)
        self._recent[key] = entry

    def put_all(self, entries: Sequence[UsageObject], frame: Frame) -> None:
        """List the objects of a node with its next frame. One loop without calls, since there are
        thousands of objects each second."""
        recent, end_tick, version = self._recent, frame.end_tick, self.versions.last
        for entry in entries:
            version += 1
            entry.version = version
            entry.frame = frame
            entry.end_tick = end_tick
            entry.kept_metadata = entry.kept_rest = entry.kept_usage = None
            key = entry.key
            if entry.listed:
                del recent[key]
            else:
                self._list(entry)
            recent[key] = entry
        self.versions.last = version
        if self._ready:
            self._write(entries)

    def keep_ready(self, form: str, write: Writer) -> None:
        """Make the JSON of all objects in advance for a while, so that the next list is fast."""
        self._ready[form] = (self._clock.monotonic() + KEPT_READY, write)
        self._written = True

    def read_once(self, entries: Iterable[UsageObject]) -> None:
        """Drop the JSON of objects that one reader has: it would wait a minute for another."""
        if not self._ready:
            for entry in entries:
                entry.drop_json()

    def _write(self, entries: Sequence[UsageObject]) -> None:
        self._expire()
        for _, write in self._ready.values():
            write(entries)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for form in [form for form, (until, _) in self._ready.items() if now > until]:
            del self._ready[form]

    def hide(self, entry: UsageObject) -> None:
        """Remove an object from lists; a get by name still finds it."""
        if not entry.listed:
            return
        entry.listed = False
        key = entry.key
        del self._recent[key]
        del self._keys[bisect_left(self._keys, key)]
        self._in_order = None
        _discard(self._by_node, entry.node, key)
        for pair in entry.labels.items():
            _discard(self._by_label, pair, key)
        left = copy(entry)
        left.stamp(self.versions.next())
        self._gone.append((self._clock.monotonic(), left))

    def drop(self, entry: UsageObject) -> None:
        """Remove an object."""
        self.hide(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]

    def relabel(self, entry: UsageObject, labels: Mapping[str, str]) -> None:
        """Set the labels of an object."""
        if not entry.listed:
            entry.relabel(labels)
            return
        before = entry.labels
        for pair in before.items():
            _discard(self._by_label, pair, entry.key)
        entry.relabel(labels)
        self._index_labels(entry)
        self.put(entry)
        # No watch resumes from before `forgotten`.
        known = tuple(each for each in entry.former if each[0] > self.forgotten)
        entry.former = (*known, (entry.version, before))

    def settle(self) -> None:
        """Notify listeners of changes, a few at once, so that requests are served in between."""
        self.lists.clear()
        self.news.clear()
        if not self.listeners:
            return
        waiting = bool(self._pending)
        self._pending.update(dict.fromkeys(self.listeners))
        if not waiting:
            self._notify_some()

    def _notify_some(self) -> None:
        for listener in tuple(islice(self._pending, NOTIFIED_AT_ONCE)):
            del self._pending[listener]
            listener()
        if self._pending:
            asyncio.get_running_loop().call_soon(self._notify_some)

    def forget(self) -> None:
        """Drop old deletions, and JSON that was not read for a while."""
        self._expire()
        if self._written and not self._ready:
            self._drop_json()
        limit = self._clock.monotonic() - REMEMBERED
        while self._gone and self._gone[0][0] < limit:
            self.forgotten = self._gone.popleft()[1].version

    def _drop_json(self) -> None:
        """Drop the JSON of all objects: many megabytes, in thousands of pieces."""
        self._written = False
        for entry in self._recent.values():
            entry.drop_json()
        trim()

    def _list(self, entry: UsageObject) -> None:
        entry.listed = True
        entry.added, entry.former = entry.version, ()
        self.entries[entry.key] = entry
        insort(self._keys, entry.key)
        self._in_order = None
        self._by_node.setdefault(entry.node, {})[entry.key] = None
        self._index_labels(entry)

    def _index_labels(self, entry: UsageObject) -> None:
        for pair in entry.labels.items():
            self._by_label.setdefault(pair, {})[entry.key] = None

    def get(self, namespace: str, name: str) -> UsageObject | None:
        return self.entries.get(f"{namespace}/{name}" if namespace else name)

    def all(self) -> Sequence[UsageObject]:
        """All listed objects, in the order of names."""
        if self._in_order is None:
            self._in_order = [self._recent[key] for key in self._keys]
        return self._in_order

    def select(self, selection: UsageSelection) -> Sequence[UsageObject]:
        """The selected objects, in the order of names."""
        recent = self._recent
        if selection.everything and not selection.namespace:
            return self.all()
        candidates = self._candidates(selection)
        if candidates is None:
            keys = self._range(selection.namespace)
            if selection.everything:
                return [recent[key] for key in keys]
            return [each for key in keys if selection.matches(each := recent[key], each.labels)]
        found = [each for key in candidates if selection.matches(each := recent[key], each.labels)]
        return sorted(found, key=lambda entry: entry.key)

    def _candidates(self, selection: UsageSelection) -> Iterable[str] | None:
        """The keys that the best index leaves; None if no index applies."""
        name = selection.fields.exact("metadata.name")
        if name and selection.namespace:
            key = f"{selection.namespace}/{name}"
            return [key] if key in self._recent else []
        sets: list[abc.Collection[str]] = []
        if selection.node is not None:
            sets.append(self._by_node.get(selection.node, ()))
        for key, operator, values in selection.labels.requirements:
            if operator in ("=", "=="):
                sets.append(self._by_label.get((key, values[0]), ()))
            elif operator == "in":
                pairs = [self._by_label.get((key, value), ()) for value in values]
                sets.append(set().union(*pairs))
        return min(sets, key=len) if sets else None

    def _range(self, namespace: str) -> list[str]:
        if not namespace:
            return self._keys
        # "0" is the character after "/".
        first = bisect_left(self._keys, f"{namespace}/")
        return self._keys[first : bisect_left(self._keys, f"{namespace}0")]

    def changes_after(self, version: int, selection: UsageSelection) -> list[UsageChange]:
        """Events of the selected objects after a version, only the last of each object."""
        found = [
            UsageChange(entry.version, type_, entry)
            for entry in _newer(reversed(self._recent.values()), version)
            if (type_ := _event_type(entry, version, selection)) is not None
        ]
        found += [
            UsageChange(entry.version, "DELETED", entry)
            for entry in _newer((left for _, left in reversed(self._gone)), version)
            if selection.matches(entry, entry.labels_at(version))
        ]
        found.sort()
        return found


def _newer(entries: Iterable[UsageObject], version: int) -> Iterator[UsageObject]:
    for entry in entries:
        if entry.version <= version:
            return
        yield entry


def _event_type(entry: UsageObject, version: int, selection: UsageSelection) -> str | None:
    """The type of event for a watch that is at a version; None if it needs no event."""
    now = selection.matches(entry, entry.labels)
    if entry.added > version:
        return "ADDED" if now else None
    before = selection.matches(entry, entry.labels_at(version)) if entry.former else now
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _discard(index: dict[At, dict[str, None]], at: At, key: str) -> None:
    keys = index[at]
    keys.pop(key, None)
    if not keys:
        del index[at]
