"""The windows of something that is read now and then."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.metrics.frame import index
from kedge.metrics.scrape.interval_track import LONGEST, IntervalTrack
from kedge.metrics.scrape.page import TimedReading
from kedge.metrics.window_file import TrackKey, WindowFile

START = 1_900_000_000
KEY = TrackKey("uid", "main")


def course(store: WindowFile, first: TimedReading) -> IntervalTrack:
    made = IntervalTrack(store.get(KEY) or store.claim(KEY), first)
    made.read(first)
    return made


def reading(second: float, used: float, memory: float = 1e8, started: float = 0.0) -> TimedReading:
    """`used` is in core-seconds."""
    return TimedReading(START + second, round(used * 1e9), memory, started)


def value(of: IntervalTrack, window: str, statistic: str, resource: str = "cpu") -> float:
    return of.row()[index(window, statistic, resource)]


@pytest.fixture
def store(tmp_path: Path) -> WindowFile:
    return WindowFile(tmp_path / "usage", "")


def test_between_two_readings_the_average_stands_for_every_second(store: WindowFile) -> None:
    made = course(store, reading(0, 100.0))
    assert not made.has_data
    made.read(reading(20, 110.0, memory=2e8))
    made.close(made.ready)
    assert made.has_data
    assert made.tick == START // 10 + 2
    for statistic in ("mean", "max", "95th"):
        assert value(made, "10s", statistic) == 0.5
        assert value(made, "1d", statistic, "memory") == 2e8


def test_a_mean_is_exact_wherever_the_readings_fall(store: WindowFile) -> None:
    made = course(store, reading(3.5, 0.0))
    for second, used in ((14.25, 2.0), (21.0, 2.0), (33.75, 9.0), (61.5, 10.0), (70.0, 12.0)):
        made.read(reading(second, used))
        made.close(made.ready)
    # From 3.5 to 70 seconds 12 core-seconds were used, the first 6.5 of them before the window.
    outside = 2.0 * 6.5 / 10.75
    assert value(made, "1m", "mean") == pytest.approx((12.0 - outside) / 60, rel=1e-3)
    assert value(made, "1h", "mean") == pytest.approx(12.0 / 66.5, rel=1e-3)
    assert value(made, "1h", "max") == pytest.approx(7.0 / 12.75)


def test_a_container_that_was_just_started_counts_from_its_start(store: WindowFile) -> None:
    made = course(store, reading(25, 5.0, started=START + 5))
    made.close(made.ready)
    assert made.since == START + 5
    assert value(made, "1m", "mean") == pytest.approx(0.25)


def test_after_a_restart_what_was_before_stays(store: WindowFile) -> None:
    made = course(store, reading(0, 1000.0, started=START - 5000))
    made.read(reading(20, 1010.0, started=START - 5000))
    made.read(reading(40, 4.0, started=START + 32))
    made.close(made.ready)
    assert value(made, "10s", "max") == pytest.approx(0.5)
    assert value(made, "1m", "max") == pytest.approx(0.5)
    # Of the time between the last reading and the new start nothing is known.
    assert value(made, "1m", "mean") == pytest.approx((10.0 + 4.0) / 28)


def test_a_counter_that_falls_says_nothing_of_that_time(store: WindowFile) -> None:
    made = course(store, reading(0, 50.0))
    made.read(reading(10, 60.0))
    made.read(reading(20, 3.0))
    made.close(made.ready)
    assert value(made, "10s", "mean") == -1
    assert value(made, "10s", "mean", "memory") == 1e8
    assert value(made, "1m", "mean") == 1.0


def test_of_a_long_silence_nothing_is_said(store: WindowFile) -> None:
    made = course(store, reading(0, 0.0))
    made.read(reading(10, 10.0))
    made.read(reading(10 + LONGEST + 10, 1000.0))
    made.read(reading(10 + LONGEST + 20, 1002.0))
    made.close(made.ready)
    assert value(made, "1h", "max") == 1.0
    assert value(made, "1h", "mean") == pytest.approx(12.0 / 20)


def test_a_reading_that_was_taken_already_changes_nothing(store: WindowFile) -> None:
    made = course(store, reading(0, 0.0))
    for _ in range(3):
        made.read(reading(10, 5.0))
    made.close(made.ready)
    before = made.row()
    made.read(reading(9, 100.0))
    made.close(made.ready)
    assert made.row() == before


def test_a_clock_that_is_set_back_costs_no_history(store: WindowFile) -> None:
    made = course(store, reading(0, 0.0))
    made.read(reading(100, 200.0))
    made.close(made.ready)
    made.read(reading(-500, 201.0))
    made.read(reading(-480, 202.0))
    made.close(made.ready)
    assert value(made, "10s", "mean") == pytest.approx(0.05)
    assert value(made, "1h", "max") == 2.0


def test_31_what_was_seen_outlives_the_collector(store: WindowFile, tmp_path: Path) -> None:
    made = course(store, reading(0, 0.0))
    for second in range(15, 3600, 15):
        made.read(reading(second, second * 0.25))
        made.close(made.ready)
    before = made.row()
    store.close()
    again = course(WindowFile(tmp_path / "usage", ""), reading(3600, 900.0))
    again.close(again.ready)
    for statistic in ("mean", "max", "95th"):
        at = index("1d", statistic, "cpu")
        assert again.row()[at] == pytest.approx(before[at], rel=0.01)
    assert again.since == START


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(10, 40), st.floats(0, 4)), min_size=3, max_size=40))
def test_windows_are_what_all_averages_say(steps: list[tuple[int, float]]) -> None:
    """Against brute force: readings on whole seconds, statistics over every second's average."""
    slot_store = WindowFile(Path("/nonexistent/usage"), "")
    made = course(slot_store, reading(0, 0.0))
    seconds: list[float] = []
    used = 0.0
    for length, cores in steps:
        seconds += [cores] * length
        used += cores * length
        made.read(reading(len(seconds), used))
        made.close(made.ready)
    whole = seconds[: len(seconds) // 10 * 10]
    for window, length in (("10s", 10), ("1m", 60)):
        values = sorted(whole[-length:])
        rank = math.ceil(0.95 * len(values))
        assert value(made, window, "max") == pytest.approx(values[-1], rel=1e-4, abs=1e-6)
        assert value(made, window, "95th") == pytest.approx(values[rank - 1], rel=1e-4, abs=1e-6)
        mean = sum(values) / len(values)
        assert value(made, window, "mean") == pytest.approx(mean, rel=1e-3, abs=1e-5)
