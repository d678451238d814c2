"""Windows of details: statistics of ticks, gaps, days, and what a restart keeps."""

import random

import pytest

from kedge.metrics.detail_windows import (
    NONE_KNOWN,
    SIZE,
    DetailWindows,
    clear,
    known_details,
    numbers,
)
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.statistics import rank
from kedge.metrics.windows import DETAILS, STATISTICS, WINDOWS

RECEIVE = [each.name for each in DETAILS].index("network-receive")
FIRST = 190_000_000
HOUR, DAY = 360, 8640


def memory() -> memoryview:
    return memoryview(bytearray(SIZE))


def received(amount: float) -> list[float]:
    values = list(NONE_KNOWN)
    values[RECEIVE] = amount
    return values


def shown(windows: DetailWindows, number: int = RECEIVE) -> dict[str, dict[str, float]]:
    row = iter(numbers(windows.row())[number])
    return {window: {each: next(row) for each in STATISTICS} for window in WINDOWS}


def test_of_details_that_are_always_0_only_the_head_is_written() -> None:
    held = memory()
    windows = DetailWindows(held)
    for tick in range(2 * HOUR):
        windows.put(FIRST + tick, [0.0] * len(DETAILS))
    assert known_details(windows.row()) == (1 << len(DETAILS)) - 1
    # The pages behind it take no room as long as nobody touches them.
    head = 2 * (4 + 2 * (len(DETAILS) + 1))
    assert not any(held[head:])


def test_details_that_are_rarely_0_are_side_by_side() -> None:
    held = memory()
    windows = DetailWindows(held)
    often = ("cpu-pressure-some", "page-faults", "network-receive", "disk-write")
    windows.put(FIRST, [5.0 if each.name in often else 0.0 for each in DETAILS])
    written = [at for at, each in enumerate(held) if each]
    assert max(written) < SIZE // 2


def test_windows_say_what_the_values_of_ticks_say() -> None:
    chance, windows = random.Random(3), DetailWindows(memory())
    values = [chance.uniform(10, 100_000) for _ in range(2 * DAY)]
    for tick, each in enumerate(values):
        windows.put(FIRST + tick, received(each))
    found = shown(windows)
    for window, ticks in zip(WINDOWS, (1, 6, HOUR), strict=False):
        last = sorted(values[-ticks:])
        assert found[window]["mean"] == pytest.approx(sum(last) / ticks, rel=0.001)
        assert found[window]["max"] == pytest.approx(last[-1], rel=0.001)
        assert found[window]["95th"] == pytest.approx(last[rank(ticks) - 1], rel=0.001)
    day = values[-DAY:]
    assert found["1d"]["mean"] == pytest.approx(sum(day) / DAY, rel=0.01)
    assert found["1d"]["max"] == pytest.approx(max(day), rel=0.001)
    assert found["1d"]["mean"] < found["1d"]["95th"] < found["1d"]["max"]


def test_the_first_hour_of_a_day_is_exact() -> None:
    windows = DetailWindows(memory())
    for tick in range(200):
        windows.put(FIRST + tick, received(float(tick)))
    found = shown(windows)
    assert found["1d"] == found["1h"]
    assert found["1h"]["95th"] == pytest.approx(189, rel=0.001)


def test_a_peak_of_yesterday_is_forgotten() -> None:
    windows = DetailWindows(memory())
    windows.put(FIRST, received(1e9))
    for tick in range(1, DAY + 31):
        windows.put(FIRST + tick, received(5.0))
        if tick == DAY - 61:
            assert shown(windows)["1d"]["max"] == pytest.approx(1e9, rel=0.001)
    assert shown(windows)["1d"]["max"] == pytest.approx(5, rel=0.001)


def test_zero_is_known_and_is_never_written() -> None:
    kept = memory()
    windows = DetailWindows(kept)
    for tick in range(400):
        windows.put(FIRST + tick, received(0.0))
    assert known_details(windows.row()) == 1 << RECEIVE
    assert shown(windows)["1d"] == {"mean": 0.0, "max": 0.0, "95th": 0.0}
    assert set(shown(windows, 0)["1d"].values()) == {UNKNOWN}
    assert len(kept.tobytes().strip(b"\0")) < SIZE / 2
    assert sum(map(bool, kept)) < 16


