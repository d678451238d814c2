"""The memory of a series: damage is detected, rings are filled across their end."""

from array import array

import pytest

from kedge.metrics import series_memory
from kedge.metrics.scale import CPU
from kedge.metrics.series import Series
from kedge.metrics.series_memory import SIZE, fill, is_plausible
from kedge.metrics.windows import MINUTE


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\x7f", b"\x00\x00\xc0\xff", b"\x00\x00\x00\xc1"])
def test_memory_that_no_series_has_left_is_told_apart(damage: bytes) -> None:
    memory = memoryview(bytearray(SIZE))
    minute = memoryview(bytearray(4 * MINUTE)).cast("f")
    series_memory.clear(memory, minute)
    series = Series(memory, minute, CPU, 0)
    series.add(1, 1.0)
    series.close(1, 1.0, 1.0)
    assert is_plausible(memory, minute)
    memory[400:404] = damage
    assert not is_plausible(memory, minute)
    memory[400:404] = bytes(4)
    assert is_plausible(memory, minute)
    minute.cast("B")[40:44] = damage
    assert not is_plausible(memory, minute)


@pytest.mark.parametrize(
    ("first", "last", "filled"),
    [
        (2, 3, [2, 3]),
        (8, 11, [0, 1, 8, 9]),
        (19, 20, [0, 9]),
        (5, 14, [*range(10)]),
        (0, 99, [*range(10)]),
    ],
)
def test_fill_writes_both_ends_and_wraps_around(first: int, last: int, filled: list[int]) -> None:
    ring = memoryview(array("H", [7] * 10))
    fill(ring, first, last, 0)
    assert [at for at, value in enumerate(ring) if value == 0] == filled
