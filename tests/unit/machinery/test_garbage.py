"""Old objects are searched for garbage when it is worth it, in a calm moment."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from kedge.machinery.garbage import (
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    PORTION,
    RARELY_SECONDS,
    SETTLED_SECONDS,
    STEP,
    Heap,
    OldGarbage,
    keep_searching,
    search_young_only,
)
from kedge.testing.clock import FakeClock


class CountedHeap(Heap):
    """A heap that is known by its numbers alone."""

    def __init__(self) -> None:
        self.made = 0
        self.live = PORTION
        self.aside = 100_000
        self.garbage = 0
        """How many of the live objects are."""
        self.documents = 0
        """Objects of documents in memory."""
        self.found: list[int] = []

    def searches(self) -> int:
        return self.made

    def old(self) -> int:
        return self.live + self.documents

    def size(self) -> int:
        return self.live + self.aside

    def collect(self) -> None:
        self.found.append(self.live)
        self.live -= self.garbage
        self.made = self.garbage = 0

    def freeze(self) -> None:
        self.aside += self.live + self.documents
        self.live = self.documents = 0

    def unfreeze(self) -> None:
        self.live += self.aside
        self.aside = 0


def test_a_search_is_due_when_many_objects_are_old() -> None:
    heap = CountedHeap()
    garbage = OldGarbage(heap)
    heap.made = STEP - 1
    assert not garbage.is_due()
    heap.made, heap.live = STEP, PORTION - 1
    assert not garbage.is_due()
    heap.live = PORTION
    assert not garbage.is_due(), "the next look is after as many objects again"
    heap.made = 2 * STEP
    assert garbage.is_due()


def test_what_a_search_has_left_is_not_searched_again() -> None:
    heap = CountedHeap()
    garbage = OldGarbage(heap)
    garbage.search()
    assert heap.live == 0
    heap.live = PORTION
    garbage.search()
    assert heap.found == [PORTION, PORTION]


def test_all_objects_are_searched_when_the_heap_is_three_times_as_large() -> None:
    heap = CountedHeap()
    garbage = OldGarbage(heap)
    garbage.search()
    most = 3 * (100_000 + PORTION)
    heap.live, heap.aside = PORTION, most - PORTION
    garbage.search()
    assert heap.found == [PORTION, PORTION]
    heap.live, heap.aside, heap.garbage = PORTION, most, 250_000
    garbage.search()
    assert heap.found[2:] == [most + PORTION]
    left = most + PORTION - 250_000
    assert (heap.live, heap.aside) == (0, left)
    heap.live, heap.aside = PORTION, 3 * left - PORTION
    garbage.search()
    assert heap.found[3:] == [PORTION]


def test_a_process_that_leaves_it_to_the_interpreter_is_let_be() -> None:
    assert Heap().searches() == 0


async def test_a_search_waits_until_no_large_document_is_in_memory() -> None:
    heap, clock = CountedHeap(), FakeClock()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, heap))
        await clock.advance(SETTLED_SECONDS)
        heap.made, heap.documents = STEP, 300_000
        await clock.advance(LOOK_SECONDS + PATIENCE_SECONDS / 2)
        assert heap.found == []
        heap.documents = 0
        await clock.advance(1)
        assert heap.found == [PORTION]
        task.cancel()


async def test_a_search_that_has_waited_long_takes_a_moment_with_few_objects() -> None:
    heap, clock = CountedHeap(), FakeClock()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, heap))
        await clock.advance(SETTLED_SECONDS)
        heap.made, heap.documents = STEP, 100_000
        await clock.advance(LOOK_SECONDS + PATIENCE_SECONDS / 2)
        heap.documents = 300_000
        await clock.advance(PATIENCE_SECONDS)
        assert heap.found == []
        heap.documents = 110_000
        await clock.advance(1)
        assert heap.found == [PORTION]
        task.cancel()


async def test_a_search_does_not_wait_forever() -> None:
    heap, clock = CountedHeap(), FakeClock()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, heap))
        await clock.advance(SETTLED_SECONDS)
        heap.made, heap.documents, heap.aside = STEP, 100_000, 1_000_000
        await clock.advance(LOOK_SECONDS + 1)
        heap.documents = 300_000
        await clock.advance(2 * PATIENCE_SECONDS + RARELY_SECONDS)
        assert heap.found == [PORTION]
        task.cancel()


async def test_what_the_first_requests_import_is_set_aside_without_a_search() -> None:
    heap, clock = CountedHeap(), FakeClock()
    heap.made, heap.live = 1, 4 * PORTION
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_searching(clock, heap))
        await clock.advance(LOOK_SECONDS)
        assert heap.live == 0
        heap.live = PORTION - 1
        await clock.advance(LOOK_SECONDS)
        assert heap.live == PORTION - 1, "these are few"
        assert heap.found == []
        await clock.advance(SETTLED_SECONDS)
        heap.made, heap.live = STEP, PORTION
        await clock.advance(LOOK_SECONDS)
        assert heap.found == [PORTION]
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
    assert young * (1 + middle) <= 15_000
    assert old > 1_000_000
