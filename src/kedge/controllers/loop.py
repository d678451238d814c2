"""ControllerLoop: takes keys from a work queue and reconciles them, with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from kedge.client.workqueue import WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

SMALL_OWNER: Final = 100
"""An owner of at most so many objects is reconciled at once, whichever of them changes."""
PAUSE_PER_OBJECT: Final = 0.0005
LONGEST_PAUSE: Final = 0.5
"""Seconds. It is shorter than the sleeps for which a clock that stands still is waited for."""


def pause_for(objects: int) -> float:
    """Return the seconds between two reconciliations of an owner of so many objects.

    Thousands of pods that start together are so many changes. One status for many of them is
    enough, and what is created or deleted meanwhile is done in larger batches.
    """
    return 0.0 if objects <= SMALL_OWNER else min(objects * PAUSE_PER_OBJECT, LONGEST_PAUSE)


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Do several things at once, for ever; if one fails, all end."""
    async with asyncio.TaskGroup() as tasks:
        for each in work:
            tasks.create_task(each)


class Unfinished(Exception):
    """Work that waits for others: it is tried again."""


class ControllerLoop(Generic[K]):
    """The reconcile loop of one controller."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[None]],
        clock: Clock,
        *,
        workers: int = 1,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self._queue: WorkQueue[K] = WorkQueue(clock)
        self._ended: dict[K, float] = {}
        """When each key was last reconciled, oldest first; only those of a moment ago."""
        self._busy: dict[K, int] = {}
        """Keys that are reconciled now. The number is that of `add_after_pause`, if it was called
        meanwhile: the pause begins with the end of the reconciliation."""
        self._told: dict[K, str] = {}
        """The sort of the last error that was logged for a key which still fails.

        It is empty if there was only one, of a sort that often passes by itself.
        """

    def add(self, key: K) -> None:
        """See to this key soon."""
        self._queue.add(key)

    def add_later(self, key: K, seconds: float) -> None:
        """See to this key when that much time has passed."""
        self._queue.add_later(key, seconds)

    def add_after_pause(self, key: K, objects: int) -> None:
        """See to this key soon, but not too often if its owner has so many objects."""
        if key in self._busy and objects > SMALL_OWNER:
            self._busy[key] = max(self._busy[key], objects)
            return
        now = self._clock.monotonic()
        wait = pause_for(objects) + self._ended.get(key, -LONGEST_PAUSE) - now
        if wait > 0:
            self._queue.add_later(key, wait)
        else:
            self._queue.add(key)

    async def run(self) -> None:
        await together(*(self._work() for _ in range(self._workers)))

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._busy[key] = 0
            try:
                # A reconciliation without changes never blocks, and thousands may be due.
                await self._clock.give_way()
                await self._reconcile(key)
            except Exception as error:
                self._tell(key, error)
                self._queue.retry(key)
                # A reconciliation that raises the error of one of its tasks has it in a variable.
                # Its frame and the error would keep each other, and large objects with them.
                error.__traceback__ = None
            else:
                self._queue.forget(key)
                self._told.pop(key, None)
            finally:
                self._note_end(key)
                if objects := self._busy.pop(key):
                    self.add_after_pause(key, objects)
                self._queue.done(key)

    def _note_end(self, key: K) -> None:
        now = self._clock.monotonic()
        self._ended.pop(key, None)
        self._ended[key] = now
        while (oldest := next(iter(self._ended))) != key:
            if now - self._ended[oldest] < LONGEST_PAUSE:
                break
            del self._ended[oldest]

    def _tell(self, key: K, error: Exception) -> None:
        """Log an error when it is new; conflicts are a part of life."""
        if isinstance(error, StatusError) and error.reason == "Conflict":
            return
        if may_pass(error) and key not in self._told:
            self._told[key] = ""
            return
        text = f"{type(error).__name__}: {error}"
        # A refusal names what was refused, and that may have another name each time.
        sort = f"{error.code} {error.reason}" if isinstance(error, StatusError) else text
        if self._told.get(key) == sort:
            return
        self._told[key] = sort
        # An error of the server is no defect of kedge; anything else is logged with its traceback.
        expected = isinstance(error, StatusError | OSError | Unfinished)
        message = "reconcile failed controller=%s key=%s error=%r; trying again"
        log.warning(message, self.name, key, text, exc_info=None if expected else error)


def may_pass(error: Exception) -> bool:
    """Whether the next attempt probably succeeds.

    An object that is not found was deleted after the controller last heard of it. The next attempt
    usually knows of the deletion.
    """
    return isinstance(error, Unfinished) or (
        isinstance(error, StatusError) and error.reason == "NotFound"
    )
