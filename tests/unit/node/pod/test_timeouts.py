import asyncio

import pytest

from kedge.node.pod.timeouts import WorkInterrupted, unless_set, wait_until_set, with_timeout
from kedge.testing.clock import FakeClock


async def test_work_that_is_done_in_time_gives_its_result() -> None:
    async def work() -> int:
        return 5

    assert await with_timeout(FakeClock(), 1, work()) == 5
    assert await unless_set(asyncio.Event(), work()) == 5


async def test_work_that_takes_too_long_is_ended() -> None:
    clock = FakeClock()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.ensure_future(with_timeout(clock, 1, work()))
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await waiting
    assert ended.is_set()


async def test_an_event_interrupts() -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(unless_set(event, asyncio.Event().wait()))
    event.set()
    with pytest.raises(WorkInterrupted):
        await waiting


async def test_sleep_ends_with_the_event_or_the_time() -> None:
    clock, event = FakeClock(), asyncio.Event()
    sleeping = asyncio.ensure_future(wait_until_set(event, clock, 10))
    await clock.advance(5)
    event.set()
    await sleeping
    event.clear()
    sleeping = asyncio.ensure_future(wait_until_set(event, clock, 10))
    await clock.advance(10)
    await sleeping
