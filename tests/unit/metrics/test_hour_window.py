"""The window of an hour against sorting everything."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.metrics import series_memory
from kedge.metrics.hour_window import HourWindow
from kedge.metrics.series_memory import HOUR_TICKS, MAXIMA, MEANS, SIZE, UNKNOWN
from kedge.metrics.windows import MINUTE


def blank() -> HourWindow:
    memory = memoryview(bytearray(SIZE))
    series_memory.clear(memory, memoryview(bytearray(4 * MINUTE)).cast("f"))
    floats, covered, _ = series_memory.split(memory)
    return HourWindow(floats, covered)


@given(st.integers(2, 40), st.sampled_from([-1, 1]))
@settings(max_examples=30, deadline=None)
def test_the_sorted_part_is_refilled_when_large_values_leave(levels: int, sign: int) -> None:
    """Rising and falling series: the largest values are the first to leave, or the last."""
    window = blank()
    values: list[float] = []
    for tick in range(1, 2 * HOUR_TICKS + 1):
        mean = float(levels + sign * (tick * levels // (2 * HOUR_TICKS)))
        values.append(mean)
        window.put(tick, mean, mean, 10.0)
        last = sorted(values[-HOUR_TICKS:])
        expected = last[math.ceil(len(last) * 0.95) - 1]
        assert window.percentile() == expected
        assert window.peak == last[-1]
    found = window.statistics()
    assert found is not None
    assert found.mean == pytest.approx(sum(last) / len(last), rel=1e-6)


def test_a_falling_hour_before_a_silent_one_is_ranked_to_its_last_tick() -> None:
    """The largest values leave first, and none come: the fewest are sorted that can be."""
    window = blank()
    for tick in range(1, HOUR_TICKS + 1):
        window.put(tick, float(HOUR_TICKS - tick), float(HOUR_TICKS - tick), 10.0)
    for left in range(HOUR_TICKS - 1, 0, -1):
        window.put(2 * HOUR_TICKS - left, UNKNOWN, UNKNOWN, 0.0)
        rank = math.ceil(left * 95 / 100)
        assert window.statistics() == ((left - 1) / 2, left - 1.0, rank - 1.0)


def test_a_tick_seldom_sorts_the_whole_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts = 0
    sort = HourWindow.sorted_means

    def counted(window: HourWindow) -> list[float]:
        nonlocal sorts
        sorts += 1
        return sort(window)

    monkeypatch.setattr(HourWindow, "sorted_means", counted)
    window, chance = blank(), random.Random(1)
    for tick in range(1, 10 * HOUR_TICKS):
        mean = chance.random()
        window.put(tick, mean, mean, 10.0)
    assert sorts < 10


def test_idle_ticks_leave_after_an_hour() -> None:
    window = blank()
    for tick in range(1, 2 * HOUR_TICKS):
        window.put(tick, 0.0, 0.0, 10.0)
        assert window.ticks == min(tick, HOUR_TICKS)
    assert window.statistics() == (0.0, 0.0, 0.0)


def test_a_tick_longer_than_its_counter_weighs_as_much_as_that_can_hold() -> None:
    window = blank()
    window.put(1, 1.0, 1.0, 100.0)
    assert window.last(1, 1) == ([1.0], [65_535])
    assert window.statistics() == (1.0, 1.0, 1.0)


def test_an_hour_without_data_has_no_statistics() -> None:
    window = blank()
    window.put(1, 2.0, 3.0, 10.0)
    assert window.statistics() == (2.0, 3.0, 2.0)
    for tick in range(2, HOUR_TICKS + 2):
        window.put(tick, UNKNOWN, UNKNOWN, 0.0)
    assert window.ticks == 0
    assert window.statistics() is None


def test_the_last_ticks_are_found_across_the_end_of_the_ring() -> None:
    window = blank()
    for tick in range(HOUR_TICKS - 2, HOUR_TICKS + 3):
        window.put(tick, float(tick), float(tick), 10.0)
    means, covered = window.last(HOUR_TICKS + 2, 6)
    assert sorted(means) == [UNKNOWN, 358.0, 359.0, 360.0, 361.0, 362.0]
    assert sorted(covered) == [0, 10_000, 10_000, 10_000, 10_000, 10_000]


def test_the_last_ticks_are_found_within_the_ring() -> None:
    window = blank()
    for tick in range(1, 6):
        window.put(tick, float(tick), float(tick), tick / 10)
    assert window.last(4, 2) == ([3.0, 4.0], [300, 400])
    assert window.last(5, 5) == ([1.0, 2.0, 3.0, 4.0, 5.0], [100, 200, 300, 400, 500])


def test_an_hour_is_empty_until_something_is_known() -> None:
    window = blank()
    assert window.is_empty()
    window.put(1, 0.0, 0.0, 10.0)
    assert not window.is_empty()


def test_ticks_with_a_part_of_their_data_missing_are_dropped_when_they_are_loaded() -> None:
    memory = memoryview(bytearray(SIZE))
    series_memory.clear(memory, memoryview(bytearray(4 * MINUTE)).cast("f"))
    floats, covered_of, _ = series_memory.split(memory)
    window = HourWindow(floats, covered_of)
    for tick in range(1, 7):
        window.put(tick, 0.0 if tick == 6 else float(tick), 0.0 if tick == 6 else 9.0, 10.0)
    floats[MEANS + 2] = UNKNOWN
    floats[MAXIMA + 3] = UNKNOWN
    covered_of[4] = 0
    again = HourWindow(floats, covered_of)
    again.load()
    assert again.ticks == 3
    assert again.statistics() == (2.0, 9.0, 5.0)
    means, covered = again.last(6, 6)
    assert means == [1.0, UNKNOWN, UNKNOWN, UNKNOWN, 5.0, 0.0]
    assert covered == [10_000, 0, 0, 0, 10_000, 10_000]
    assert [*floats[MAXIMA + 1 : MAXIMA + 7]] == [9.0, UNKNOWN, UNKNOWN, UNKNOWN, 9.0, 0.0]


def test_seconds_count_by_how_much_of_their_tick_is_covered() -> None:
    window = blank()
    window.put(1, 1.0, 1.0, 10.0)
    window.put(2, 4.0, 4.0, 5.0)
    assert window.statistics() == (2.0, 4.0, 4.0)
    for tick in range(3, HOUR_TICKS + 2):
        window.put(tick, UNKNOWN, UNKNOWN, 0.0)
    assert window.statistics() == (4.0, 4.0, 4.0)
