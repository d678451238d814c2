import asyncio
from collections import deque

import pytest

from kedge.storage.compaction import MARK, keep_history, take_outlived
from kedge.storage.memory import MemoryStore
from kedge.storage.store import DiskFull, RevisionCompacted, StoreEntry
from kedge.testing.clock import FakeClock


def test_the_newest_note_that_is_old_enough_counts_and_later_ones_stay() -> None:
    notes = deque([(0.0, 5), (30.0, 9), (60.0, 12)])
    assert take_outlived(notes, 45.0) == 9
    assert list(notes) == [(60.0, 12)]
    assert take_outlived(notes, 45.0) == 0


async def test_each_compaction_is_noted_so_that_the_revision_moves_on() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    for value in (b"one", b"two"):
        entry = await store.get("/registry/a")
        await store.put("/registry/a", value, expect=entry.revision if entry else 0)
    before = store.revision
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(keep_history(store, clock, age=300))
        await clock.advance(400)
        keeper.cancel()
    mark = await store.get(MARK)
    assert mark is not None
    assert mark.value == str(before).encode()
    assert store.revision == mark.revision > before
    with pytest.raises(RevisionCompacted):
        await store.list("/registry/", at=before - 1)


async def test_a_server_leaves_compaction_to_another_that_was_first() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.put("/registry/a", b"one", expect=0)
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(keep_history(store, clock, age=300))
        await clock.advance(200)
        await store.put(MARK, b"1000", expect=0)
        await clock.advance(200)
        keeper.cancel()
    mark = await store.get(MARK)
    assert mark is not None
    assert mark.value == b"1000"
    assert (await store.list("/registry/", at=1)).entries == []


class FullStore(MemoryStore):
    """A store without space for another write."""

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        raise DiskFull("no space")


async def test_a_full_store_is_compacted_without_a_mark() -> None:
    clock = FakeClock()
    store = FullStore(clock)
    await MemoryStore.put(store, "/registry/a", b"one", expect=0)
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(keep_history(store, clock, age=300))
        await clock.advance(400)
        keeper.cancel()
    with pytest.raises(RevisionCompacted):
        await store.list("/registry/", at=1)
