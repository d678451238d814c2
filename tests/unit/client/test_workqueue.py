import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kedge.client.workqueue import Backoff, WorkQueue
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.clock import FakeClock


async def test_a_key_added_twice_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_worked_on_comes_again_only_when_that_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert await queue.get() == "a"


async def test_a_failing_key_comes_back_after_twice_the_time_each_time() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock, Backoff(first=1, most=5))
    queue.add("a")
    came: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(_always_failing(queue, clock, came))
        await clock.advance(20)
        worker.cancel()
    assert came == [0, 1, 3, 7, 12, 17]


async def test_success_makes_the_next_failure_the_first() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock, Backoff(first=1, most=60))
    assert [queue.retry("a"), queue.retry("a")] == [1, 2]
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_a_nearer_key_is_not_held_up_by_one_that_waits_longer() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_later("late", 60)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.get())
        await clock.advance(1)
        queue.add_later("soon", 2)
        await clock.advance(2)
        assert first.done()
        assert await first == "soon"


async def test_every_worker_gets_a_key_of_its_own() -> None:
    queue: WorkQueue[int] = WorkQueue(FakeClock())
    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(queue.get()) for _ in range(3)]
        for key in range(3):
            queue.add(key)
    assert sorted([worker.result() for worker in workers]) == [0, 1, 2]


@given(st.integers(1, 10_000), st.floats(0.001, 10), st.floats(10, 1000))
def test_waiting_never_shrinks_and_never_exceeds_the_limit(
    failures: int, first: float, most: float
) -> None:
    backoff = Backoff(first, most)
    assert backoff.delay(failures) <= backoff.delay(failures + 1) <= most


async def _always_failing(queue: WorkQueue[str], clock: FakeClock, came: list[float]) -> None:
    while True:
        key = await queue.get()
        came.append(clock.monotonic())
        queue.retry(key)
        queue.done(key)


async def test_a_clock_that_stands_still_does_not_stop_retries() -> None:
    machine = FakeClock()
    clock = TravelClock(machine)
    queue: WorkQueue[str] = WorkQueue(clock)
    clock.freeze()
    queue.retry("a")
    queue.add_later("b", 60)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = group.create_task(queue.get())
        await machine.advance(1)
        assert first.result() == "a"
        second = group.create_task(queue.get())
        await machine.advance(120)
        assert not second.done()
        clock.advance(60)
        assert await second == "b"
