"""The parameter `percentiles`, and percentiles of windows against sorted values."""

import random
from decimal import Decimal

import pytest

from kedge.metrics import series_memory
from kedge.metrics.percentiles import Percentile, parse
from kedge.metrics.scale import CPU
from kedge.metrics.series import Series
from kedge.metrics.series_memory import SIZE
from kedge.metrics.windows import MINUTE, WINDOWS


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("50,99", ["50th", "99th"]),
        ("99.9", ["99.9th"]),
        ("99.50", ["99.5th"]),
        ("100", ["100th"]),
        ("0.01", ["0.01th"]),
    ],
)
def test_percentiles_have_keys_that_clients_can_derive(text: str, keys: list[str]) -> None:
    assert [each.key for each in parse(text)] == keys


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-1", "101", "1e1", "NaN", "50,", "50,50", "50,50.0", "99.999"),
        *("1,2,3,4,5,6,7,8,9", "٥٠", "50 ", "9" * 100),
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="percentile"):
        parse(text)


@pytest.mark.parametrize(
    ("percent", "count", "rank"),
    [
        ("50", 10, 5),
        ("50", 1, 1),
        ("99", 100, 99),
        ("99.9", 100, 100),
        ("1", 10, 1),
        ("95", 20, 19),
    ],
)
def test_ranks_are_the_nearest(percent: str, count: int, rank: int) -> None:
    assert Percentile(Decimal(percent)).rank(count) == rank


def filled(ticks: int, seed: int) -> tuple[Series, list[float], list[float]]:
    """A series, the values of its seconds and the means of its ticks."""
    memory, minute = memoryview(bytearray(SIZE)), memoryview(bytearray(4 * MINUTE)).cast("f")
    series_memory.clear(memory, minute)
    series = Series(memory, minute, CPU, 1000)
    pick = random.Random(seed)
    seconds: list[float] = []
    means: list[float] = []
    for tick in range(1001, 1001 + ticks):
        values = [pick.expovariate(2.0) for _ in range(10)]
        for at, value in enumerate(values):
            series.add((tick - 1) * 10 + 1 + at, value)
        series.close_even(tick)
        seconds += values
        means.append(sum(values) / 10)
    return series, seconds, means


@pytest.mark.parametrize("ticks", [1, 30, 400, 2000])
def test_windows_have_any_percentile_of_the_same_values(ticks: int) -> None:
    series, seconds, means = filled(ticks, ticks)
    wanted = parse("1,50,95,99.9")
    for name, length in WINDOWS.items():
        known = seconds[-length:] if length <= 60 else means[-length // 10 :]
        expected = [each.of(sorted(known)) for each in wanted]
        found = series.percentiles(name, wanted)
        assert found == pytest.approx(expected, rel=0.01 if name == "1d" else 1e-5)
        window = series.window(name)
        assert window is not None
        assert found[2] == pytest.approx(window.percentile)


def test_an_empty_series_has_none() -> None:
    series, _, _ = filled(0, 0)
    assert series.percentiles("1d", parse("50")) == []
    assert series.percentiles("10s", parse("50")) == []
