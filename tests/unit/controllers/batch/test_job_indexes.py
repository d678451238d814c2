"""Sets of indexes and how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.controllers.batch.job_indexes import Indexes

numbers = st.sets(st.integers(0, 60))


@pytest.mark.parametrize(
    ("text", "completions", "expected"),
    [
        ("", 5, ""),
        ("0,2-4", 9, "0,2-4"),
        ("0,1", 9, "0,1"),
        ("0,1,2", 9, "0-2"),
        ("0-9", 4, "0-3"),
        ("1,5,7-9", 5, "1"),
        ("1,x,3-y,4", 9, "1,4"),
    ],
)
def test_what_a_status_says_is_read_and_written(text: str, completions: int, expected: str) -> None:
    assert str(Indexes.parse(text, completions)) == expected


@given(numbers)
def test_what_was_written_is_read_the_same(some: set[int]) -> None:
    made = Indexes.of(some)
    assert Indexes.parse(str(made), 61) == made
    assert len(made) == len(some)


@given(numbers, numbers)
def test_they_behave_as_sets_do(some: set[int], others: set[int]) -> None:
    one, other = Indexes.of(some), Indexes.of(others)
    assert one | other == Indexes.of(some | others)
    assert one.common(other) == len(some & others)
    assert [number for number in range(61) if number in one] == sorted(some)
    assert list(one.absent(61)) == sorted(set(range(61)) - some)


@given(numbers, numbers)
def test_what_two_have_in_common_is_counted(some: set[int], others: set[int]) -> None:
    assert Indexes.of(some).common(Indexes.of(others)) == len(some & others)


def test_large_intervals_cost_no_more_than_small_ones() -> None:
    every = Indexes.parse("0-2147483646", 2**31 - 1)
    assert len(every) == every.common(every) == 2**31 - 1
    sparse = Indexes.of(range(0, 40_000, 2))
    assert every.common(sparse) == sparse.common(sparse) == 20_000
    assert str(Indexes.parse("9" * 5000, 5)) == ""
