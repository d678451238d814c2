"""Rows of the store's table: entries, pages and history, read in one snapshot each."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kedge.storage.sqlite import statements as sql
from kedge.storage.store import (
    FIRST_REVISION,
    RevisionCompacted,
    StoreEntry,
    StoreEvent,
    StorePage,
    prefix_end,
)

CHUNK = 256
CHUNK_BYTES = 8 << 20
"""History is read in pieces of at most so many events, and of about so many bytes."""

Row = tuple[int, str, int, int, bool, bytes, int]


def row(event: StoreEvent, deadline: int) -> Row:
    entry, previous = event.entry, event.previous
    deleted = event.kind == "delete"
    value = b"" if deleted else entry.value
    replaced = previous.revision if previous else 0
    return entry.revision, entry.key, entry.created, replaced, deleted, value, deadline


def head(connection: sqlite3.Connection) -> int:
    return max(int(connection.execute(sql.HEAD).fetchone()[0]), FIRST_REVISION)


def compacted(connection: sqlite3.Connection) -> int:
    return int(connection.execute(sql.COMPACTED).fetchone()[0])


def one(connection: sqlite3.Connection, key: str) -> StoreEntry | None:
    found = connection.execute(sql.LOOKUPS[1], (key,)).fetchone()
    return StoreEntry(*found) if found else None


def page_of(
    connection: sqlite3.Connection, prefix: str, at: int, after: str, limit: int
) -> StorePage:
    with snapshot(connection):
        revision = at or head(connection)
        check_kept(connection, revision)
        wanted = bounds(prefix, after) | {"at": revision, "limit": limit or -1}
        entries = [StoreEntry(*values) for values in connection.execute(sql.LIST, wanted)]
        remaining = 0
        if limit and len(entries) == limit:
            wanted |= bounds(prefix, entries[-1].key)
            (remaining,) = connection.execute(sql.COUNT, wanted).fetchone()
    return StorePage(entries, revision, remaining > 0, remaining)


def replay(connection: sqlite3.Connection, prefix: str, since: int, until: int) -> list[StoreEvent]:
    with snapshot(connection):
        check_kept(connection, since)
        wanted = bounds(prefix) | {"since": since, "until": until, "limit": CHUNK}
        events, size = [], 0
        for values in connection.execute(sql.REPLAY, wanted):
            events.append(event := past(values))
            size += len(event.entry.value) + len(event.previous.value if event.previous else b"")
            if size >= CHUNK_BYTES:
                break
        return events


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all reads inside see the same moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def check_kept(connection: sqlite3.Connection, revision: int) -> None:
    if revision < (oldest := compacted(connection)):
        raise RevisionCompacted(revision, oldest)


def bounds(prefix: str, after: str = "") -> dict[str, Any]:
    # No key holds NUL, so this is the first possible one after `after`. To SQLite every blob is
    # greater than any text, hence an end for the range that has none.
    first = max(prefix, f"{after}\0") if after else prefix
    return {"first": first, "end": prefix_end(prefix) or b""}


def past(values: Sequence[Any]) -> StoreEvent:
    """The event of one row of history."""
    key, revision, created, deleted, value, previous, previous_created, replaced = values
    before = StoreEntry(key, replaced, previous, previous_created) if previous else None
    if deleted:
        return StoreEvent("delete", StoreEntry(key, replaced, revision, created), before)
    return StoreEvent("put", StoreEntry(key, value, revision, created), before)
