"""Records what clients of a store did and saw, and checks that it could have happened.

Every write has a revision, which is a total order. So a history is linearizable if the order of
revisions fits real time: an operation that began after another had ended comes after it, and reads
show the state of some revision in between.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
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


class StoreOperation(NamedTuple):
    """One call of a client, and its outcome."""

    begin: float
    end: float
    kind: Literal["get", "put", "delete"]
    key: str
    outcome: Literal["ok", "conflict", "unknown", "unavailable"]
    expect: int = 0
    """The revision that a write was to replace."""
    value: bytes = b""
    """The value that was written; each is written once."""
    revision: int = 0
    """The revision of the write, or that of the entry that was read; 0 if there was none."""


class HistoryClient:
    """Reads, writes and deletes a few keys at random."""

    def __init__(self, store: Store, clock: Clock, name: str, chance: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._chance = chance
        self._known: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.operations: list[StoreOperation] = []

    async def run(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end:
            await self._act(self._chance.choice(KEYS))

    async def _act(self, key: str) -> None:
        draw = self._chance.random()
        if draw < 0.4:
            await self._record("get", key)
        elif draw < 0.5 and self._known[key]:
            await self._record("delete", key)
        else:
            await self._record("put", key)

    async def _record(self, kind: Literal["get", "put", "delete"], key: str) -> None:
        begin, expect = self._clock.monotonic(), self._known[key] if kind != "get" else 0
        value = f"{self._name}-{len(self.operations)}".encode() if kind == "put" else b""
        outcome: Literal["ok", "conflict", "unknown", "unavailable"] = "ok"
        revision = 0
        try:
            if kind == "get":
                found = await self._store.get(key)
                revision = self._known[key] = found.revision if found else 0
            elif kind == "put":
                revision = (await self._store.put(key, value, expect=expect)).revision
                self._known[key] = revision
            else:
                revision = (await self._store.delete(key, expect=expect)).revision
                self._known[key] = 0
        except RevisionConflict as conflict:
            outcome = "conflict"
            self._known[key] = conflict.current.revision if conflict.current else 0
        except WriteOutcomeUnknown:
            outcome = "unknown"
        except StoreUnavailable:
            outcome = "unavailable"
        end = self._clock.monotonic()
        self.operations.append(
            StoreOperation(begin, end, kind, key, outcome, expect, value, revision)
        )


def violations(operations: Sequence[StoreOperation], events: Sequence[StoreEvent]) -> Iterator[str]:
    """Yield what is wrong with a history: `events` are all writes of the keys, in order."""
    revisions = [event.entry.revision for event in events]
    if sorted(set(revisions)) != revisions:
        yield "revisions are not distinct and in order"
    yield from _write_violations(operations, events)
    yield from _order_violations(operations, events)


def _write_violations(
    operations: Sequence[StoreOperation], events: Sequence[StoreEvent]
) -> Iterator[str]:
    """Acknowledged writes happened once, others did not, and each replaced what it expected."""
    by_revision = {event.entry.revision: event for event in events}
    happened: dict[bytes, int] = {}
    for event in events:
        if event.kind == "put":
            happened[event.entry.value] = happened.get(event.entry.value, 0) + 1
    writers = {each.value: each for each in operations if each.kind == "put"}
    for value, times in happened.items():
        writer = writers.get(value)
        if writer is None:
            yield f"{value!r} was written by no client"
        elif times > 1:
            yield f"{value!r} was written {times} times"
        elif writer.outcome in ("conflict", "unavailable"):
            yield f"{value!r} was written, although its writer was refused: {writer.outcome}"
    for each in operations:
        if each.kind == "get" or each.outcome != "ok":
            continue
        found = by_revision.get(each.revision)
        if found is None or (found.kind, found.entry.key) != (each.kind, each.key):
            yield f"the acknowledged {each.kind} of {each.key} at {each.revision} is lost"
            continue
        if each.kind == "put" and found.entry.value != each.value:
            yield f"revision {each.revision} has {found.entry.value!r} instead of {each.value!r}"
        replaced = found.previous.revision if found.previous else 0
        if replaced != each.expect:
            yield f"revision {each.revision} replaced {replaced} instead of {each.expect}"


def _order_violations(
    operations: Sequence[StoreOperation], events: Sequence[StoreEvent]
) -> Iterator[str]:
    done = sorted((each.end, each.revision) for each in operations if each.outcome == "ok")
    ends = [end for end, _ in done]
    highest = [0]
    for _, revision in done:
        highest.append(max(highest[-1], revision))
    begun = {each.value: each.begin for each in operations if each.kind == "put"}
    of_key = {key: [event for event in events if event.entry.key == key] for key in KEYS}
    for each in operations:
        if each.outcome != "ok":
            continue
        # All that had ended before this operation began.
        floor = highest[bisect_left(ends, each.begin)]
        if each.kind != "get":
            if each.revision <= floor:
                yield f"revision {each.revision} was given out after {floor} had been"
        elif not _could_be_read(each, floor, of_key[each.key], begun):
            yield f"{each.key} at {each.revision} was read after {floor} had been seen"


def _could_be_read(
    read: StoreOperation, floor: int, events: Sequence[StoreEvent], begun: dict[bytes, float]
) -> bool:
    revisions = [event.entry.revision for event in events]
    if not read.revision:
        before = bisect_right(revisions, floor)
        was_absent = before == 0 or events[before - 1].kind == "delete"
        return was_absent or any(event.kind == "delete" for event in events[before:])
    at = bisect_left(revisions, read.revision)
    if at == len(revisions) or revisions[at] != read.revision or events[at].kind != "put":
        return False
    following = revisions[at + 1] if at + 1 < len(revisions) else None
    is_old = following is not None and following <= floor
    return not is_old and begun.get(events[at].entry.value, 0.0) <= read.end


def watch_violations(seen: Sequence[StoreEvent], events: Sequence[StoreEvent]) -> Iterator[str]:
    """Yield what a watch missed, repeated or reordered."""
    for number, (one, other) in enumerate(zip(seen, events, strict=False)):
        if one != other:
            yield f"event {number} is {one.entry.revision} instead of {other.entry.revision}"
            return
    if len(seen) != len(events):
        yield f"{len(seen)} events were seen instead of {len(events)}"
