"""History is read in pieces."""

from contextlib import aclosing, closing
from pathlib import Path

import pytest

from kedge.storage.sqlite import database, rows
from kedge.storage.sqlite.store import SqliteStore
from kedge.testing.clock import FakeClock


async def test_history_is_read_in_pieces_of_so_many_bytes(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path, clock)
    entry = await store.put("/a", b"xxxx", expect=0)
    for _ in range(5):
        entry = await store.put("/a", b"xxxx", expect=entry.revision)
    monkeypatch.setattr(rows, "CHUNK_BYTES", 12)
    with closing(database.connect(path)) as connection:
        pieces = rows.replay(connection, "", 1, entry.revision)
        monkeypatch.setattr(rows, "CHUNK_BYTES", 13)
        longer = rows.replay(connection, "", 1, entry.revision)
    assert [event.entry.revision for event in pieces] == [2, 3]
    assert [event.entry.revision for event in longer] == [2, 3, 4]
    monkeypatch.setattr(rows, "CHUNK_BYTES", 12)
    monkeypatch.setattr(rows, "CHUNK", 1)
    events = []
    async with aclosing(store.watch("", since=1)) as watch:
        async for event in watch:
            events.append(event.entry.revision)
            if len(events) == 6:
                break
    assert events == [2, 3, 4, 5, 6, 7]
    await store.close()
