"""One measured thing: from counters to windows, over restarts, resets and jumps of the clock."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.metrics.frame import index
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.track import Track, UsageReading
from kedge.metrics.window_file import TrackKey, WindowFile

MB = 1 << 20


class Life:
    """A track, told second by second."""

    def __init__(self, path: Path, *, tick: int = 0, boot: str = "b") -> None:
        store = WindowFile(path, boot)
        slot = store.get(TrackKey("u", "c")) or store.claim(TrackKey("u", "c"))
        self.track = Track(slot, tick, same_boot=store.same_boot)

    def second(
        self, second: int, cpu: float, memory: int = MB, run: int = 1, late: float = 0.0
    ) -> None:
        reading = UsageReading(round(cpu * 1e9), memory)
        self.track.sample(second, 5000.0 + second + late, run, reading)
        if second % 10 == 0:
            self.track.close(second // 10)

    def shows(self, window: str, statistic: str, resource: str = "cpu") -> float:
        return round(self.track.row()[index(window, statistic, resource)], 4)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path / "usage")


def test_cpu_is_the_difference_of_counters_over_the_time_between(life: Life) -> None:
    for second in range(1, 21):
        life.second(second, cpu=100 + second * 0.25)
    assert [life.shows("10s", each) for each in ("mean", "max", "95th")] == [0.25, 0.25, 0.25]
    assert life.shows("10s", "mean", "memory") == MB


def test_a_reading_that_is_late_counts_for_the_time_it_covers(life: Life) -> None:
    for second in range(1, 11):
        late = 0.5 if second == 5 else 0.0
        life.second(second, cpu=(second + late) * 0.5, late=late)
    assert life.shows("10s", "max") == 0.5
    assert life.shows("10s", "mean") == 0.5


def test_seconds_that_were_missed_are_in_the_mean_but_have_no_values(life: Life) -> None:
    for second in (1, 2, 3, 7, 8, 9, 10):
        life.second(second, cpu=4.0 if second > 3 else 0.0)
    # Four core-seconds in nine seconds; the four that are one reading were one core on average.
    assert life.shows("10s", "mean") == round(4 / 9, 4)
    assert life.shows("10s", "max") == 1.0


def test_what_was_before_a_minute_ago_is_not_taken_for_now(life: Life) -> None:
    for second in range(1, 61):
        life.second(second, cpu=0.0, memory=100 * MB)
    for second in (65, 70):
        life.second(second, cpu=0.0, memory=MB)
    assert life.shows("10s", "max", "memory") == MB


@pytest.mark.parametrize("change", [{"cpu": 0.5}, {"cpu": 900.0, "run": 2}])
def test_a_container_that_was_started_again_has_no_cpu_for_that_second(
    life: Life, change: dict[str, float]
) -> None:
    """A counter that falls, or another start: no sample; the windows go on."""
    for second in range(1, 6):
        life.second(second, cpu=10.0 + second * 0.5)
    run = int(change.get("run", 1))
    for second in range(6, 11):
        life.second(second, cpu=change["cpu"] + (second - 6) * 0.5, run=run)
    assert life.shows("10s", "max") == 0.5
    assert life.shows("10s", "mean") == 0.5
    assert life.shows("1d", "max", "memory") == MB


def test_what_is_new_counts_from_its_start(life: Life) -> None:
    life.track.start_from(1, 5003.5)
    life.second(4, cpu=0.25)
    assert life.track.latest is not None
    assert life.track.latest.cores == 0.5


def test_a_moment_after_the_start_says_nothing_but_is_not_lost(life: Life) -> None:
    life.track.start_from(1, 5003.9)
    life.second(4, cpu=0.1)
    assert life.track.latest is not None
    assert life.track.latest.cores == UNKNOWN
    life.second(5, cpu=0.55)
    assert life.track.latest.cores == pytest.approx(0.5)


def test_one_reading_has_memory_and_no_cpu(life: Life) -> None:
    life.second(10, cpu=7.0)
    assert life.shows("10s", "mean") == UNKNOWN
    assert [life.shows(name, "95th", "memory") for name in ("10s", "1m", "1h", "1d")] == [MB] * 4


def test_memory_that_cannot_be_known_leaves_cpu_as_it_is(life: Life) -> None:
    for second in range(1, 11):
        life.second(second, cpu=second, memory=-1)
    assert life.shows("10s", "mean") == 1.0
    assert life.shows("10s", "mean", "memory") == UNKNOWN


def test_an_agent_that_dies_within_a_tick_loses_the_seconds_it_was_dead(tmp_path: Path) -> None:
    life = Life(tmp_path / "usage")
    for second in range(1, 16):
        life.second(second, cpu=second * 0.5, memory=MB if second < 14 else 3 * MB)
    again = Life(tmp_path / "usage")
    for second in (17, 18, 19, 20):
        again.second(second, cpu=second * 0.5)
    # Nothing is missing: the counter went on while nobody looked.
    assert again.shows("10s", "mean") == 0.5
    assert again.shows("10s", "max", "memory") == 3 * MB
    assert again.shows("1m", "mean") == 0.5
    assert again.track.since == 1


def test_a_second_in_the_midst_of_which_an_agent_dies_is_not_that_of_a_minute_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    life = Life(tmp_path / "usage")
    for second in range(1, 66):
        life.second(second, cpu=second * 0.5, memory=100 * MB if second == 6 else MB)
    with monkeypatch.context() as patched:
        patched.setattr(Track, "_cores", killed)
        with pytest.raises(KeyboardInterrupt):
            life.second(66, cpu=33.0)
    again = Life(tmp_path / "usage")
    assert again.track.second == 65
    for second in (68, 69, 70):
        again.second(second, cpu=second * 0.5)
    assert again.shows("10s", "max", "memory") == MB


def test_the_tick_in_which_an_agent_died_is_closed_by_the_next_one(tmp_path: Path) -> None:
    life = Life(tmp_path / "usage")
    for second in range(1, 16):
        life.second(second, cpu=second * 0.5)
    again = Life(tmp_path / "usage")
    again.track.settle(41)
    for second in range(41, 51):
        again.second(second, cpu=100 + second * 0.25)
    assert again.shows("10s", "mean") == 0.25
    # 4.5 core-seconds in the first tick, 2.5 in the five of the second, 2.25 in the last one.
    assert again.shows("1m", "mean") == round((4.5 + 2.5 + 2.25) / (9 + 5 + 9), 4)
    assert again.shows("1m", "max") == 0.5


def test_counters_of_another_start_of_the_machine_are_not_compared(tmp_path: Path) -> None:
    life = Life(tmp_path / "usage", boot="first")
    for second in range(1, 11):
        life.second(second, cpu=1.0)
    again = Life(tmp_path / "usage", boot="second")
    again.second(11, cpu=50.0)
    assert again.track.latest is not None
    assert again.track.latest.cores == UNKNOWN


def test_a_last_reading_that_was_lost_with_the_power_is_no_negative_use(tmp_path: Path) -> None:
    life = Life(tmp_path / "usage", boot="first")
    for second in range(1, 25):
        life.second(second, cpu=5.0)
    for second in (25, 26):
        life.second(second, cpu=second * 1.0, run=2)
    # The page of the readings was last written before that of the rest.
    columns = life.track.slot.columns
    columns.counter[0], columns.at[0] = 5 * 10**9, 5000.0 + 24
    again = Life(tmp_path / "usage", boot="second")
    again.track.settle(31)
    for second in range(31, 41):
        again.second(second, cpu=second * 0.25, run=2)
    # Nothing in nine seconds of the first tick and ten of the second, 2.25 in the last one.
    assert again.shows("1m", "mean") == round(2.25 / 28, 4)


def test_a_clock_that_is_set_back_takes_nothing_away(life: Life) -> None:
    for second in range(7201, 7801):
        life.second(second, cpu=second * 0.5)
    life.track.move(3601)
    for second in range(3601, 3611):
        life.second(second, cpu=3900 + (second - 3600) * 0.25, late=4200.0)
    assert life.shows("10s", "mean") == 0.25
    assert life.shows("1m", "max") == 0.25
    assert life.shows("1h", "max") == 0.5
    assert 0.49 < life.shows("1h", "mean") <= 0.5
    assert life.track.since == 3601


def test_a_clock_that_is_set_forward_leaves_a_gap(life: Life) -> None:
    for second in range(1, 11):
        life.second(second, cpu=second * 0.5)
    for second in range(7201, 7211):
        life.second(second, cpu=8000 + second * 0.25)
    assert life.shows("1h", "max") == 0.25
    assert life.shows("1d", "max") == 0.5


@given(st.lists(st.integers(1, 25), min_size=1, max_size=25), st.integers(0, 24))
@settings(max_examples=40, deadline=None)
def test_killing_the_agent_at_any_second_changes_no_window(steps: list[int], killed: int) -> None:
    """A law: what lies in the file is all there is, whenever somebody looks."""
    with tempfile.TemporaryDirectory() as place:
        lives = [Life(Path(place) / name) for name in ("one", "two")]
        second = 0
        for number, step in enumerate(steps):
            second += step
            if number == killed:
                lives[1] = Life(Path(place) / "two")
            for life in lives:
                life.track.settle(second)
                life.second(second, cpu=second * 0.125 * (1 + number % 2), memory=number * MB)
        tick = second // 10 + 1
        for life in lives:
            life.track.close(tick)
        assert lives[0].track.row() == lives[1].track.row()
