import asyncio

import pytest

from kedge.machinery import heap
from kedge.machinery.heap import TRIM_SECONDS, keep_trimmed
from kedge.testing.clock import FakeClock


class ShortClock(FakeClock):
    """A clock whose sleeps are over at once; the fourth ends the sleeper."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if len(self.sleeps) > 3:
            raise asyncio.CancelledError


async def test_free_memory_is_returned_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, trimmed = ShortClock(), list[int]()
    monkeypatch.setattr(heap, "_trimmer", lambda: lambda: trimmed.append(len(clock.sleeps)))
    with pytest.raises(asyncio.CancelledError):
        await keep_trimmed(clock)
    assert trimmed == [1, 2, 3]
    assert {*clock.sleeps} == {TRIM_SECONDS}


def test_the_function_of_this_machine_can_be_called() -> None:
    heap._trimmer()()
