from __future__ import annotations

import asyncio
import time

from kedge.machinery.clock import SystemClock, every, lease_clock
from kedge.machinery.travel_clock import TravelClock
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


def test_leases_are_measured_by_a_clock_that_goes_on_in_suspend() -> None:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    for clock in (SystemClock(), TravelClock()):
        assert since_boot <= lease_clock(clock).monotonic() < since_boot + 60


async def test_a_fake_machine_can_be_suspended() -> None:
    clock = FakeClock()
    leases = lease_clock(clock)
    clock.suspended += 3600
    await clock.advance(1)
    assert (clock.monotonic(), leases.monotonic()) == (1, 3601)
