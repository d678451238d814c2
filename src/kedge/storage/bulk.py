"""Many writes at once."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from kedge.machinery.clock import Clock

WRITERS: Final = 64
"""How many writes are under way at once. A store with files writes them in one transaction; a task
for each of thousands of writes would take longer than the writes."""
STRETCH: Final = 64
"""Writes of a store in memory end at once: after so many, others have their turn."""


async def carry_out(writes: Iterator[Coroutine[Any, Any, None]], clock: Clock) -> None:
    """Await writes, which begin in their order. The first error is raised, and ends all."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(_write(writes, clock))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _write(writes: Iterator[Coroutine[Any, Any, None]], clock: Clock) -> None:
    for number, each in enumerate(writes, 1):
        await each
        if not number % STRETCH:
            await clock.give_way()
