"""Rows of PostgreSQL as entries and events of the store."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kedge.storage.store import (
    GuardLost,
    RevisionConflict,
    StoreEntry,
    StoreEvent,
    prefix_end,
)
from kedge.storage.write_turns import Write

AFTER_ALL: Final = b"\xff"
"""Greater than every key, because keys are UTF-8."""
_GUARD_LOST: Final = -1


class PastEvents(NamedTuple):
    """Events, and the bounds of history at the moment of reading them."""

    head: int
    compacted: int
    events: list[StoreEvent]


def key_range(prefix: str, after: str = "") -> tuple[bytes, bytes]:
    """Return the first possible key under a prefix and behind `after`, and the end of the range."""
    first = prefix.encode()
    if after:
        first = max(first, after.encode() + b"\0")
    return first, prefix_end(prefix).encode() or AFTER_ALL


def store_entry(row: Sequence[Any]) -> StoreEntry:
    """Return an entry from key, value, revision and creation."""
    key, value, revision, created = row
    return StoreEntry(key.decode(), value, revision, created)


def history(rows: Sequence[Sequence[Any]]) -> PastEvents:
    """Return the events of a query of history; its first row has the bounds, if no event."""
    head, compacted = rows[0][0], rows[0][1]
    return PastEvents(head, compacted, [_event(row) for row in rows if row[2] is not None])


def _event(row: Sequence[Any]) -> StoreEvent:
    key, revision, created, value, previous, old_created, old_value = row[2:9]
    name = key.decode()
    before = StoreEntry(name, old_value, previous, old_created) if previous else None
    if value is None:
        return StoreEvent("delete", StoreEntry(name, old_value, revision, created), before)
    return StoreEvent("put", StoreEntry(name, value, revision, created), before)


def outcome(write: Write, row: Sequence[Any]) -> StoreEvent | RevisionConflict | GuardLost:
    """Return what became of a write: its event, or the conflict that it met."""
    written, born, before, before_born, before_value = row
    previous = StoreEntry(write.key, before_value, before, before_born) if before else None
    if written == _GUARD_LOST:
        assert write.guard is not None
        return GuardLost(write.guard)
    if not written:
        return RevisionConflict(write.key, previous)
    if write.value is None:
        assert previous is not None
        return StoreEvent("delete", StoreEntry(write.key, before_value, written, born), previous)
    return StoreEvent("put", StoreEntry(write.key, write.value, written, born), previous)
