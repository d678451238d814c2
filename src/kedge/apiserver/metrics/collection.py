"""Collection: the newest document of each object, in the order of their changes and by indexes."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple

from kedge.api.metrics_v1alpha1.frame import Frame, Measured, MeasuredPod
from kedge.apiserver.metrics import encoding
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelSelector

REMEMBERED: Final = 300.0
"""Seconds for which it is known what has gone."""


class Entry:
    """One object: what was last reported of it."""

    __slots__ = (
        "_body",
        "_usage",
        "added",
        "containers",
        "end_tick",
        "frame",
        "key",
        "labelled",
        "labels",
        "listed",
        "name",
        "namespace",
        "node",
        "old_labels",
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
        self.old_labels = labels
        """Those before the latest change of labels."""
        self.version = self.added = self.labelled = 0
        """When it was last reported, when it began to be listed, when its labels changed."""
        self.listed = False
        self.frame: Frame
        """The rows; of the pods in it each entry keeps its own part."""
        self.end_tick = self.since = self.row = 0
        self.containers: Sequence[Measured] | None = None
        """None for a node."""
        self._body: bytes | None = None
        self._usage: bytes | None = None

    def report_node(self, frame: Frame) -> None:
        self.frame = frame
        self.end_tick, self.since = frame.end_tick, frame.since

    def report_pod(self, frame: Frame, measured: MeasuredPod) -> None:
        self.frame = frame
        _, _, _, self.since, self.end_tick, self.row, self.containers = measured

    def stamp(self, version: int) -> None:
        self.version = version
        self._body = self._usage = None

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.old_labels, self.labels = self.labels, labels

    def body(self) -> bytes:
        """The object in metrics/v1alpha1."""
        if self._body is None:
            if self.containers is None:
                self._body = encoding.node(self._metadata(), self.frame)
            else:
                self._body = encoding.pod(
                    self._metadata(),
                    self.frame,
                    self.end_tick,
                    self.containers,
                    (self.row, self.since),
                )
        return self._body

    def usage(self, window: str) -> bytes:
        """The object as an element of a list of metrics.k8s.io."""
        if self._usage is None:
            if self.containers is None:
                self._usage = encoding.node_usage(self._metadata(), self.frame, window)
            else:
                self._usage = encoding.pod_usage(
                    self._metadata(), self.frame, self.end_tick, self.containers, window
                )
        return self._usage

    def _metadata(self) -> str:
        return encoding.metadata(
            self.name, self.namespace, self.uid, self.version, self.since, self.labels
        )


class Wanted(NamedTuple):
    """Which objects somebody asks for."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

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


class Collection:
    """The objects of one kind."""

    def __init__(self, versions: Versions, clock: Clock) -> None:
        self.versions = versions
        self._clock = clock
        self.entries: dict[str, Entry] = {}
        """All that is known, whether listed or not."""
        self.forgotten = versions.first
        """What had gone by then is not known any more."""
        self.lists: dict[tuple[str, str], list[bytes]] = {}
        """Bodies of whole lists since the latest change, by form and namespace."""
        self.listeners: dict[Callable[[], None], Wanted] = {}
        """Who is told that something has changed, and what they are interested in."""
        self._recent: dict[str, Entry] = {}
        """What is listed, in the order of versions."""
        self._keys: list[str] = []
        self._gone: deque[tuple[float, Entry]] = deque()
        self._by_label: dict[tuple[str, str], set[str]] = {}
        self._by_node: dict[str, set[str]] = {}

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

    def hide(self, entry: Entry) -> None:
        """List it no longer; it can still be asked for by its name."""
        if not entry.listed:
            return
        entry.listed = False
        key = entry.key
        del self._recent[key]
        del self._keys[bisect_left(self._keys, key)]
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
        for pair in entry.labels.items():
            _discard(self._by_label, pair, entry.key)
        entry.relabel(labels)
        self._index_labels(entry)
        self.put(entry)
        entry.labelled = entry.version

    def settle(self) -> None:
        """Let everybody see what has changed."""
        self.lists.clear()
        for listener in tuple(self.listeners):
            listener()

    def forget(self) -> None:
        """Forget what has gone long ago."""
        limit = self._clock.monotonic() - REMEMBERED
        while self._gone and self._gone[0][0] < limit:
            self.forgotten = self._gone.popleft()[1].version

    def _list(self, entry: Entry) -> None:
        entry.listed = True
        entry.added = entry.labelled = entry.version
        self.entries[entry.key] = entry
        insort(self._keys, entry.key)
        self._by_node.setdefault(entry.node, set()).add(entry.key)
        self._index_labels(entry)

    def _index_labels(self, entry: Entry) -> None:
        for pair in entry.labels.items():
            self._by_label.setdefault(pair, set()).add(entry.key)

    # Reading.

    def get(self, namespace: str, name: str) -> Entry | None:
        return self.entries.get(f"{namespace}/{name}" if namespace else name)

    def all(self) -> Iterable[Entry]:
        """Everything listed, in the order of names."""
        return (self._recent[key] for key in self._keys)

    def select(self, wanted: Wanted) -> list[Entry]:
        """What is wanted, in the order of names."""
        recent = self._recent
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
        sets = [] if wanted.node is None else [self._by_node.get(wanted.node, set())]
        for key, operator, values in wanted.labels.requirements:
            if operator in ("=", "=="):
                sets.append(self._by_label.get((key, values[0]), set()))
            elif operator == "in":
                pairs = [self._by_label.get((key, value), set()) for value in values]
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
            if wanted.matches(entry, entry.labels)
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
    before = now if entry.labelled <= version else wanted.matches(entry, entry.old_labels)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _discard(index: dict[str, set[str]] | dict[tuple[str, str], set[str]], at, key) -> None:  # type: ignore[no-untyped-def]
    keys = index[at]
    keys.discard(key)
    if not keys:
        del index[at]
