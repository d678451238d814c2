"""Images go when the disk runs full, and it is said if that was not enough."""

from __future__ import annotations

import asyncio

import pytest

from kedge.node.images.garbage import GarbagePlan, GarbageThresholds
from kedge.node.images.garbage_collector import PERIOD_SECONDS, ImageGarbageCollector
from kedge.testing.clock import FakeClock


class Shelf:
    """Images that are collected as is said."""

    def __init__(self) -> None:
        self.looks = 0
        self.next: GarbagePlan | OSError = GarbagePlan((), 0, 0)

    async def collect(self, thresholds: GarbageThresholds) -> GarbagePlan:
        assert (thresholds.high_percent, thresholds.low_percent) == (85, 80)
        self.looks += 1
        if isinstance(self.next, OSError):
            raise self.next
        return self.next


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def said() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def collection(shelf: Shelf, said: list[tuple[str, str]]) -> ImageGarbageCollector:
    return ImageGarbageCollector(shelf, lambda *what: said.append(what), FakeClock())


async def test_the_disk_is_looked_at_again_and_again(shelf: Shelf) -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(ImageGarbageCollector(shelf, lambda *_: None, clock).run())
        await clock.advance(3 * PERIOD_SECONDS)
        assert shelf.looks == 3
        work.cancel()


async def test_room_that_could_not_be_made_is_an_event(
    collection: ImageGarbageCollector, shelf: Shelf, said: list[tuple[str, str]]
) -> None:
    shelf.next = GarbagePlan(("sha256:1",), 100, 100)
    await collection.collect()
    assert said == []
    shelf.next = GarbagePlan((), 20, 100)
    await collection.collect()
    [(reason, message)] = said
    assert reason == "FreeDiskSpaceFailed"
    assert "Attempted to free 100 bytes, but only found 20 bytes eligible to free." in message


async def test_a_disk_that_fails_is_an_event(
    collection: ImageGarbageCollector, shelf: Shelf, said: list[tuple[str, str]]
) -> None:
    shelf.next = OSError(5, "Input/output error")
    await collection.collect()
    assert said == [("ImageGCFailed", "[Errno 5] Input/output error")]
