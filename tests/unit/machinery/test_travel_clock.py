"""A clock that tests move while a server runs."""

import asyncio
from datetime import timedelta

import pytest

from kedge.machinery.clock import heartbeat_clock, machine_clock
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.clock import FakeClock

HOUR = 3600.0


async def turns() -> None:
    await FakeClock().advance(0)


async def test_both_times_move_together() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    now, monotonic = clock.now(), clock.monotonic()
    clock.advance(HOUR)
    await machine.advance(5)
    assert clock.now() - now == timedelta(hours=1, seconds=5)
    assert clock.monotonic() - monotonic == HOUR + 5
    assert clock.reading.offset == HOUR
    assert machine_clock(clock) is machine
    assert machine_clock(machine) is machine


async def test_heartbeats_are_measured_in_real_time() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    heartbeats = heartbeat_clock(clock)
    before = heartbeats.monotonic()
    clock.advance(HOUR)
    assert heartbeats.monotonic() == before
    assert heartbeats.now() == clock.now()
    await heartbeats.give_way()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(heartbeats.sleep(10))
        await turns()
        clock.advance(HOUR)
        await turns()
        assert not sleeper.done()
        await machine.advance(10)
    assert heartbeat_clock(machine) is machine


async def test_sleepers_wake_when_their_time_has_come() -> None:
    clock = TravelClock()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        short, long = (group.create_task(clock.sleep(hours * HOUR)) for hours in (1, 3))
        await turns()
        clock.advance(HOUR)
        await short
        assert not long.done()
        clock.advance(2 * HOUR)
        await long


async def test_a_sleep_ends_by_itself() -> None:
    clock = TravelClock()
    async with asyncio.timeout(60):
        await clock.sleep(0.001)
        await clock.sleep(0)
        await clock.sleep(-1)


async def test_a_frozen_clock_stands_still() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    clock.freeze()
    before = clock.now(), clock.monotonic()
    await machine.advance(HOUR)
    assert (clock.now(), clock.monotonic()) == before
    clock.advance(60)
    assert clock.now() - before[0] == timedelta(seconds=60)
    clock.resume()
    assert clock.reading.frozen is False
    assert clock.monotonic() - before[1] == 60
    await machine.advance(5)
    assert clock.now() - before[0] == timedelta(seconds=65)
    assert clock.reading.offset == 60 - HOUR


async def test_sleepers_of_a_frozen_clock_wait_for_it() -> None:
    clock = TravelClock()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        clock.freeze()
        sleeper = group.create_task(clock.sleep(10))
        await turns()
        clock.advance(9)
        await turns()
        assert not sleeper.done()
        clock.advance(1)
        await sleeper


async def test_short_pauses_of_a_frozen_clock_take_their_real_time() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    clock.freeze()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(0.5))
        await turns()
        assert not sleeper.done()
        await machine.advance(0.5)
        await sleeper


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        TravelClock().advance(-1)
