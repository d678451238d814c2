"""Codes of ten bits against a list of them."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.metrics.scale import ABSENT, CODES
from kedge.metrics.series_memory import CODE_BYTES, DAY_TICKS, DayCodes


def blank() -> DayCodes:
    return DayCodes(memoryview(bytearray(CODE_BYTES)))


def test_ten_bits_are_enough_for_every_code() -> None:
    assert CODES == 1 << 10
    assert CODE_BYTES * 8 == DAY_TICKS * 10


def test_codes_are_those_that_were_put() -> None:
    chance, codes = random.Random(2), blank()
    expected = [chance.randrange(CODES) for _ in range(DAY_TICKS)]
    for tick, code in enumerate(expected, 3 * DAY_TICKS):
        assert codes.put(tick, code) == ABSENT
    assert codes.all().tolist() == expected
    assert [codes[tick] for tick in range(DAY_TICKS)] == expected
    assert codes.put(DAY_TICKS + 7, 5) == expected[7]
    assert [codes[6], codes[7], codes[8]] == [expected[6], 5, expected[8]]


def test_they_are_empty_until_one_is_put() -> None:
    for code in (1, 0xFF, 0x100, CODES - 1):
        for tick in (0, 1, 2, 3, DAY_TICKS - 1):
            codes = blank()
            assert codes.is_empty()
            codes.put(tick, code)
            assert not codes.is_empty()


@given(
    st.integers(0, 3 * DAY_TICKS), st.sampled_from([0, 1, 2, 3, 4, 5, 29, 700, 8638, 8639, 9000])
)
@settings(max_examples=60, deadline=None)
def test_dropped_ticks_and_no_others_have_no_code(first: int, more: int) -> None:
    codes = DayCodes(memoryview(bytearray(b"\xff" * CODE_BYTES)))
    codes.drop(first, first + more)
    expected = [CODES - 1] * DAY_TICKS
    for tick in range(first, first + more + 1):
        expected[tick % DAY_TICKS] = ABSENT
    assert codes.all().tolist() == expected
