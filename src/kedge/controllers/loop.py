"""ControllerLoop: takes keys from a work queue and reconciles them, with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from kedge.client.workqueue import WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


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

    async def run(self) -> None:
        await together(*(self._work() for _ in range(self._workers)))

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
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
                self._queue.done(key)

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
