"""Records what clients of a store did and saw, and checks that it could have happened.

Every write has a revision, which is a total order. So a history is linearizable if the order of
revisions fits real time: an operation that began after another had ended comes after it, and reads
and lists show the state of some revision in between. A deletion names the revision that it deletes,
and each revision is replaced or deleted once: so a deletion is found in the history even if its
answer does not tell the revision of the deletion itself.
"""

import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from kedge.machinery.clock import Clock
from kedge.storage.store import (
    RevisionConflict,
    Store,
    StoreEvent,
    StoreUnavailable,
    WriteOutcomeUnknown,
)

KEYS: Final = ("/history/a", "/history/b", "/history/c")
PREFIX: Final = "/history/"

Kind = Literal["get", "list", "put", "delete"]
State = Mapping[str, tuple[int, bytes]]
"""Revision and value of each key."""


class StoreOperation(NamedTuple):
    """One call of a client, and its outcome."""

    begin: float
    end: float
    kind: Kind
    key: str
    """The prefix of a list."""
    outcome: Literal["ok", "conflict", "unknown", "unavailable"]
    expect: int = 0
    """The revision that a write was to replace or to delete."""
    value: bytes = b""
    """The value that was written or read; each is written once."""
    revision: int = 0
    """The revision of the write or the list, or that of the entry that was read, 0 if there was
    none. A deletion whose answer does not tell has 0, too."""
    found: State = MappingProxyType({})
    """The content of a list."""


