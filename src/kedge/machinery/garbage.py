"""When a long-lived process searches for garbage in cycles.

Few objects here form cycles, so a search costs more than it finds, and it keeps the interpreter's
lock. While a thread holds a large document, a search of all objects stops the event loop for a
tenth of a second and more.
"""

import gc
import math
import sys
from typing import Final, NoReturn

from kedge.machinery.clock import Clock

YOUNG: Final = 5_000
"""Search the youngest objects when there are so many."""
MIDDLE: Final = 2
"""Search the objects that survived after so many such searches more: at most 15,000 objects, which
takes 3 to 12 ms. Each object is visited twice before it is old, however many there are at a time,
so small portions cost no more than large ones."""
STEP: Final = 75
"""Look how many old objects there are after so many searches of the middle ones: a million new
objects. A search each second would be short, too, but one request in thirty would wait for it."""
PORTION: Final = 15_000
"""Search old objects when there are so many. Those that are left are set aside; so a search visits
new objects, not the whole heap."""
NEVER: Final = 1 << 30
GROWTH: Final = 3.0
"""How many times as large as after the last search of all the heap must be until all objects are
searched again: one that was set aside may have become garbage since. A heap that only grows is so
searched in total in proportion to its size."""

SETTLED_SECONDS: Final = 60.0
"""Until this time, old objects are set aside without a search. Most of them are modules that the
first requests have imported; a search would visit them all at once, and find nothing. Garbage among
them is found by the search of all."""
LOOK_SECONDS: Final = 5.0
CALM_SECONDS: Final = 0.25
"""How often to look for a calm moment."""
RARELY_SECONDS: Final = 2.0
"""How often if there are very many old objects: to count them takes long."""
CALM: Final = 2 * PORTION
"""A search of so many old objects, with the younger ones, keeps no client waiting for long: it
takes 20 to 50 ms. While a thread holds a large document, there are many more."""
PATIENCE_SECONDS: Final = 30.0
"""How long a search waits for a calm moment, and again as long for a moment with about as few
objects as were seen meanwhile: clients who always have large requests under way must not put it off
forever."""


def search_young_only() -> None:
    """Let the interpreter search young objects in small portions; `keep_searching` searches all."""
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


class Heap:
    """The objects of this process which the interpreter's collector knows."""

    def searches(self) -> int:
        """Count the searches of middle objects since the last one of old objects. None counts in a
        process that has left old objects to the interpreter."""
        return gc.get_count()[2] if gc.get_threshold()[2] == NEVER else 0

    def old(self) -> int:
        """Count the old objects that are not set aside."""
        return len(gc.get_objects(2))

    def size(self) -> int:
        """Count the allocated blocks of memory, which takes less than a millisecond. To count the
        objects that are set aside takes a tenth of a second while other programs use the caches."""
        return sys.getallocatedblocks()

    def collect(self) -> None:
        """Search all objects that are not set aside."""
        gc.collect()

    def freeze(self) -> None:
        """Set all objects aside."""
        gc.freeze()

    def unfreeze(self) -> None:
        """Let the next search visit the objects that were set aside."""
        gc.unfreeze()


class OldGarbage:
    """Decides when and which old objects are searched."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._next = STEP
        self._left = 0
        """The size of the heap after the last search of all objects, or before the first search."""

    def is_due(self) -> bool:
        """Whether enough new objects have become old for a search to be worth its time."""
        searches = self._heap.searches()
        if searches < self._next:
            return False
        self._next = searches + STEP
        return self._heap.old() >= PORTION

    def settle(self) -> None:
        """Set the old objects of a process that has just begun aside, if they are many."""
        if self._heap.searches() and self._heap.old() >= PORTION:
            self._heap.freeze()

    def search(self) -> None:
        """Search the old objects; also those set aside, if the heap has grown much."""
        self._left = self._left or self._heap.size()
        everything = self._heap.size() > self._left * GROWTH
        if everything:
            self._heap.unfreeze()
        self._heap.collect()
        self._heap.freeze()
        if everything:
            self._left = self._heap.size()
        self._next = STEP


def most_objects(seconds: float, fewest: int) -> float:
    """Return how many old objects may be searched after so long a wait, which has seen so few."""
    if seconds < PATIENCE_SECONDS:
        return CALM
    return max(CALM, fewest * 1.25) if seconds < 2 * PATIENCE_SECONDS else math.inf


def pause_before_look(objects: int) -> float:
    """Return the seconds until old objects are counted again, after so many were.

    To count a million of them takes a tenth of a second: a server whose heap has grown by so many
    would spend much of its time with it.
    """
    return min(max(objects / CALM, 1.0) * CALM_SECONDS, RARELY_SECONDS)


async def keep_searching(clock: Clock, heap: Heap | None = None) -> NoReturn:
    """Search old objects when it is due and no large document is in memory, for ever."""
    heap = heap or Heap()
    garbage = OldGarbage(heap)
    settled = clock.monotonic() + SETTLED_SECONDS
    while True:
        await clock.sleep(LOOK_SECONDS)
        if clock.monotonic() < settled:
            garbage.settle()
        elif garbage.is_due():
            begun, objects = clock.monotonic(), heap.old()
            fewest = objects
            while objects > most_objects(clock.monotonic() - begun, fewest):
                await clock.sleep(pause_before_look(objects))
                objects = heap.old()
                fewest = min(fewest, objects)
            garbage.search()
