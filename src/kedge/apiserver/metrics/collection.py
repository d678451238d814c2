"""Collection: the newest document of each object, in the order of their changes and by indexes."""

import asyncio
from array import array
from bisect import bisect_left, insort
from collections import abc, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from kedge.api.metrics_v1alpha1.frame import Frame, Measured, MeasuredPod
from kedge.apiserver.metrics import encoding
from kedge.apiserver.metrics.memory import give_back
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelRequirements

At = TypeVar("At", str, tuple[str, str])
"""Where in an index."""

TOLD_AT_ONCE: Final = 8
"""Listeners that hear of a change before the event loop turns to others."""
KEPT_READY: Final = 21.0
"""Seconds for which all objects are kept written after somebody has asked for all of them. Who asks
every twenty seconds need not wait; for who does so more rarely it would cost too much."""
REMEMBERED: Final = 300.0
"""Seconds for which it is known what has gone."""


class Entry:
    """One object: what was last reported of it."""

    __slots__ = (
        "_marks",
        "added",
        "containers",
        "end_tick",
        "former",
        "frame",
        "kept_metadata",
        "kept_rest",
        "kept_usage",
        "key",
        "labels",
        "listed",
        "name",
        "namespace",
        "node",
        "row",
        "since",
        "uid",
        "version",
    )

    def __init__(
        self, node: str, namespace: str, name: str, uid: str, labels: Mapping[str, str]
    ) -> None:
        self.node = node
        self.namespace = namespace
        self.name = name
        self.key = f"{namespace}/{name}" if namespace else name
        self.uid = uid
        self.labels = labels
        self.former: tuple[tuple[int, Mapping[str, str]], ...] = ()
        """Labels that it had since it was listed, and when each of them changed."""
        self.version = self.added = 0
        """When it was last reported, and when it began to be listed."""
        self.listed = False
        self.frame: Frame
        """The rows; of the pods in it each entry keeps its own part."""
        self.end_tick = self.since = self.row = 0
        self.containers: Sequence[Measured] | None = None
        """None for a node."""
        # What was written once somebody has asked for it; both groups have the same metadata.
        self.kept_metadata: bytes | None = None
        self.kept_rest: bytes | None = None
        """What follows them in metrics/v1alpha1."""
        self.kept_usage: bytes | None = None
        """What follows them in metrics.k8s.io."""
        self._marks = encoding.marks(labels)
        """The end of its metadata; many have the same labels, and so share it."""

    def report_node(self, frame: Frame) -> None:
        self.frame = frame
        self.end_tick = frame.end_tick
        self.since = frame.since

    def report_pod(self, frame: Frame, measured: MeasuredPod) -> None:
        """The names are those that it has; each is kept once that way."""
        self.frame = frame
        self.namespace, self.name, self.uid, self.since, end_tick, self.row, self.containers = (
            measured
        )
        self.end_tick = end_tick or frame.end_tick

    def part(self) -> None:
        """Let go of the frame but for its own rows, since no other will come soon."""
        frame, inside = self.frame, self.containers or ()
        values = array("q")
        for row in (self.row, *(each.row for each in inside)):
            values.extend(frame.amounts(row))
        self.frame = frame._replace(systems=(), pods=(), values=values)
        self.row = 0
        self.containers = tuple(each._replace(row=1 + n) for n, each in enumerate(inside))

    def stamp(self, version: int) -> None:
        self.version = version
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing written."""
        self.kept_metadata = self.kept_rest = self.kept_usage = None

    def labels_at(self, version: int) -> Mapping[str, str]:
        """Those that it had for somebody who has seen everything up to a version."""
        return next((labels for until, labels in self.former if until > version), self.labels)

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self._marks = encoding.marks(labels)
        self.let_go()

    def body(self) -> bytes:
        """The object in metrics/v1alpha1."""
        kind = "Node" if self.containers is None else "Pod"
        return encoding.BEGINNINGS[kind] + self.metadata() + self.rest()

    def usage(self, window: str) -> bytes:
        """The object as an element of a list of metrics.k8s.io."""
        return encoding.USAGE_BEGINNING + self.metadata() + self.usage_rest(window)

    def metadata(self) -> bytes:
        """In both groups."""
        if self.kept_metadata is None:
            self.kept_metadata = encoding.metadata(
                self.name, self.namespace, self.uid, self.version, self.since, self._marks
            )
        return self.kept_metadata

    def rest(self) -> bytes:
        """What follows the metadata in metrics/v1alpha1."""
        if self.kept_rest is None:
            if self.containers is None:
                self.kept_rest = encoding.node(self.frame)
            else:
                total = (self.row, self.since)
                self.kept_rest = encoding.pod(self.frame, self.end_tick, self.containers, total)
        return self.kept_rest

    def usage_rest(self, window: str) -> bytes:
        """What follows the metadata in metrics.k8s.io."""
        if self.kept_usage is None:
            if self.containers is None:
                self.kept_usage = encoding.node_usage(self.frame, window)
            else:
                self.kept_usage = encoding.pod_usage(
                    self.frame, self.end_tick, self.containers, window
                )
        return self.kept_usage


class Wanted(NamedTuple):
    """Which objects somebody asks for."""

    namespace: str
    labels: LabelRequirements
    fields: FieldSelector
    patient: bool = False
    """Whether they are content with how often nodes report by themselves."""

    @property
    def everything(self) -> bool:
        """Whether the namespace alone decides."""
        return self.labels.empty and self.fields.empty

    @property
    def node(self) -> str | None:
        return self.fields.exact("spec.nodeName")

    def matches(self, entry: Entry, labels: Mapping[str, str]) -> bool:
        if self.namespace and entry.namespace != self.namespace:
            return False
        if not self.labels.empty and not self.labels.matches(labels):
            return False
        return self.fields.empty or self.fields.matches(lambda name: _field(entry, name))


def _field(entry: Entry, name: str) -> str:
    match name:
        case "metadata.name":
            return entry.name
        case "metadata.namespace":
            return entry.namespace
        case _:
            return entry.node


class Change(NamedTuple):
    """What happened to an object."""

    version: int
    type: str
    entry: Entry


class Versions:
    """Counts what happens, in numbers that rise also from one run of the server to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.first = self.last = self._now()

    def catch_up(self) -> None:
        """Let numbers not fall behind the time, so that another run's may be compared."""
        self.last = max(self.last, self._now())

    def next(self) -> int:
        self.last += 1
        return self.last

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