def test_ticks_without_data_do_not_count() -> None:
    windows = DetailWindows(memory())
    windows.put(FIRST, received(10.0))
    windows.put(FIRST + 1, NONE_KNOWN)
    assert shown(windows)["10s"]["mean"] == UNKNOWN
    windows.put(FIRST + 4, received(20.0))
    found = shown(windows)
    assert found["10s"]["mean"] == pytest.approx(20, rel=0.001)
    assert found["1m"]["mean"] == pytest.approx(15, rel=0.001)


@pytest.mark.parametrize("gap", [1, 3, 29, 40, 200, 400])
def test_a_detail_that_was_0_before_a_gap_does_not_count_the_gap(gap: int) -> None:
    windows, expected = DetailWindows(memory()), DetailWindows(memory())
    begin = FIRST + 100 + gap
    for tick in (*range(FIRST, FIRST + 100), *range(begin, begin + 50)):
        # The last ticks alone are more than 0; the other one was never 0.
        late = tick >= begin + 40
        windows.put(tick, received(7.0 if late else 0.0))
        expected.put(tick, received(7.0 if late else 2.0**-20))
    found, wanted = shown(windows), shown(expected)
    assert found["1h"] == pytest.approx(wanted["1h"], rel=0.001, abs=1e-5)
    assert found["1d"] == pytest.approx(wanted["1d"], rel=0.001, abs=1e-5)
    again = DetailWindows(windows._shorts.cast("B"))
    assert again.row() == windows.row()


def test_a_gap_writes_one_series_and_a_restart_reads_no_more() -> None:
    kept = memory()
    windows = DetailWindows(kept)
    for tick in (*range(200), *range(300, 500)):
        windows.put(FIRST + tick, [0.0] * len(DETAILS))
    written = [at for at, each in enumerate(kept) if each]
    series = SIZE // (len(DETAILS) + 1)
    assert written
    assert not [at for at in written if 100 <= at < SIZE - series]
    # What is behind the head of series that were never written is not looked at.
    kept[100 : SIZE - series] = b"\x01" * (SIZE - series - 100)
    again = DetailWindows(kept)
    assert known_details(again.row()) == (1 << len(DETAILS)) - 1
    assert set(shown(again)["1d"].values()) == {0.0}
    again.put(FIRST + 500, received(10.0))
    assert shown(again)["1h"]["mean"] == pytest.approx(10 / 261, rel=0.01)


def test_series_without_anything_but_0_left_count_as_never_written_after_a_restart() -> None:
    kept = memory()
    windows = DetailWindows(kept)
    windows.put(FIRST, received(5.0))
    for tick in range(1, DAY + 60):
        windows.put(FIRST + tick, received(0.0))
    head = kept[4:8].tobytes()
    DetailWindows(kept)
    assert int.from_bytes(head, "little") == 1 << RECEIVE
    assert not any(kept[4:8])


def test_a_gap_of_days_leaves_no_old_values() -> None:
    windows = DetailWindows(memory())
    for tick in range(100):
        windows.put(FIRST + tick, received(1000.0))
    windows.put(FIRST + 3 * DAY, received(2.0))
    assert {round(each) for window in shown(windows).values() for each in window.values()} == {2}


def test_a_restarted_process_continues_with_the_memory() -> None:
    kept = memory()
    windows = DetailWindows(kept)
    for tick in range(1000):
        windows.put(FIRST + tick, received(float(tick % 7)))
    row = windows.row()
    assert DetailWindows(kept).row() == row
    assert DetailWindows(kept).tick == FIRST + 999


def test_a_clock_that_was_set_back_begins_anew() -> None:
    windows = DetailWindows(memory())
    windows.put(FIRST, received(7.0))
    windows.move(FIRST)
    assert windows.tick == FIRST
    windows.move(FIRST - 10)
    windows.put(FIRST - 9, received(3.0))
    assert shown(windows)["1h"]["max"] == pytest.approx(3, rel=0.001)


def test_cleared_memory_has_nothing() -> None:
    kept = memory()
    DetailWindows(kept).put(FIRST, received(7.0))
    clear(kept.cast("H"))
    assert not any(kept)
