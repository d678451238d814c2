"""A clock that tests move while a server runs."""

import asyncio
from datetime import timedelta

import pytest

from kedge.machinery.clock import (
    cluster_nanoseconds,
    heartbeat_clock,
    machine_clock,
    usage_clock,
)
from kedge.machinery.travel_clock import MOST_STRETCHES, TravelClock, sign_of_life
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


async def test_skipped_time_counts_for_the_silence_of_nodes_when_it_is_released() -> None:
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
        clock.release(HOUR)
        await sleeper
    assert heartbeats.monotonic() == before + HOUR
    clock.freeze()
    await machine.advance(HOUR)
    assert heartbeats.monotonic() == before + HOUR
    assert heartbeat_clock(machine) is machine


async def test_usage_is_stamped_with_the_cluster_s_time_and_measured_in_the_machine_s() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    usage = usage_clock(clock)
    clock.advance(HOUR)
    await machine.advance(1)
    assert usage.now() - machine.now() == timedelta(hours=1)
    assert usage.monotonic() == 1
    assert machine_clock(usage) is machine
    await usage.give_way()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(usage.sleep(HOUR))
        await turns()
        clock.advance(HOUR)
        await sleeper
    assert usage_clock(machine) is machine


def seconds(clock: TravelClock, moment: float) -> float:
    start = FakeClock().now().timestamp()
    return clock.cluster_nanoseconds(int((start + moment) * 1e9)) / 1e9 - start


async def test_a_moment_of_the_machine_has_one_time_of_the_cluster() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    convert = cluster_nanoseconds(clock)
    assert convert is not None
    assert convert(0) == 0
    assert cluster_nanoseconds(machine) is None
    await machine.advance(10)
    clock.advance(HOUR)
    await machine.advance(10)
    clock.freeze()
    await machine.advance(10)
    clock.resume()
    await machine.advance(10)
    # Before the jump, after it, while the clock stood still, and when it went on.
    assert [seconds(clock, at) for at in (5, 15, 25, 35)] == [5, HOUR + 15, HOUR + 20, HOUR + 25]


async def test_a_clock_follows_another() -> None:
    machine = FakeClock()
    server, node = TravelClock(machine), TravelClock(machine)
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(node.sleep(HOUR))
        await turns()
        server.advance(HOUR)
        await machine.advance(5)
        node.follow(server.stretches)
        await sleeper
    assert node.now() == server.now()
    assert node.monotonic() == HOUR + 5
    server.freeze()
    server.advance(60)
    node.follow(server.stretches)
    await machine.advance(5)
    assert (node.now(), node.reading.frozen) == (server.now(), True)
    assert node.monotonic() == HOUR + 65
    server.resume()
    node.follow(server.stretches)
    await machine.advance(5)
    assert node.now() == server.now()
    # A server that was restarted begins with the machine's time; time to wait never grows.
    node.follow([])
    assert node.now() == machine.now()
    assert node.monotonic() == HOUR + 70


async def test_old_changes_are_forgotten() -> None:
    clock = TravelClock(FakeClock())
    for _ in range(MOST_STRETCHES + 5):
        clock.advance(1)
    assert len(clock.stretches) == MOST_STRETCHES
    assert clock.reading.offset == MOST_STRETCHES + 5


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


async def test_a_node_heard_of_while_nodes_follow_is_not_silent_for_the_skipped_hour() -> None:
    clock = TravelClock(FakeClock())
    clock.advance(3600)
    heard = sign_of_life(clock.heartbeats)
    clock.release(3600)
    assert clock.heartbeats.monotonic() - heard == 0
    clock.advance(60)
    clock.withhold(60)
    assert sign_of_life(clock.heartbeats) == clock.heartbeats.monotonic()
    assert sign_of_life(FakeClock()) == 0
