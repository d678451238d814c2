"""Long work goes to a thread, short work stays where it is."""

import asyncio
import itertools
import threading

import pytest

from kedge.apiserver.long_work import LONG, SHARE_SECONDS, LongWork
from kedge.testing.clock import BusyClock, FakeClock


async def test_small_input_is_worked_on_at_once() -> None:
    here = threading.get_ident()
    assert await LongWork(FakeClock()).run(LONG - 1, threading.get_ident) == here


async def test_large_input_is_worked_on_beside_the_loop() -> None:
    here = threading.get_ident()
    assert await LongWork(FakeClock()).run(LONG, threading.get_ident) != here


async def test_what_goes_wrong_in_a_thread_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await LongWork(FakeClock()).run(LONG, int, "x")


async def test_short_work_of_many_requests_does_not_fill_one_turn() -> None:
    clock = BusyClock()
    work, turns, done = LongWork(clock), list[int](), list[int]()

    async def request(number: int) -> None:
        await work.run(LONG - 1, clock.spend, SHARE_SECONDS / 2)
        done.append(number)

    def turn() -> None:
        turns.append(len(done))
        if len(done) < 20:
            asyncio.get_running_loop().call_soon(turn)

    async with asyncio.TaskGroup() as requests:
        for number in range(20):
            requests.create_task(request(number))
        turn()
    answered = [after - before for before, after in itertools.pairwise(turns)]
    assert max(answered) <= 3
    assert done == list(range(20))
