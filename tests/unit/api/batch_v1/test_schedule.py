import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.batch_v1.schedule import Schedule, parse_schedule


def test_fields_list_what_is_due() -> None:
    schedule = parse_schedule("*/20 8-10,22 1 JAN,7-9/2 mon-fri")
    assert schedule.minutes == {0, 20, 40}
    assert schedule.hours == {8, 9, 10, 22}
    assert schedule.days == {1}
    assert schedule.months == {1, 7, 9}
    assert schedule.weekdays == {1, 2, 3, 4, 5}
    assert (schedule.any_day, schedule.any_weekday) == (False, False)


def test_a_star_leaves_a_day_open() -> None:
    schedule = parse_schedule("0 0 * * ?")
    assert (schedule.any_day, schedule.any_weekday) == (True, True)
    assert not parse_schedule("0 0 */2 * *").any_day


def test_a_step_after_a_single_number_runs_to_the_end() -> None:
    assert parse_schedule("50/5 * * * *").minutes == {50, 55}


def test_schedules_with_names() -> None:
    assert parse_schedule("@hourly") == parse_schedule("0 * * * *")
    assert parse_schedule("@weekly") == parse_schedule("0 0 * * 0")
    assert parse_schedule("@every 90s") == Schedule(every=90 * 10**9)
    assert parse_schedule("@every 100ms") == Schedule(every=10**9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@never", "unrecognized descriptor: @never"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
    ],
)
def test_what_is_no_schedule_is_told_in_upstreams_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        parse_schedule(text)


minutes = st.integers(0, 59)


@given(st.lists(minutes, min_size=1))
def test_a_list_of_numbers_is_what_it_says(numbers: list[int]) -> None:
    text = ",".join(map(str, numbers))
    assert parse_schedule(f"{text} * * * *").minutes == set(numbers)
