"""The course of a quantity, compared with what was recorded."""

import random

import pytest

from kedge.metrics import series_memory
from kedge.metrics.scale import LogScale
from kedge.metrics.series import Series
from kedge.metrics.series_memory import BLOCK_TICKS, HOUR_TICKS, SIZE
from kedge.metrics.usage_history import UsageHistory, document
from kedge.metrics.windows import MINUTE, TICK_SECONDS


def test_every_tick_of_an_hour_and_every_block_of_a_day_is_there() -> None:
    memory = memoryview(bytearray(SIZE))
    minute = memoryview(bytearray(4 * MINUTE)).cast("f")
    series_memory.clear(memory, minute)
    first = 6_000_000 * BLOCK_TICKS
    series = Series(memory, minute, LogScale(1e-4, 1e4), first - 1)
    rnd = random.Random(1)
    means = {}
    for tick in range(first, first + 400):
        if tick % 97 == 0:
            series.close(tick, 0.0, 0.0)
            continue
        values = [rnd.uniform(0.1, 2) for _ in range(TICK_SECONDS)]
        for second, value in enumerate(values, (tick - 1) * TICK_SECONDS + 1):
            series.add(second, value)
        means[tick] = sum(values) / len(values)
        series.close(tick, means[tick], 10.0)
    last = first + 399
    found = series.histories(last * TICK_SECONDS)
    hour = found["1h"]
    assert hour.start == (last - HOUR_TICKS) * TICK_SECONDS
    expected = [means.get(tick, -1) for tick in range(last - HOUR_TICKS + 1, last + 1)]
    found_means = [-1 if each is None else each for each in hour.values["mean"]]
    assert found_means == pytest.approx(expected, rel=1e-6)
    day = found["1d"]
    blocks = last // BLOCK_TICKS
    assert day.start + 288 * day.step == ((blocks + 1) * BLOCK_TICKS - 1) * TICK_SECONDS
    own = [means[each] for each in means if each // BLOCK_TICKS == blocks - 1]
    assert day.values["mean"][-2] == pytest.approx(sum(own) / len(own), rel=1e-5)
    assert day.values["95th"][-2] == pytest.approx(sorted(own)[28], rel=0.02)
    assert day.values["mean"][:200] == (None,) * 200


def test_it_is_served_as_numbers() -> None:
    history = {"1m": {"cpu": UsageHistory(60, 1, {"mean": [0.123456, None]})}}
    history["1m"]["memory"] = UsageHistory(60, 1, {"mean": [1024.4, None]})
    assert document(history) == {
        "1m": {
            "starttime": "1970-01-01T00:01:00Z",
            "step": "1s",
            "cpu": {"mean": [0.1235, None]},
            "memory": {"mean": [1024, None]},
        }
    }
