import asyncio

import pytest

from kedge.machinery.turns import SHARE_SECONDS, Turns
from kedge.testing.clock import BusyClock

MILLISECOND = 0.001


async def work(clock: BusyClock, done: list[str], name: str, rounds: int) -> None:
    for _ in range(rounds):
        await clock.give_way()
        clock.spend(MILLISECOND)
        done.append(name)


async def done_by(clock: BusyClock, **rounds: int) -> list[str]:
    """Who did a round when, if all begin at once."""
    done: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        for name, count in rounds.items():
            tasks.create_task(work(clock, done, name, count))
        await clock.observe(lambda: len(done) == sum(rounds.values()))
    return done


async def test_work_within_its_share_is_not_interrupted() -> None:
    clock = BusyClock()
    await done_by(clock, a=9)
    assert clock.slices == pytest.approx([9 * MILLISECOND])


async def test_long_work_is_cut_into_slices() -> None:
    clock = BusyClock()
    await done_by(clock, a=1000)
    assert sum(clock.slices) == pytest.approx(1.0)
    assert len(clock.slices) >= 90
    assert max(clock.slices) <= SHARE_SECONDS + MILLISECOND


async def test_many_who_work_at_once_share_one_slice() -> None:
    clock = BusyClock()
    done = await done_by(clock, **{f"w{i}": 20 for i in range(100)})
    assert sum(clock.slices) == pytest.approx(2.0)
    assert max(clock.slices) <= SHARE_SECONDS + 2 * MILLISECOND
    assert [done.count(f"w{i}") for i in range(100)] == [20] * 100


async def test_nobody_starves_beside_one_who_goes_on_and_on() -> None:
    done = await done_by(BusyClock(), greedy=10_000, modest=50)
    last = len(done) - 1 - done[::-1].index("modest")
    assert last < 50 * 15


async def test_one_who_is_cancelled_while_waiting_takes_no_turn() -> None:
    clock, done = BusyClock(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work(clock, done, "first", 30))
        waiting = [tasks.create_task(work(clock, done, "waiting", 1)) for _ in range(3)]
        await clock.observe(lambda: "first" in done)
        waiting[0].cancel()
        waiting[1].cancel()
    assert done.count("waiting") == 1


async def test_after_a_pause_nobody_waits() -> None:
    clock = BusyClock()
    turns = Turns(clock.monotonic)
    await turns.give_way()
    await clock.advance(0)
    clock.spend(100)
    # A coroutine that waits for nothing ends with its first step.
    with pytest.raises(StopIteration):
        turns.give_way().send(None)
