"""Waits: for something to happen, but not longer than it makes sense."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from kedge.machinery.clock import Clock

T = TypeVar("T")


class WorkInterrupted(Exception):
    """Something happened that made the work pointless."""


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The result of some work, or TimeoutError if it takes longer."""
    return await _first(work, clock.sleep(seconds), TimeoutError)


async def unless(event: asyncio.Event, work: Awaitable[T]) -> T:
    """The result of some work, or Interrupted if the event is set before."""
    return await _first(work, event.wait(), WorkInterrupted)


async def woken(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Return when an event is set, or after a while."""
    with contextlib.suppress(TimeoutError):
        await within(clock, seconds, event.wait())


async def _first(work: Awaitable[T], end: Awaitable[object], late: type[Exception]) -> T:
    task = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(end)
    try:
        await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise late
        return task.result()
    finally:
        limit.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
