"""Windows against a brute-force reading of what they are: every value kept, everything sorted."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kedge.metrics import series_memory
from kedge.metrics.scale import CPU
from kedge.metrics.series import Series
from kedge.metrics.series_memory import BLOCK_TICKS, DAY_TICKS, SIZE
from kedge.metrics.statistics import Statistics
from kedge.metrics.windows import MINUTE, WINDOWS

NAMES = tuple(WINDOWS)


class Brute:
    """Remembers everything."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}
        self.tick = 0

    def window(self, name: str) -> Statistics | None:
        first = self.tick * 10 - WINDOWS[name]
        known = {s: v for s, v in self.values.items() if first < s <= self.tick * 10}
        if not known:
            return None
        values = list(known.values())
        ranked = sorted(values if name in ("10s", "1m") else means(known))
        rank = math.ceil(len(ranked) * 95 / 100)
        return Statistics(sum(values) / len(values), max(values), ranked[rank - 1])


def means(known: dict[int, float]) -> list[float]:
    """Those of each tick of which something is known."""
    ticks: dict[int, list[float]] = {}
    for second, value in known.items():
        ticks.setdefault((second + 9) // 10, []).append(value)
    return [sum(values) / len(values) for values in ticks.values()]


def blank() -> "tuple[memoryview, memoryview[float]]":
    """The memory of a series of which nothing is known, and its minute."""
    memory = memoryview(bytearray(SIZE))
    minute = memoryview(bytearray(4 * MINUTE)).cast("f")
    series_memory.clear(memory, minute)
    return memory, minute


class Both:
    """The real thing and the brute one, told the same."""

    def __init__(self) -> None:
        self.memory, self.minute = blank()
        self.series = Series(self.memory, self.minute, CPU, 0)
        self.brute = Brute()

    def tell(self, tick: int, values: dict[int, float]) -> None:
        """One tick: values by their second within it, one to ten."""
        for second in range(1, 11):
            at = tick * 10 - 10 + second
            if second in values:
                self.series.add(at, values[second])
                self.brute.values[at] = values[second]
            else:
                self.series.skip(at)
        mean = sum(values.values()) / len(values) if values else 0.0
        self.series.close(tick, mean, float(len(values)))
        self.brute.tick = tick

    def agree(self, percentile_of_day: float = 0.01) -> None:
        for name in NAMES:
            found, expected = self.series.window(name), self.brute.window(name)
            if expected is None:
                assert found is None, name
                continue
            assert found is not None, name
            assert found.max == pytest.approx(expected.max, rel=1e-6), name
            slack = 1e-5 if name != "1d" else 1e-3
            assert found.mean == pytest.approx(expected.mean, rel=slack, abs=1e-7), name
            slack = 1e-5 if name != "1d" else percentile_of_day
            least = 1e-4 if name == "1d" else 1e-7
            assert found.percentile == pytest.approx(expected.percentile, rel=slack, abs=least)


amounts = st.floats(min_value=0, max_value=64, allow_nan=False, width=32)
ticks = st.dictionaries(st.integers(1, 10), amounts, max_size=10)


@given(st.lists(st.tuples(st.integers(1, 40), ticks), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_windows_say_what_all_values_say(told: list[tuple[int, dict[int, float]]]) -> None:
    both = Both()
    tick = 0
    for step, values in told:
        tick += step
        both.tell(tick, values)
        both.agree()


SHAPES: dict[str, Callable[[random.Random, int], float]] = {
    "idle": lambda chance, tick: 0.001 * chance.random(),
    "diurnal": lambda chance, tick: 0.5 + 0.4 * math.sin(tick / 1375) + 0.05 * chance.random(),
    "rare burst": lambda chance, tick: 6.0 if chance.random() < 0.0005 else 0.05,
    "cron": lambda chance, tick: 1.5 if tick % 360 < 12 else 0.01,
    "pegged": lambda chance, tick: 2.0,
    "walk": lambda chance, tick: abs(math.sin(tick * 0.37) * math.sin(tick * 0.013)) + 0.01,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_day_and_more_of_any_shape_is_within_one_percent(shape: str) -> None:
    chance = random.Random(7)
    both = Both()
    for tick in range(1, 9000):
        gap = 3000 < tick < 3060
        seconds = () if gap else range(1, 11)
        both.tell(tick, {second: SHAPES[shape](chance, tick) for second in seconds})
    # The oldest five minutes of a day count in part, so a mean may be off by a little of that.
    both.agree()


def test_what_lies_in_memory_is_all_there_is() -> None:
    both = Both()
    chance = random.Random(3)
    for tick in range(1, 700):
        both.tell(tick, {second: chance.random() for second in range(1, 11)})
    again = Series(both.memory, both.minute, CPU, 699)
    for name in NAMES:
        found, expected = again.window(name), both.series.window(name)
        assert found == pytest.approx(expected)
    both.series = again
    both.tell(700, {1: 9.0})
    both.agree()


def test_series_that_was_silent_for_more_than_a_day_knows_nothing_of_before() -> None:
    both = Both()
    both.tell(1, {1: 5.0})
    both.tell(20_000, {1: 1.0})
    both.agree()
    assert both.series.window("1d") == pytest.approx((1.0, 1.0, 1.0), rel=0.01)


@given(st.lists(st.sampled_from([1, 5, 29, 30, 31, 359, 360, 700, 8610, 8640]), max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_long_silence_is_as_many_ticks_of_silence(steps: list[int]) -> None:
    at_once, tick_by_tick = (Series(*blank(), CPU, 0) for _ in range(2))
    tick = 0
    for number, step in enumerate(steps):
        for missed in range(tick + 1, tick + step):
            for second in range(missed * 10 - 9, missed * 10 + 1):
                tick_by_tick.skip(second)
            tick_by_tick.close(missed, 0.0, 0.0)
        tick += step
        for each in (at_once, tick_by_tick):
            for second in range(tick * 10 - 9, tick * 10 + 1):
                each.add(second, number + 0.5)
            each.close(tick, number + 0.25, 10.0)
        assert at_once.tick == tick_by_tick.tick == tick
        for name in NAMES:
            assert at_once.window(name) == pytest.approx(tick_by_tick.window(name)), name


@pytest.mark.parametrize("gap", [1, 2, 5, 6, 7, 29, 30, 31, 32, 359, 400])
def test_a_gap_after_a_full_hour_hides_the_ticks_of_an_hour_ago(gap: int) -> None:
    both, chance = Both(), random.Random(gap)
    for tick in range(1, 400):
        both.tell(tick, {second: 1.0 + chance.random() for second in range(1, 11)})
    for tick in range(400 + gap, 407 + gap):
        both.tell(tick, {second: chance.random() for second in range(1, 10)})
        both.agree()


@pytest.mark.parametrize("before", range(28, 32))
@pytest.mark.parametrize("gap", [60, 61, 89, 90, 91])
def test_a_gap_after_a_full_day_hides_the_peaks_of_a_day_ago(before: int, gap: int) -> None:
    series = Series(*blank(), CPU, 0)

    def close(tick: int, value: float) -> None:
        for second in range(tick * 10 - 9, tick * 10 + 1):
            series.add(second, value)
        series.close_even(tick)

    last = DAY_TICKS + before
    for tick in range(1, last + 1):
        close(tick, 9.0 if tick <= 58 else 1.0)
    close(last + gap, 1.0)
    for tick in range(last + gap + 1, last + gap + BLOCK_TICKS):
        close(tick, 1.0)
        found = series.window("1d")
        assert found is not None
        assert found.max == 1.0
        assert found.mean == pytest.approx(1.0, rel=1e-6)


def test_a_tick_without_covered_time_or_without_values_has_no_data() -> None:
    series = Series(*blank(), CPU, 0)
    for second in range(1, 11):
        series.add(second, 0.5)
    series.close(1, 0.5, 0.0)
    assert [series.window(name) for name in NAMES] == [None] * 4
    series.close(2, 0.5, 10.0)
    assert [series.window(name) for name in NAMES] == [None] * 4
    assert series.tick == 2


def test_an_even_tick_has_the_mean_of_its_known_values() -> None:
    series = Series(*blank(), CPU, 0)
    for second in range(1, 10):
        series.add(second, float(second))
    series.close_even(1)
    assert [series.window(name) for name in ("10s", "1m")] == [(5.0, 9.0, 9.0)] * 2
    assert [series.window(name) for name in ("1h", "1d")] == [(5.0, 9.0, 5.0)] * 2
    for second in range(11, 15):
        series.add(second, 0.5)
    series.close_even(2)
    hour = series.window("1h")
    assert hour is not None
    assert hour.mean == pytest.approx((9 * 5.0 + 4 * 0.5) / 13)


def test_an_even_tick_without_values_has_no_data() -> None:
    series = Series(*blank(), CPU, 0)
    series.add(1, 3.0)
    series.close_even(1)
    series.close_even(2)
    assert series.tick == 2
    assert series.window("10s") is None
    assert [series.window(name) for name in ("1m", "1h")] == [(3.0, 3.0, 3.0)] * 2
    for tick in range(3, 362):
        for second in range(tick * 10 - 9, tick * 10 + 1):
            series.skip(second)
        series.close_even(tick)
    assert [series.window(name) for name in ("1m", "1h")] == [None, None]


def test_a_minute_with_one_second_missing_ranks_the_others() -> None:
    both = Both()
    for tick in range(1, 7):
        seconds = range(1, 10) if tick == 3 else range(1, 11)
        both.tell(tick, {second: float(tick * 10 + second) for second in seconds})
    both.agree()


def test_one_value_is_mean_maximum_and_95th_of_all_windows() -> None:
    both = Both()
    both.tell(700, {4: 0.3})
    windows = [both.series.window(name) for name in NAMES]
    assert windows == [pytest.approx((0.3, 0.3, 0.3), rel=1e-6)] * 4


def test_95th_of_a_day_is_never_above_its_maximum() -> None:
    both = Both()
    for tick in range(1, 800):
        both.tell(tick, {1: 0.0123})
    found = both.series.window("1d")
    assert found is not None
    assert found.percentile <= found.max


PAGE = 4096


@settings(max_examples=40, deadline=None)
@given(st.integers(0, PAGE - 1), st.lists(st.booleans(), min_size=8, max_size=8), st.booleans())
@example(1086, [False, True, *[False] * 6], False)
def test_pages_of_two_moments_never_say_more_than_there_was(
    offset: int, newer: list[bool], began: bool
) -> None:
    both = Both()
    for tick in range(1, 31 if began else 1):
        both.tell(tick, {1: 0.5, 2: 0.25})
    older = bytes(both.memory)
    for tick in range(31, 63):
        both.tell(tick, {1: 1.0, 2: 0.5})
    for number, is_newer in enumerate(newer):
        page = slice(max(0, number * PAGE - offset), (number + 1) * PAGE - offset)
        if not is_newer:
            both.memory[page] = older[page]
    series = Series(both.memory, both.minute, CPU, 62)
    for tick in range(63, 440):
        for second in range(tick * 10 - 9, tick * 10 + 1):
            series.add(second, 0.125)
        series.close(tick, 0.125, 10.0)
        if tick in (63, 64, 90, 120, 421, 439):
            shown = [series.window(name) for name in NAMES]
            assert all(0 <= each.mean <= each.max <= 1.0 for each in shown if each is not None)
            assert all(0 <= each.percentile <= each.max for each in shown if each is not None)
    assert series.window("1h") == pytest.approx((0.125, 0.125, 0.125))