class HistoryClient:
    """Reads, lists, writes and deletes a few keys at random."""

    def __init__(self, store: Store, clock: Clock, name: str, chance: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._chance = chance
        self._known: dict[str, int] = defaultdict(int)
        self.operations: list[StoreOperation] = []
        self.successes = 0

    async def run(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end:
            await self._act(self._chance.choice(KEYS))

    async def finish(self) -> StoreOperation:
        """Write a key of its own, the last write of all; returns the first success."""
        while True:
            await self.record("put", f"{PREFIX}last")
            if self.operations[-1].outcome == "ok":
                return self.operations[-1]
            await self.record("get", f"{PREFIX}last")
            await self._clock.sleep(0.05)

    async def _act(self, key: str) -> None:
        draw = self._chance.random()
        if draw < 0.3:
            await self.record("get", key)
        elif draw < 0.4:
            await self.record("list", PREFIX)
        elif draw < 0.5 and self._known[key]:
            await self.record("delete", key)
        else:
            await self.record("put", key)

    async def record(self, kind: Kind, key: str) -> None:
        """Do that, and note what came of it."""
        expect = self._known[key] if kind in ("put", "delete") else 0
        value = f"{self._name}-{len(self.operations)}".encode() if kind == "put" else b""
        wanted = StoreOperation(self._clock.monotonic(), inf, kind, key, "ok", expect, value)
        try:
            done = await self._done(wanted)
            self.successes += 1
        except RevisionConflict as conflict:
            done = wanted._replace(outcome="conflict")
            self._known[key] = conflict.current.revision if conflict.current else 0
        except WriteOutcomeUnknown:
            done = wanted._replace(outcome="unknown")
        except StoreUnavailable:
            done = wanted._replace(outcome="unavailable")
        self.operations.append(done._replace(end=self._clock.monotonic()))

    async def _done(self, wanted: StoreOperation) -> StoreOperation:
        key, expect = wanted.key, wanted.expect
        match wanted.kind:
            case "get":
                found = await self._store.get(key)
                self._known[key] = found.revision if found else 0
                value = found.value if found else b""
                return wanted._replace(revision=self._known[key], value=value)
            case "list":
                page = await self._store.list(key)
                state = {each.key: (each.revision, each.value) for each in page.entries}
                return wanted._replace(revision=page.revision, found=state)
            case "put":
                revision = (await self._store.put(key, wanted.value, expect=expect)).revision
                self._known[key] = revision
            case "delete":
                revision = (await self._store.delete(key, expect=expect)).revision
                self._known[key] = 0
        return wanted._replace(revision=revision)


class RecordedHistory:
    """All writes of the keys, in order, and who made them."""

    def __init__(self, operations: Sequence[StoreOperation], events: Sequence[StoreEvent]) -> None:
        self.events = events
        self.revisions = [event.entry.revision for event in events]
        self.by_revision = {event.entry.revision: event for event in events}
        self.of_key: dict[str, list[StoreEvent]] = defaultdict(list)
        self._deletions: dict[tuple[str, int], StoreEvent] = {}
        self.revisions_of: dict[str, list[int]] = defaultdict(list)
        for event in events:
            self.of_key[event.entry.key].append(event)
            self.revisions_of[event.entry.key].append(event.entry.revision)
            if event.kind == "delete" and event.previous is not None:
                self._deletions[event.entry.key, event.previous.revision] = event
        self.operations = [self._resolved(each) for each in operations]
        self.puts = {each.value: each for each in self.operations if each.kind == "put"}
        self.deletes: dict[tuple[str, int], list[StoreOperation]] = defaultdict(list)
        for each in self.operations:
            if each.kind == "delete":
                self.deletes[each.key, each.expect].append(each)
        done = sorted((each.end, each.revision) for each in self.operations if each.outcome == "ok")
        self._ends = [end for end, _ in done]
        self._highest = [0]
        for _, revision in done:
            self._highest.append(max(self._highest[-1], revision))

    def deletion_of(self, operation: StoreOperation) -> StoreEvent | None:
        """Return the event of a deletion."""
        return self._deletions.get((operation.key, operation.expect))

    def floor(self, moment: float) -> int:
        """Return the highest revision that operations have seen which had ended by then."""
        return self._highest[bisect_left(self._ends, moment)]

    def begun(self, event: StoreEvent) -> float:
        """Return when the client began that wrote this; infinite if none did."""
        return min((each.begin for each in self.writers(event)), default=inf)

    def writers(self, event: StoreEvent) -> Iterable[StoreOperation]:
        """Return the operations that may have written this."""
        if event.kind == "put":
            writer = self.puts.get(event.entry.value)
            return () if writer is None or writer.key != event.entry.key else (writer,)
        replaced = event.previous.revision if event.previous else 0
        return self.deletes.get((event.entry.key, replaced), ())

    def state(self, revision: int) -> dict[str, StoreEvent]:
        """Return the newest write of each key at that revision."""
        found = {}
        for key, revisions in self.revisions_of.items():
            if place := bisect_right(revisions, revision):
                found[key] = self.of_key[key][place - 1]
        return found

    def _resolved(self, operation: StoreOperation) -> StoreOperation:
        if operation.kind != "delete" or operation.outcome != "ok" or operation.revision:
            return operation
        event = self.deletion_of(operation)
        return operation._replace(revision=event.entry.revision) if event else operation


def violations(
    operations: Sequence[StoreOperation],
    events: Sequence[StoreEvent],
    *,
    shares_deletions: bool = False,
) -> Iterator[str]:
    """Yield what is wrong with a history: `events` are all writes of the keys, in order. A store
    that shares deletions may tell two clients that they deleted the same revision: etcd does not
    say whose deletion it was if an answer is lost (decision 58)."""
    history = RecordedHistory(operations, events)
    if sorted(set(history.revisions)) != history.revisions:
        yield "revisions are not distinct and in order"
    yield from _event_violations(history)
    yield from _write_violations(history)
    if not shares_deletions:
        yield from _shared_deletions(history)
    yield from _order_violations(history)


def _event_violations(history: RecordedHistory) -> Iterator[str]:
    """Each write is that of a client who was not refused, happened once, and replaced what the
    client expected, after all that had been seen before the client began."""
    happened = Counter(event.entry.value for event in history.events if event.kind == "put")
    for value, times in happened.items():
        if times > 1:
            yield f"{value!r} was written {times} times"
    for event in history.events:
        what = _words(event)
        writers = list(history.writers(event))
        if not writers:
            yield f"{what} by no client"
            continue
        granted = [each for each in writers if each.outcome in ("ok", "unknown")]
        if not granted:
            yield f"{what}, although its writer was refused: {writers[0].outcome}"
            continue
        replaced = event.previous.revision if event.previous else 0
        for writer in granted:
            if writer.expect != replaced:
                yield f"{what} and replaced {replaced} instead of {writer.expect}"
        floor = history.floor(min(each.begin for each in granted))
        if event.entry.revision <= floor:
            yield f"{what}: revision {event.entry.revision} was given out after {floor} had been"


def _words(event: StoreEvent) -> str:
    if event.kind == "put":
        return f"{event.entry.value!r} was written"
    replaced = event.previous.revision if event.previous else 0
    return f"{event.entry.key} at {replaced} was deleted"


def _write_violations(history: RecordedHistory) -> Iterator[str]:
    """Acknowledged writes happened."""
    for each in history.operations:
        if each.kind not in ("put", "delete") or each.outcome != "ok":
            continue
        found = history.by_revision.get(each.revision)
        if found is None or (found.kind, found.entry.key) != (each.kind, each.key):
            yield f"the acknowledged {each.kind} of {each.key} at {each.expect} is lost"
            continue
        floor = history.floor(each.begin)
        if each.revision <= floor:
            yield (
                f"the {each.kind} of {each.key} at {each.expect}: revision {each.revision} was"
                f" given out after {floor} had been"
            )
        if each.kind == "put" and found.entry.value != each.value:
            yield f"revision {each.revision} has {found.entry.value!r} instead of {each.value!r}"


def _shared_deletions(history: RecordedHistory) -> Iterator[str]:
    """Each deletion is that of one client."""
    for (key, expect), deletions in history.deletes.items():
        acknowledged = sum(each.outcome == "ok" for each in deletions)
        if acknowledged > 1:
            yield f"{acknowledged} clients were told that they had deleted {key} at {expect}"


def _order_violations(history: RecordedHistory) -> Iterator[str]:
    """Reads and lists show a state between their begin and their end."""
    for each in history.operations:
        if each.outcome != "ok":
            continue
        floor = history.floor(each.begin)
        if each.kind == "get" and not _could_be_read(each, floor, history):
            what = f"{each.key} at {each.revision}, {each.value!r},"
            yield f"{what} was read after {floor} had been seen"
        elif each.kind == "list":
            yield from _list_violations(each, floor, history)


def _could_be_read(read: StoreOperation, floor: int, history: RecordedHistory) -> bool:
    events, revisions = history.of_key[read.key], history.revisions_of[read.key]
    if not read.revision:
        before = bisect_right(revisions, floor)
        was_absent = before == 0 or events[before - 1].kind == "delete"
        later = (events[place] for place in range(before, len(events)))
        return was_absent or any(
            event.kind == "delete" and history.begun(event) <= read.end for event in later
        )
    at = bisect_left(revisions, read.revision)
    if at == len(revisions) or revisions[at] != read.revision or events[at].kind != "put":
        return False
    following = revisions[at + 1] if at + 1 < len(revisions) else None
    is_old = following is not None and following <= floor
    is_whole = events[at].entry.value == read.value
    return is_whole and not is_old and history.begun(events[at]) <= read.end


def _list_violations(each: StoreOperation, floor: int, history: RecordedHistory) -> Iterator[str]:
    if each.revision < floor:
        yield f"a list of revision {each.revision} was given out after {floor} had been seen"
    newest = history.state(each.revision)
    expected = {
        key: (event.entry.revision, event.entry.value)
        for key, event in newest.items()
        if event.kind == "put"
    }
    if dict(each.found) != expected:
        yield f"a list of revision {each.revision} has {each.found} instead of {expected}"
    if any(history.begun(event) > each.end for event in newest.values()):
        yield f"a list of revision {each.revision} has writes that had not begun"


def watch_violations(seen: Sequence[StoreEvent], events: Sequence[StoreEvent]) -> Iterator[str]:
    """Yield what a watch missed, repeated or reordered."""
    for number, (one, other) in enumerate(zip(seen, events, strict=False)):
        if one != other:
            yield f"event {number} is {one.entry.revision} instead of {other.entry.revision}"
            return
    if len(seen) != len(events):
        yield f"{len(seen)} events were seen instead of {len(events)}"
