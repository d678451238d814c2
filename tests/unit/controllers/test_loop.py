import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kedge.controllers.loop import (
    LONGEST_PAUSE,
    SMALL_OWNER,
    ControllerLoop,
    Unfinished,
    pause_for,
)
from kedge.machinery.errors import conflict, not_found
from kedge.machinery.turns import SHARE_SECONDS
from kedge.testing.clock import BusyClock, FakeClock


@asynccontextmanager
async def running(
    reconcile: Callable[[str], Awaitable[None]], clock: FakeClock, workers: int = 1
) -> AsyncIterator[ControllerLoop[str]]:
    loop = ControllerLoop("test", reconcile, clock, workers=workers)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(loop.run())
        yield loop
        run.cancel()


async def test_what_fails_is_tried_again_until_it_succeeds() -> None:
    clock, tries = FakeClock(), 0

    async def third_time_lucky(key: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise not_found("", "pods", key)

    async with running(third_time_lucky, clock) as loop:
        loop.add("a")
        await clock.advance(60)
    assert tries == 3


async def test_an_error_is_logged_once_however_often_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()

    async def hopeless(key: str) -> None:
        raise not_found("", "pods", key)

    with caplog.at_level(logging.WARNING):
        async with running(hopeless, clock) as loop:
            loop.add("a")
            await clock.advance(60)
    assert len(caplog.records) == 1
    assert 'pods \\"a\\" not found' in caplog.text or 'pods "a" not found' in caplog.text
    assert caplog.records[0].exc_info is None


async def test_a_defect_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    async def broken(key: str) -> None:
        raise KeyError(key)

    async with running(broken, clock) as loop:
        loop.add("a")
        await clock.advance(0)
    assert caplog.records[0].exc_info is not None


async def test_conflicts_are_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    async def contested(key: str) -> None:
        raise conflict("", "pods", key, "changed")

    async with running(contested, clock) as loop:
        loop.add("a")
        await clock.advance(1)
    assert not caplog.records


@pytest.mark.parametrize(
    "error", [not_found("", "pods", "a"), Unfinished("events remain")], ids=["gone", "unfinished"]
)
async def test_an_object_that_just_went_is_not_worth_a_line(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock, errors = FakeClock(), [error]

    async def passing(key: str) -> None:
        if errors:
            raise errors.pop()

    async with running(passing, clock) as loop:
        loop.add("a")
        await clock.advance(60)
    assert not errors
    assert not caplog.records


async def test_unfinished_work_is_logged_without_a_traceback_if_it_stays_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()

    async def stuck(key: str) -> None:
        raise Unfinished("events remain")

    async with running(stuck, clock) as loop:
        loop.add("a")
        await clock.advance(60)
    (record,) = caplog.records
    assert "events remain" in record.getMessage()
    assert record.exc_info is None


async def test_one_key_that_takes_long_does_not_hold_up_the_others() -> None:
    clock, done = FakeClock(), []

    async def slow_for_a(key: str) -> None:
        if key == "a":
            await asyncio.Event().wait()
        done.append(key)

    async with running(slow_for_a, clock, workers=2) as loop:
        for key in ("a", "b", "c"):
            loop.add(key)
        await clock.advance(0)
    assert done == ["b", "c"]


async def test_thousands_of_keys_are_seen_to_in_slices() -> None:
    clock = BusyClock()
    seen: list[str] = []

    async def looks(key: str) -> None:
        clock.spend(0.001)
        seen.append(key)

    async with running(looks, clock, workers=5) as loop:
        for i in range(1000):
            loop.add(str(i))
        await clock.observe(lambda: len(seen) == 1000)
    assert sum(clock.slices) == pytest.approx(1.0, abs=0.02)
    # Each of the five may have begun a look when the share was spent.
    assert max(clock.slices) <= SHARE_SECONDS + 0.005


async def test_a_failed_reconciliation_keeps_nothing_in_memory() -> None:
    clock, kept = FakeClock(), []

    class Workload:
        pass

    async def refused(key: str) -> None:
        workload = Workload()
        kept.append(weakref.ref(workload))
        # As after several writes of which one has failed.
        failure = not_found("", "pods", key)
        raise failure

    gc.disable()
    try:
        async with running(refused, clock) as loop:
            loop.add("a")
            await clock.advance(1)
            assert {each() for each in kept} == {None}
    finally:
        gc.enable()


async def test_an_owner_of_many_objects_is_seen_to_at_once_and_then_after_a_pause() -> None:
    clock, times = FakeClock(), list[float]()

    async def note(_: str) -> None:
        times.append(clock.monotonic())

    async with running(note, clock) as loop:
        began = clock.monotonic()
        for _ in range(10):
            loop.add_after_pause("large", 10_000)
            await clock.advance(0.01)
        await clock.advance(2)
        loop.add_after_pause("large", 10_000)
        await clock.advance(0)
    assert [round(each - began, 2) for each in times] == [0, LONGEST_PAUSE, 2.1]


async def test_an_owner_of_few_objects_is_seen_to_at_each_change() -> None:
    clock, count = FakeClock(), 0

    async def note(_: str) -> None:
        nonlocal count
        count += 1

    async with running(note, clock) as loop:
        for _ in range(10):
            loop.add_after_pause("small", SMALL_OWNER)
            await clock.advance(0)
    assert count == 10


async def test_changes_during_a_reconciliation_wait_for_a_pause_after_it() -> None:
    clock, times = FakeClock(), list[float]()

    async def slow(key: str) -> None:
        times.append(clock.monotonic())
        loop.add_after_pause(key, 10_000)
        if len(times) == 1:
            await clock.sleep(3)

    async with running(slow, clock) as loop:
        began = clock.monotonic()
        loop.add("large")
        await clock.advance(3.2)
        assert len(times) == 1
        await clock.advance(0.3)
    assert [each - began for each in times] == [0, 3.5]


def test_pauses_grow_with_the_number_of_objects_and_end() -> None:
    assert [pause_for(each) for each in (0, 100, 200, 1000, 10**6)] == [0, 0, 0.1, 0.5, 0.5]
