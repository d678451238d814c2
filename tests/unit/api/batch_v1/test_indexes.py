import re

import pytest

from kedge.api.batch_v1 import indexes


def test_intervals_are_counted() -> None:
    found = indexes.parse("0,2-4,9", 10)
    assert found == [range(0, 1), range(2, 5), range(9, 10)]
    assert indexes.count(found) == 5
    assert indexes.parse("", 10) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have '
            "at most two parts separated by '-'",
        ),
        ("a", 'cannot convert string to integer for index: "a"'),
        ("1,", 'cannot convert string to integer for index: ""'),
        ("10", 'too large index: "10"'),
        ("3-2", "non-increasing order, previous: 3, current: 2"),
        ("1-3,3", "non-increasing order, previous: 3, current: 3"),
    ],
)
def test_indexes_rise_and_stay_below_the_number_of_completions(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        indexes.parse(text, 10)


def test_an_index_has_not_both_failed_and_succeeded() -> None:
    assert indexes.overlap("0,3-5", "1-2,5-6", 10) == 5
    assert indexes.overlap("0,3-5", "1-2,6", 10) is None
    assert indexes.overlap("x,3", "3,y", 10) == 3
