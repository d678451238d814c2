"""The table of windows, and those who cannot derive from it."""

import msgspec
import pytest

from kedge.metrics.windows import MAIN, SHORTEST, TICK_SECONDS, WINDOWS, tick_of
from kedge.scheduler import usage


def test_windows_are_whole_ticks_and_sorted() -> None:
    assert [length % TICK_SECONDS for length in WINDOWS.values()] == [0] * len(WINDOWS)
    assert list(WINDOWS.values()) == sorted(WINDOWS.values())
    assert next(iter(WINDOWS)) == SHORTEST
    assert MAIN in WINDOWS


def test_the_scheduler_reads_windows_of_the_table() -> None:
    fields = msgspec.structs.fields(usage.ReportedWindows)
    assert [field.encode_name for field in fields] == list(WINDOWS)


@pytest.mark.parametrize(("second", "tick"), [(0, 0), (1, 1), (10, 1), (11, 2), (20, 2)])
def test_a_tick_ends_with_its_last_second(second: int, tick: int) -> None:
    assert tick_of(second) == tick
