"""When a long-lived process searches for garbage in cycles.

Few objects here form cycles, so a search costs more than it finds, and it keeps the interpreter's
lock. While a thread holds a large document, a search of all objects stops the event loop for a
tenth of a second and more.
"""

import gc
from collections.abc import Callable
from typing import Final, NoReturn

from kedge.machinery.clock import Clock

YOUNG: Final = 10_000
"""Search the youngest objects when there are so many."""
MIDDLE: Final = 4
"""Search the objects that survived so many such searches: 40,000, which takes 10 to 30 ms."""
OLD: Final = 50
"""Search all objects after so many searches of the middle ones: two million new objects."""
NEVER: Final = 1 << 30
GROWTH: Final = 1.25
"""How many times as many old objects there must be as the last full search has left. So a heap that
only grows is searched in total in proportion to its size. The interpreter has the same rule."""

LOOK_SECONDS: Final = 5.0
CALM_SECONDS: Final = 0.05
"""How often to look for a calm moment."""
PATIENCE_SECONDS: Final = 30.0
"""How long a search waits for a calm moment: clients who always have large requests under way must
not put it off forever."""


def search_young_only() -> None:
    """Let the interpreter search young objects in small portions; `keep_searching` searches all."""
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


class OldGarbage:
    """Decides when old objects are searched."""

    def __init__(
        self,
        searches: Callable[[], int] = lambda: gc.get_count()[2],
        objects: Callable[[], int] = lambda: len(gc.get_objects(2)),
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        """`searches` counts those of middle objects since the last full one."""
        self._searches = searches
        self._objects = objects
        self._collect = collect
        self._next = OLD
        self._left = 0

    def is_due(self) -> bool:
        """Whether enough objects were made, and survived, for a search to be worth its time."""
        searches = self._searches()
        if searches < self._next:
            return False
        self._next = searches + OLD
        return self._objects() > self._left * GROWTH

    def search(self) -> None:
        """Search all objects."""
        self._collect()
        self._left, self._next = self._objects(), OLD


async def keep_searching(
    clock: Clock, is_calm: Callable[[], bool], garbage: OldGarbage | None = None
) -> NoReturn:
    """Search old objects when it is due and no large document is in memory, for ever."""
    garbage = garbage or OldGarbage()
    while True:
        await clock.sleep(LOOK_SECONDS)
        if garbage.is_due():
            latest = clock.monotonic() + PATIENCE_SECONDS
            while not is_calm() and clock.monotonic() < latest:
                await clock.sleep(CALM_SECONDS)
            garbage.search()
