"""A watchdog, and a loop that answers when the test lets it."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable

import pytest

from kedge.testing.clock import FakeClock
from kedge.web.watchdog import (
    IDLE_SECONDS,
    LoopPauses,
    ProcessorTime,
    Watchdog,
    stack_of,
    stacks_of_others,
    watched,
)


class Loop:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.now = 0.0
        self.share = 0.25
        """Of a processor, that the process gets."""
        self.own = 0.125
        self.questions: list[Callable[[], None]] = []
        self.pauses = LoopPauses()
        self.watchdog = Watchdog(
            self.pauses,
            lambda: self.now,
            lambda: ProcessorTime(self.now * self.share, self.now * self.own),
            self.questions.append,
            lambda: "slow (x.py:1)",
            lambda: "other (y.py:2)",
        )

    def stuck(self, periods: int) -> None:
        """Leave a question open for so many looks, then answer it."""
        self.watchdog.look()
        for _ in range(periods):
            self.now += 0.125
            self.watchdog.look()
        self.questions.pop()()
        self.now += 0.125


def test_pauses_are_counted_and_the_longest_is_known() -> None:
    loop = Loop()
    for periods in (0, 0, 3, 1, 0):
        loop.stuck(periods)
    assert loop.pauses.count == 2
    assert loop.pauses.longest == 0.375
    text = loop.pauses.text()
    assert "kedge_event_loop_longest_pause_seconds 0.375" in text
    assert 'kedge_event_loop_pause_seconds_bucket{le="0.5"} 2' in text
    assert "kedge_event_loop_pause_seconds_count 2" in text


def test_the_culprit_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            loop.stuck(3)
        loop.now += 16
        loop.stuck(3)
        loop.watchdog.look()
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(
        "event loop paused seconds=0.38 processor_seconds=0.09 own_seconds=0.05"
        " culprit='slow (x.py:1)' threads='other (y.py:2)'"
    )
    assert second.endswith("not_logged_before=2")


def test_processor_time_tells_a_busy_server_from_a_busy_machine() -> None:
    loop = Loop()
    loop.stuck(8)
    assert (loop.pauses.longest, loop.pauses.longest_processor) == (1.0, (0.25, 0.125))
    loop.share = 2.0  # two threads at once: no pause is longer than it lasted
    loop.now = 0.0
    loop.stuck(8)
    assert loop.pauses.longest_processor.process == 1.0
    assert "kedge_event_loop_longest_pause_processor_seconds 1.000" in loop.pauses.text()
    assert "kedge_event_loop_longest_pause_own_seconds 0.125" in loop.pauses.text()


def test_a_record_of_the_loops_own_thread_is_always_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    loop.share = 1.0
    with caplog.at_level(logging.WARNING):
        for own in (0.1, 0.5, 0.55, 1.0):
            loop.own = own
            start, loop.now = loop.now, 0.0
            loop.stuck(3)
            loop.now += start
        loop.watchdog.look()
    found = [record.getMessage() for record in caplog.records]
    assert ["own_seconds=0.04" in found[0], "own_seconds=0.19" in found[1]] == [True, True]
    assert "own_seconds=0.38" in found[2]
    assert "threads=''" in found[2]
    assert len(found) == 3


def test_a_pause_of_the_start_is_no_record(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING):
        loop.stuck(30)
        loop.pauses.start_over()
        loop.stuck(10)
        loop.watchdog.look()
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "event loop paused seconds=3.7",
        "event loop paused seconds=1.2",
    ]


def test_threads_that_wait_are_no_culprits() -> None:
    over = threading.Event()
    is_over: list[bool] = []

    def work() -> None:
        while not is_over:
            pass

    threads = [threading.Thread(target=work), threading.Thread(target=over.wait)]
    for thread in threads:
        thread.start()
    found = ""
    while "work (web/test_watchdog.py" not in found:
        found = stacks_of_others(sys._current_frames(), (threading.get_ident(),))
    over.set()
    is_over.append(True)
    for thread in threads:
        thread.join()
    assert "wait (" not in found


def test_a_record_is_always_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING):
        for periods in (4, 8, 9, 16, 16, 3, 1):
            loop.stuck(periods)
    assert [record.getMessage().split()[3] for record in caplog.records] == [
        "seconds=0.50",
        "seconds=1.00",
        "seconds=2.00",
    ]


def test_a_loop_that_does_not_come_back_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING):
        loop.stuck(100)
        loop.watchdog.look()
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("event loop stuck seconds=5.0")


def test_a_loop_that_waits_is_not_woken_up() -> None:
    questions: list[Callable[[], None]] = []
    nothing = ProcessorTime(0.0, 0.0)
    watchdog = Watchdog(LoopPauses(), lambda: 0.0, lambda: nothing, questions.append, lambda: "")
    assert watchdog.look() == IDLE_SECONDS
    assert questions == []


def test_a_stack_names_its_innermost_calls_first() -> None:
    stack = stack_of(sys._getframe())
    assert stack.startswith("test_a_stack_names_its_innermost_calls_first (web/test_watchdog.py:")
    assert stack_of(None) == "unknown"


async def test_a_real_loop_is_watched_while_the_context_is_open() -> None:
    asked = asyncio.Event()

    class Clock(FakeClock):
        def monotonic(self) -> float:
            loop.call_soon_threadsafe(asked.set)
            return 0.0

    loop = asyncio.get_running_loop()
    pauses = LoopPauses()
    with watched(Clock(), pauses):
        async with asyncio.timeout(10):
            await asked.wait()
    assert pauses.longest == 0.0
