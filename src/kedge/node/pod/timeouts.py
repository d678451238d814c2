"""Awaiting work until a timeout or an event."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from kedge.machinery.clock import Clock, machine_clock

T = TypeVar("T")


class WorkInterrupted(Exception):
    """An event has made the awaited work pointless."""


async def with_timeout(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Return the result of the work. Raises TimeoutError if it takes longer by the machine's clock:
    the work of processes and networks does not travel in time."""
    return await _first(work, machine_clock(clock).sleep(seconds), TimeoutError)


async def unless_set(event: asyncio.Event, work: Awaitable[T]) -> T:
    """Return the result of the work. Raises WorkInterrupted if the event is set before."""
    return await _first(work, event.wait(), WorkInterrupted)


async def wait_until_set(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Return when the event is set, or after so many seconds."""
    with contextlib.suppress(TimeoutError):
        await _first(event.wait(), clock.sleep(seconds), TimeoutError)


async def _first(work: Awaitable[T], end: Awaitable[object], late: type[Exception]) -> T:
    # This function owns both tasks and ends them before it returns. A TaskGroup would wrap an error
    # of the work in an ExceptionGroup.
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
