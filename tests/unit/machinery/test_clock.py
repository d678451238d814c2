from __future__ import annotations

import asyncio

from kedge.machinery.clock import every
from kedge.testing.clock import FakeClock


async def test_a_deed_is_done_again_and_again_but_not_at_once() -> None:
    clock, done = FakeClock(), []

    async def deed() -> None:
        done.append(clock.monotonic())

    begun = clock.monotonic()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(every(10, deed, clock))
        await clock.advance(9)
        assert done == []
        await clock.advance(21)
        assert [at - begun for at in done] == [10, 20, 30]
        work.cancel()