Writer = Callable[[Sequence[Entry]], tuple[list[bytes], list[bytes]]]
"""Writes the metadata of objects, and what follows them in one form; each keeps both."""


class Collection:
    """The objects of one kind."""

    def __init__(self, versions: Versions, clock: Clock) -> None:
        self.versions = versions
        self._clock = clock
        self.entries: dict[str, Entry] = {}
        """All that is known, whether listed or not."""
        self.forgotten = versions.first
        """What had gone by then is not known any more."""
        self.lists: dict[tuple[str, str], bytes | list[bytes]] = {}
        """Bodies of whole lists since the latest change, by form and namespace."""
        self.listeners: dict[Callable[[], None], Wanted] = {}
        """Who is told that something has changed, and what they are interested in."""
        self.news: dict[object, Sequence[tuple[int, bytes]]] = {}
        """What was told since the latest change to somebody who watches, for others who want to
        know the same."""
        self._ready: dict[str, tuple[float, Writer]] = {}
        """In which forms objects are written as soon as they are reported, and until when."""
        self._written = False
        """Whether all of them were written that way, and may still be."""
        self._unaware: dict[Callable[[], None], None] = {}
        """Listeners that are still to be told."""
        self._recent: dict[str, Entry] = {}
        """What is listed, in the order of versions."""
        self._in_order: list[Entry] | None = None
        """What is listed, in the order of names; None if it has to be sorted out anew."""
        self._keys: list[str] = []
        self._gone: deque[tuple[float, Entry]] = deque()
        # Without values these are sets that take a third of the room.
        self._by_label: dict[tuple[str, str], dict[str, None]] = {}
        self._by_node: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    # Changes. Whoever makes them calls `settle` afterwards.

    def put(self, entry: Entry) -> None:
        """List an object under a new version; what was reported of it has changed."""
        entry.stamp(self.versions.next())
        key = entry.key
        if entry.listed:
            del self._recent[key]
        else:
            self._list(entry)
        self._recent[key] = entry

    def put_all(self, entries: Sequence[Entry], frame: Frame) -> None:
        """The same for objects of which the next frame of their node says something; in one go,
        since there are thousands of them each second."""
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
        """Have everything written in a form for a while, so that who asks again need not wait."""
        self._ready[form] = (self._clock.monotonic() + KEPT_READY, write)
        self._written = True

    def _write(self, entries: Sequence[Entry]) -> None:
        self._expire()
        for _, write in self._ready.values():
            write(entries)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for form in [form for form, (until, _) in self._ready.items() if now > until]:
            del self._ready[form]

    def hide(self, entry: Entry) -> None:
        """List it no longer; it can still be asked for by its name."""
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

    def drop(self, entry: Entry) -> None:
        """Forget an object."""
        self.hide(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]

    def relabel(self, entry: Entry, labels: Mapping[str, str]) -> None:
        """Take over labels that have changed."""
        if not entry.listed:
            entry.relabel(labels)
            return
        before = entry.labels
        for pair in before.items():
            _discard(self._by_label, pair, entry.key)
        entry.relabel(labels)
        self._index_labels(entry)
        self.put(entry)
        # Nobody goes on from before what is forgotten.
        known = tuple(each for each in entry.former if each[0] > self.forgotten)
        entry.former = (*known, (entry.version, before))

    def settle(self) -> None:
        """Let everybody see what has changed: a few at once, so that others are served between."""
        self.lists.clear()
        self.news.clear()
        if not self.listeners:
            return
        waiting = bool(self._unaware)
        self._unaware.update(dict.fromkeys(self.listeners))
        if not waiting:
            self._tell_some()

    def _tell_some(self) -> None:
        for listener in tuple(islice(self._unaware, TOLD_AT_ONCE)):
            del self._unaware[listener]
            listener()
        if self._unaware:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def forget(self) -> None:
        """Forget what has gone long ago, and what nobody has asked for in a while."""
        self._expire()
        if self._written and not self._ready:
            self._let_go()
        limit = self._clock.monotonic() - REMEMBERED
        while self._gone and self._gone[0][0] < limit:
            self.forgotten = self._gone.popleft()[1].version

    def _let_go(self) -> None:
        """Keep nothing written any longer. It was many megabytes, in thousands of pieces."""
        self._written = False
        for entry in self._recent.values():
            entry.let_go()
        give_back()

    def _list(self, entry: Entry) -> None:
        entry.listed = True
        entry.added, entry.former = entry.version, ()
        self.entries[entry.key] = entry
        insort(self._keys, entry.key)
        self._in_order = None
        self._by_node.setdefault(entry.node, {})[entry.key] = None
        self._index_labels(entry)

    def _index_labels(self, entry: Entry) -> None:
        for pair in entry.labels.items():
            self._by_label.setdefault(pair, {})[entry.key] = None

    # Reading.

    def get(self, namespace: str, name: str) -> Entry | None:
        return self.entries.get(f"{namespace}/{name}" if namespace else name)

    def all(self) -> Sequence[Entry]:
        """Everything listed, in the order of names."""
        if self._in_order is None:
            self._in_order = [self._recent[key] for key in self._keys]
        return self._in_order

    def select(self, wanted: Wanted) -> Sequence[Entry]:
        """What is wanted, in the order of names."""
        recent = self._recent
        if wanted.everything and not wanted.namespace:
            return self.all()
        candidates = self._candidates(wanted)
        if candidates is None:
            keys = self._range(wanted.namespace)
            if wanted.everything:
                return [recent[key] for key in keys]
            return [each for key in keys if wanted.matches(each := recent[key], each.labels)]
        found = [each for key in candidates if wanted.matches(each := recent[key], each.labels)]
        return sorted(found, key=lambda entry: entry.key)

    def _candidates(self, wanted: Wanted) -> Iterable[str] | None:
        """The keys that an index narrows the search down to; None if there is no such index."""
        name = wanted.fields.exact("metadata.name")
        if name and wanted.namespace:
            key = f"{wanted.namespace}/{name}"
            return [key] if key in self._recent else []
        sets: list[abc.Collection[str]] = []
        if wanted.node is not None:
            sets.append(self._by_node.get(wanted.node, ()))
        for key, operator, values in wanted.labels.requirements:
            if operator in ("=", "=="):
                sets.append(self._by_label.get((key, values[0]), ()))
            elif operator == "in":
                pairs = [self._by_label.get((key, value), ()) for value in values]
                sets.append(set().union(*pairs))
        return min(sets, key=len) if sets else None

    def _range(self, namespace: str) -> list[str]:
        if not namespace:
            return self._keys
        # "0" follows "/".
        first = bisect_left(self._keys, f"{namespace}/")
        return self._keys[first : bisect_left(self._keys, f"{namespace}0")]

    def changes_after(self, version: int, wanted: Wanted) -> list[Change]:
        """What happened to the wanted objects after a version, of each object only the latest."""
        found = [
            Change(entry.version, type_, entry)
            for entry in _newer(reversed(self._recent.values()), version)
            if (type_ := _seen(entry, version, wanted)) is not None
        ]
        found += [
            Change(entry.version, "DELETED", entry)
            for entry in _newer((left for _, left in reversed(self._gone)), version)
            if wanted.matches(entry, entry.labels_at(version))
        ]
        found.sort()
        return found


def _newer(entries: Iterable[Entry], version: int) -> Iterator[Entry]:
    for entry in entries:
        if entry.version <= version:
            return
        yield entry


def _seen(entry: Entry, version: int, wanted: Wanted) -> str | None:
    """What became of an object for somebody who has seen everything up to a version."""
    now = wanted.matches(entry, entry.labels)
    if entry.added > version:
        return "ADDED" if now else None
    before = wanted.matches(entry, entry.labels_at(version)) if entry.former else now
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _discard(index: dict[At, dict[str, None]], at: At, key: str) -> None:
    keys = index[at]
    keys.pop(key, None)
    if not keys:
        del index[at]
