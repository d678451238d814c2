import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.durations import (
    SECOND,
    constant_age,
    format_duration,
    format_micro_time,
    format_time,
    human_age,
    moved,
    parse_duration,
    parse_time,
)

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("15s", 15 * SECOND),
        ("7m21s", 441 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1.5h", 5400 * SECOND),
        (".5s", SECOND // 2),
        ("-1.s", -SECOND),
        ("+100ms", SECOND // 10),
        ("2us3µs4μs5ns", 9005),
        ("0", 0),
        ("0.3333333333333333333333h", 1199999999999),
        ("-0", 0),
        ("1.s", SECOND),
        ("0.0000000009999999999s", 0),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_go_durations_are_read_exactly(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        (".s", 'time: invalid duration ".s"'),
        ("s", 'time: invalid duration "s"'),
        ("30", 'time: missing unit in duration "30"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1h 5m", 'time: unknown unit "h " in duration "1h 5m"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("-9223372036854775809ns", 'time: invalid duration "-9223372036854775809ns"'),
        ("00000000000000000001ns", 'time: invalid duration "00000000000000000001ns"'),
        ('1"', 'time: unknown unit "\\"" in duration "1\\""'),
        ("1\\", 'time: unknown unit "\\\\" in duration "1\\\\"'),
    ],
)
def test_other_durations_are_refused_in_gos_words(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (5400 * SECOND, "1h30m0s"),
        (441 * SECOND, "7m21s"),
        (3 * SECOND // 2, "1.5s"),
        (SECOND // 10, "100ms"),
        (2500, "2.5µs"),
        (1, "1ns"),
        (-60 * SECOND, "-1m0s"),
        (SECOND + 1, "1.000000001s"),
        (999, "999ns"),
        (1000, "1µs"),
        (10**6, "1ms"),
        (SECOND, "1s"),
        (-1, "-1ns"),
    ],
)
def test_durations_are_printed_as_go_does(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_printed_duration_reads_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 5, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 5 * MINUTE, "8h"),
        (48 * HOUR - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 5 * DAY, "2y5d"),
        (8 * YEAR - DAY, "7y364d"),
        (8 * YEAR, "8y"),
        (8 * YEAR + 5 * DAY, "8y"),
    ],
)
def test_ages_are_as_compact_as_kubectls(seconds: int, age: str) -> None:
    assert human_age(seconds) == age


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-30T12:30:45Z", datetime(2026, 7, 30, 12, 30, 45, tzinfo=UTC)),
        ("2026-07-30T12:30:45.5Z", datetime(2026, 7, 30, 12, 30, 45, 500000, tzinfo=UTC)),
        ("2026-07-30T12:30:45.123456789Z", datetime(2026, 7, 30, 12, 30, 45, 123456, tzinfo=UTC)),
        ("2026-07-30T12:30:45.123456+00:00", datetime(2026, 7, 30, 12, 30, 45, 123456, tzinfo=UTC)),
        ("2026-07-30T01:30:45+02:00", datetime(2026, 7, 29, 23, 30, 45, tzinfo=UTC)),
    ],
)
def test_times_with_fractions_and_offsets_are_read(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("2026-07-30", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        (
            "2026-07-30 12:30:45Z",
            'as "2006-01-02T15:04:05Z07:00": cannot parse " 12:30:45Z" as "T"',
        ),
        ("2026-07-30T12:30:45", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
        ("2026-07-30T12:30:45Zulu", 'extra text: "ulu"'),
        ("2026-13-30T12:30:45Z", "month out of range"),
        ("2026-02-30T12:30:45Z", "day out of range"),
        ("2026-07-30T24:30:45Z", "hour out of range"),
        ("2026-07-30T12:60:45Z", "minute out of range"),
        ("2026-07-30T12:30:60Z", "second out of range"),
        ("2026-00-30T12:30:45Z", "month out of range"),
        ("2026-01-32T00:00:00Z", "day out of range"),
        ("2026-12-32T23:59:59Z", "day out of range"),
    ],
)
def test_other_times_are_refused_in_gos_words(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"^parsing time ") as refusal:
        parse_time(text)
    assert str(refusal.value).endswith(complaint)


def test_times_are_printed_in_utc_and_cut_not_rounded() -> None:
    moment = datetime(2026, 7, 30, 1, 0, 59, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-07-29T23:00:59Z"
    assert format_micro_time(moment) == "2026-07-29T23:00:59.999999Z"
    assert format_micro_time(moment.replace(microsecond=0)) == "2026-07-29T23:00:59.000000Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_printed_time_reads_back(moment: datetime) -> None:
    assert parse_time(format_micro_time(moment)) == moment
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)


def test_a_moment_moved_too_far_is_the_last_or_first_there_is() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert moved(now, 60) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert moved(now, 2**63 - 1) == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    last, first = (moved(now, sign * 10**15) for sign in (1, -1))
    assert (last, first) == (moved(now, 2**63 - 1), moved(now, -(2**63)))
    assert moved(now, -(2**63)) == datetime(1, 1, 1, tzinfo=UTC)


@given(st.integers(-10, 20 * 365 * 86400))
def test_an_age_stays_the_same_for_as_long_as_it_says(seconds: int) -> None:
    constant = constant_age(seconds)
    assert constant >= 1
    assert human_age(seconds + constant - 1) == human_age(seconds)


@pytest.mark.parametrize("seconds", [599, 660, 3 * 3600, 7 * 3600, 9 * 3600, 3 * 86400, 30 * 86400])
def test_an_age_changes_after_that(seconds: int) -> None:
    assert human_age(seconds + constant_age(seconds)) != human_age(seconds)
