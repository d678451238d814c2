"""Old objects are searched for garbage when it is worth it, in a calm moment."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from kedge.machinery.garbage import (
    LOOK_SECONDS,
    OLD,
    PATIENCE_SECONDS,
    OldGarbage,
    keep_searching,
    search_young_only,
)
from kedge.testing.clock import FakeClock


class CountedHeap:
    """A heap that is known by its numbers alone."""

    def __init__(self) -> None:
        self.searches = 0
        self.objects = 100
        self.found: list[int] = []

    def collect(self) -> None:
        self.found.append(self.objects)
        self.searches = 0

    def garbage(self) -> OldGarbage:
        return OldGarbage(lambda: self.searches, lambda: self.objects, self.collect)


def test_a_search_is_due_after_enough_new_objects() -> None:
    heap = CountedHeap()
    garbage = heap.garbage()
    heap.searches = OLD - 1
    assert not garbage.is_due()
    heap.searches = OLD
    assert garbage.is_due()


def test_a_heap_that_has_not_grown_is_not_searched_again() -> None:
    heap = CountedHeap()
    garbage = heap.garbage()
    garbage.search()
    heap.searches, heap.objects = OLD, 120
    assert not garbage.is_due()
    heap.objects = 130
    assert not garbage.is_due(), "the next look is after as many objects again"
    heap.searches = 2 * OLD
    assert garbage.is_due()


async def test_a_search_waits_until_no_large_document_is_in_memory() -> None:
    heap, clock, calm = CountedHeap(), FakeClock(), False
    heap.searches = OLD
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, lambda: calm, heap.garbage()))
        await clock.advance(LOOK_SECONDS + PATIENCE_SECONDS / 2)
        assert heap.found == []
        calm = True
        await clock.advance(1)
        assert heap.found == [100]
        task.cancel()


async def test_a_search_does_not_wait_forever() -> None:
    heap, clock = CountedHeap(), FakeClock()
    heap.searches = OLD
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, lambda: False, heap.garbage()))
        await clock.advance(LOOK_SECONDS + PATIENCE_SECONDS + 1)
        assert heap.found == [100]
        task.cancel()


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_the_interpreter_leaves_old_objects_alone() -> None:
    search_young_only()
    young, middle, old = gc.get_threshold()
    assert young * middle <= 50_000
    assert old > 1_000_000
