"""Expiry: one timer per store, which calls for a sweep when the next key is due."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from kedge.machinery.clock import Clock
from kedge.storage.store import StoreError

if TYPE_CHECKING:
    from kedge.machinery.task_group import OwnedTask

RETRY = 10_000
"""Milliseconds until a failed sweep is tried again."""

log = logging.getLogger(__name__)


def milliseconds(moment: datetime) -> int:
    """The moment as stores keep it: milliseconds since 1970, so that it survives a restart."""
    return int(moment.timestamp() * 1000)


class Expiry:
    """Holds only the next deadline; the store finds the keys that are due."""

    def __init__(self, clock: Clock, sweep: Callable[[int], Awaitable[int | None]]) -> None:
        """`sweep` deletes what is due at that moment and returns the next deadline, if any."""
        self._clock = clock
        self._sweep = sweep
        self._next: int | None = None
        self._timer: OwnedTask | None = None
        self._sleeping = False
        self._closed = False

    def deadline(self, ttl: int) -> int:
        """When a key written now with this time to live is due; 0 if it never is."""
        return milliseconds(self._clock.now()) + ttl * 1000 if ttl else 0

    def expect(self, deadline: int) -> None:
        """See to it that a sweep happens no later than the deadline."""
        if self._closed or (self._next is not None and self._next <= deadline):
            return
        self._next = deadline
        if self._timer is not None and self._sleeping:
            self._timer.cancel()
            self._timer, self._sleeping = None, False
        if self._timer is None:
            from kedge.machinery.task_group import OwnedTask

            self._timer = OwnedTask(self._run())

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            await self._timer.close()

    async def _run(self) -> None:
        while self._next is not None:
            wait = self._next - milliseconds(self._clock.now())
            if wait > 0:
                await self._sleep(wait / 1000)
            else:
                await self._sweep_now()
        self._timer = None

    async def _sleep(self, seconds: float) -> None:
        self._sleeping = True
        await self._clock.sleep(seconds)
        self._sleeping = False

    async def _sweep_now(self) -> None:
        self._next = None
        now = milliseconds(self._clock.now())
        try:
            following = await self._sweep(now)
        except StoreError as error:
            log.error("expiry failed error=%s", error)
            following = now + RETRY
        if following is not None and (self._next is None or following < self._next):
            self._next = following
