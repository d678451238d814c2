import asyncio

from kedge.storage.postgresql.rows import AFTER_ALL, history, key_range, outcome
from kedge.storage.store import RevisionConflict, StoreEntry, StoreEvent
from kedge.storage.write_turns import Write


def write(value: bytes | None, expect: int) -> Write:
    loop = asyncio.new_event_loop()
    try:
        return Write("/a", value, expect, 0, loop.create_future())
    finally:
        loop.close()


def test_ranges_hold_a_prefix_and_begin_behind_a_key() -> None:
    assert key_range("/a") == (b"/a", b"/b")
    assert key_range("/a", "/a/x") == (b"/a/x\0", b"/b")
    assert key_range("/b", "/a") == (b"/b", b"/c")
    assert key_range("") == (b"", AFTER_ALL)
    assert key_range("/é") == ("/é".encode(), "/ê".encode())


def test_history_has_bounds_also_without_events() -> None:
    assert history([(7, 3, *[None] * 8)]) == (7, 3, [])


def test_events_tell_creations_updates_and_deletions() -> None:
    created = StoreEntry("/a", b"1", 2, 2)
    updated = StoreEntry("/a", b"2", 3, 2)
    deleted = StoreEntry("/a", b"2", 4, 2)
    rows = [
        (4, 0, b"/a", 2, 2, b"1", 0, None, None, 0),
        (4, 0, b"/a", 3, 2, b"2", 2, 2, b"1", 0),
        (4, 0, b"/a", 4, 2, None, 3, 2, b"2", 0),
    ]
    assert history(rows).events == [
        StoreEvent("put", created, None),
        StoreEvent("put", updated, created),
        StoreEvent("delete", deleted, updated),
    ]


def test_outcomes_are_events_or_conflicts() -> None:
    before = StoreEntry("/a", b"1", 2, 2)
    assert outcome(write(b"x", 0), (5, 5, 0, 0, None)) == StoreEvent(
        "put", StoreEntry("/a", b"x", 5, 5), None
    )
    assert outcome(write(b"x", 2), (5, 2, 2, 2, b"1")) == StoreEvent(
        "put", StoreEntry("/a", b"x", 5, 2), before
    )
    assert outcome(write(None, 2), (5, 2, 2, 2, b"1")) == StoreEvent(
        "delete", StoreEntry("/a", b"1", 5, 2), before
    )
    conflict = outcome(write(b"x", 1), (0, 0, 2, 2, b"1"))
    assert isinstance(conflict, RevisionConflict)
    assert conflict.current == before
    absent = outcome(write(None, 1), (0, 0, 0, 0, None))
    assert isinstance(absent, RevisionConflict)
    assert absent.current is None
