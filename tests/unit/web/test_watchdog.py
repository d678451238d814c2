"""A watchdog, and a loop that answers when the test lets it."""

import asyncio
import logging
import sys
from collections.abc import Callable

import pytest

from kedge.testing.clock import FakeClock
from kedge.web.watchdog import IDLE_SECONDS, LoopPauses, Watchdog, stack_of, watched


class Loop:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.now = 0.0
        self.share = 0.25
        """Of a processor, that the process gets."""
        self.questions: list[Callable[[], None]] = []
        self.pauses = LoopPauses()
        self.watchdog = Watchdog(
            self.pauses,
            lambda: self.now,
            lambda: self.now * self.share,
            self.questions.append,
            lambda: "slow (x.py:1)",
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
        "event loop paused seconds=0.38 processor_seconds=0.09 culprit='slow (x.py:1)'"
    )
    assert second.endswith("not_logged_before=2")


def test_processor_time_tells_a_busy_server_from_a_busy_machine() -> None:
    loop = Loop()
    loop.stuck(8)
    assert (loop.pauses.longest, loop.pauses.longest_processor) == (1.0, 0.25)
    loop.share = 2.0  # two threads at once: no pause is longer than it lasted
    loop.now = 0.0
    loop.stuck(8)
    assert loop.pauses.longest_processor == 1.0
    assert "kedge_event_loop_longest_pause_processor_seconds 1.000" in loop.pauses.text()


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
    watchdog = Watchdog(LoopPauses(), lambda: 0.0, lambda: 0.0, questions.append, lambda: "")
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
