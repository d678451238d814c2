"""The window of a day: its errors are as small as its description says."""

import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.metrics import series_memory
from kedge.metrics.day_window import DayWindow
from kedge.metrics.hour_window import HourWindow
from kedge.metrics.percentiles import Percentile
from kedge.metrics.scale import ABSENT, CODES, CPU, ZERO
from kedge.metrics.series_memory import (
    BLOCK_TICKS,
    BLOCKS,
    DAY_TICKS,
    PEAKS,
    SIZE,
    UNKNOWN,
    WEIGHTS,
    fill,
)
from kedge.metrics.statistics import rank
from kedge.metrics.windows import MINUTE


def blank() -> tuple[HourWindow, DayWindow]:
    memory = memoryview(bytearray(SIZE))
    series_memory.clear(memory, memoryview(bytearray(4 * MINUTE)).cast("f"))
    floats, covered, codes = series_memory.split(memory)
    return HourWindow(floats, covered), DayWindow(floats, codes, CPU)


@given(st.integers(0, BLOCK_TICKS - 1), st.integers(1, BLOCK_TICKS))
@settings(max_examples=12, deadline=None)
def test_the_oldest_block_makes_the_mean_wrong_by_a_1152nd_of_its_spread(
    extra: int, busy: int
) -> None:
    """Worst case: one block is half busy, half idle, and the day ends within it."""
    hour, day = blank()
    ticks = DAY_TICKS + extra
    values = [1.0 if tick < busy else 0.0 for tick in range(ticks)]
    for tick, value in enumerate(values):
        hour.put(tick, value, value, 10.0)
        day.put(tick, value, value, 10.0)
    found = day.statistics(ticks - 1, hour)
    assert found is not None
    expected = sum(values[-DAY_TICKS:]) / DAY_TICKS
    assert abs(found.mean - expected) <= 1 / 1152 + 1e-5


def test_an_even_day_has_the_same_mean_at_every_tick_of_a_block() -> None:
    hour, day = blank()
    for tick in range(DAY_TICKS + 2 * BLOCK_TICKS):
        hour.put(tick, 1.0, 2.0, 10.0)
        day.put(tick, 1.0, 2.0, 10.0)
        if tick >= DAY_TICKS:
            found = day.statistics(tick, hour)
            assert found is not None
            assert found[:2] == pytest.approx((1.0, 2.0), rel=1e-6)


def test_the_part_of_the_oldest_block_that_counts_is_the_part_within_the_day() -> None:
    """A day whose first block alone is busy: its share shrinks by one tick with each tick."""
    hour, day = blank()
    for tick in range(DAY_TICKS + BLOCK_TICKS):
        value = 1.0 if tick < BLOCK_TICKS else 0.0
        hour.put(tick, value, value, 10.0)
        day.put(tick, value, value, 10.0)
        found = day.statistics(tick, hour)
        if tick >= DAY_TICKS:
            assert found is not None
            busy = BLOCK_TICKS - 1 - tick % BLOCK_TICKS
            assert found.mean == pytest.approx(busy / DAY_TICKS, rel=1e-4)


def test_a_day_is_empty_until_a_tick_has_a_code() -> None:
    for code in range(ZERO, CODES):
        _, day = blank()
        assert day.is_empty()
        day.put(1, CPU.value(code), CPU.value(code), 10.0)
        assert not day.is_empty()


@pytest.mark.parametrize("lost", ["codes", "weights"])
def test_a_day_whose_codes_or_blocks_were_lost_with_the_power_has_no_statistics(lost: str) -> None:
    memory = memoryview(bytearray(SIZE))
    series_memory.clear(memory, memoryview(bytearray(4 * MINUTE)).cast("f"))
    floats, covered, codes = series_memory.split(memory)
    day = DayWindow(floats, codes, CPU)
    for tick in range(1, 6):
        day.put(tick, 1.0, 1.0, 10.0)
    if lost == "codes":
        codes[:] = bytes(len(codes))
    else:
        fill(floats[WEIGHTS:PEAKS], 0, BLOCKS, 0.0)
    again = DayWindow(floats, codes, CPU)
    again.load(5)
    assert again.statistics(5, HourWindow(floats, covered)) is None


def test_a_peak_is_remembered_for_a_day_and_at_most_a_block_longer() -> None:
    hour, day = blank()
    peaks = {}
    for tick in range(DAY_TICKS + 2 * BLOCK_TICKS):
        value = 8.0 if tick == 0 else 0.5
        hour.put(tick, value, value, 10.0)
        day.put(tick, value, value, 10.0)
        found = day.statistics(tick, hour)
        assert found is not None
        peaks[tick] = found.max
    assert peaks[DAY_TICKS - 1] == 8.0
    assert peaks[DAY_TICKS + BLOCK_TICKS] == 0.5


def test_percentiles_are_those_of_all_codes_after_any_changes() -> None:
    """Against a sorted list of the codes of a whole day, before and after a restart."""
    chance = random.Random(11)
    hour, day = blank()
    kept: list[int] = []
    for tick in range(DAY_TICKS + 3000):
        # It rises and falls by turns, and every tenth tick has no data.
        level = 1 + (tick // 1500 % 3) * 300
        value = CPU.value(level + chance.randrange(300)) if tick % 10 else UNKNOWN
        hour.put(tick, value, value, 10.0 if value >= 0 else 0.0)
        day.put(tick, value, value, 10.0 if value >= 0 else 0.0)
        kept.append(ABSENT if value < 0 else CPU.code(value))
        if tick % 499 == 0 and tick > 500:
            codes = sorted(filter(None, kept[-DAY_TICKS:]))
            found = day.statistics(tick, hour)
            assert found is not None
            assert found.percentile == min(CPU.value(codes[rank(len(codes)) - 1]), found.max)
    wanted = [Percentile(Decimal(each)) for each in ("0.01", "50", "99.9", "100")]
    codes = sorted(filter(None, kept[-DAY_TICKS:]))
    assert day.percentiles(tick, hour, wanted) == [
        CPU.value(codes[each.rank(len(codes)) - 1]) for each in wanted
    ]


def test_the_cursor_follows_the_95th_in_both_directions() -> None:
    hour, day = blank()
    for tick in range(3 * DAY_TICKS):
        value = (0.01, 16.0, 0.01)[tick // DAY_TICKS]
        hour.put(tick, value, value, 10.0)
        day.put(tick, value, value, 10.0)
        if tick % DAY_TICKS == DAY_TICKS - 1:
            found = day.statistics(tick, hour)
            assert found is not None
            assert abs(found.percentile / value - 1) < 0.0073
