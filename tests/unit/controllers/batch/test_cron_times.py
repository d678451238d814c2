"""The moments of schedules."""

from datetime import UTC, datetime, timedelta, tzinfo
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.batch_v1.schedule import parse_schedule
from kedge.controllers.batch.cron_times import EmptySchedule, following, missed, next_due


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def after(schedule: str, moment: str, zone: str = "UTC") -> str:
    found = following(parse_schedule(schedule), utc(moment), ZoneInfo(zone))
    assert found is not None
    return found.strftime("%a %Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("schedule", "moment", "expected"),
    [
        ("* * * * *", "2026-03-05 10:00:00", "Thu 2026-03-05 10:01:00"),
        ("* * * * *", "2026-03-05 10:00:59.5", "Thu 2026-03-05 10:01:00"),
        ("*/15 * * * *", "2026-03-05 10:59:00", "Thu 2026-03-05 11:00:00"),
        ("30 6-16/4 * * 1-5", "2026-03-06 14:31:00", "Mon 2026-03-09 06:30:00"),
        ("0 0 31 * *", "2026-03-31 00:00:00", "Sun 2026-05-31 00:00:00"),
        ("0 0 29 2 *", "2026-03-01 00:00:00", "Tue 2028-02-29 00:00:00"),
        ("@weekly", "2026-03-05 10:00:00", "Sun 2026-03-08 00:00:00"),
        ("@every 90s", "2026-03-05 10:00:00.7", "Thu 2026-03-05 10:01:30"),
        ("0 0 1 6 *", "2026-03-05 10:00:00", "Mon 2026-06-01 00:00:00"),
        ("0 0 1 6 *", "2026-05-31 10:00:00", "Mon 2026-06-01 00:00:00"),
        # The longest way to a next moment: 1900 and 2100 are no leap years.
        ("0 0 29 2 *", "2099-03-01 00:00:00", "Fri 2104-02-29 00:00:00"),
        # Day of the month and weekday: either will do.
        ("0 0 13 * 5", "2026-03-05 10:00:00", "Fri 2026-03-06 00:00:00"),
        ("0 0 13 * 5", "2026-03-06 00:00:00", "Fri 2026-03-13 00:00:00"),
        ("0 0 14 * 5", "2026-03-13 00:00:00", "Sat 2026-03-14 00:00:00"),
    ],
)
def test_next_moment(schedule: str, moment: str, expected: str) -> None:
    assert after(schedule, moment) == expected


def test_zone_decides_what_the_time_is() -> None:
    assert after("0 9 * * *", "2026-01-10 00:00:00", "Asia/Tokyo") == "Sun 2026-01-11 00:00:00"


def test_hour_that_is_left_out_in_spring_is_left_out() -> None:
    day_before = "2026-03-28 12:00:00"
    assert after("30 2 * * *", day_before, "Europe/Berlin") == "Mon 2026-03-30 00:30:00"


def test_hour_that_comes_twice_in_autumn_counts_twice() -> None:
    first = after("30 2 * * *", "2026-10-24 12:00:00", "Europe/Berlin")
    assert first == "Sun 2026-10-25 00:30:00"
    assert after("30 2 * * *", first[4:], "Europe/Berlin") == "Sun 2026-10-25 01:30:00"


@pytest.mark.parametrize(
    ("schedule", "moment", "expected"),
    [
        ("30 6 7 * *", "2010-11-07 02:45:00", "Sun 2010-11-07 10:00:00"),
        ("30 6 1 11 *", "2009-11-01 02:45:00", "Sun 2009-11-01 10:00:00"),
    ],
    ids=["day", "month"],
)
def test_a_midnight_that_comes_twice_is_passed(schedule: str, moment: str, expected: str) -> None:
    # In Newfoundland, clocks went back from one minute past midnight into the day before.
    assert after(schedule, moment, "America/St_Johns") == expected


def test_date_that_never_comes_is_never_due() -> None:
    schedule = parse_schedule("0 0 31 2 *")
    assert following(schedule, utc("2026-01-01"), UTC) is None
    with pytest.raises(EmptySchedule) as error:
        missed(schedule, utc("2026-01-01"), utc("2026-01-02"), UTC)
    assert str(error.value) == "time difference between two schedules is less than 1 second"
    assert next_due(schedule, utc("2026-01-01"), utc("2026-01-02"), UTC) is None


def test_date_that_comes_only_once_is_due_but_never_missed() -> None:
    schedule, since = parse_schedule("0 0 29 2 *"), utc("2095-03-01")
    assert next_due(schedule, since, utc("2095-06-01"), UTC) == utc("2096-02-29")
    with pytest.raises(EmptySchedule):
        missed(schedule, since, utc("2096-03-01"), UTC)


def test_nothing_is_missed_before_the_first_moment() -> None:
    schedule = parse_schedule("0 * * * *")
    found = missed(schedule, utc("2026-01-01 10:10"), utc("2026-01-01 10:59"), UTC)
    assert found == (None, 0)


def test_one_moment_that_has_passed_is_due_and_not_missed() -> None:
    schedule = parse_schedule("0 * * * *")
    found = missed(schedule, utc("2026-01-01 10:10"), utc("2026-01-01 11:00"), UTC)
    assert found == (utc("2026-01-01 11:00"), 0)


@pytest.mark.parametrize(
    ("schedule", "now", "times"),
    [("0 * * * *", "11:00", 2), ("0 * * * *", "12:00", 3), ("0,59 * * * *", "11:00", 2)],
)
def test_a_moment_is_due_from_its_very_second(schedule: str, now: str, times: int) -> None:
    moment = utc(f"2026-01-01 {now}")
    found = missed(parse_schedule(schedule), utc("2026-01-01 09:59:30"), moment, UTC)
    assert found == (moment, times)


def test_only_the_latest_of_many_missed_moments_is_due() -> None:
    schedule = parse_schedule("* * * * *")
    found = missed(schedule, utc("2026-01-01 10:00"), utc("2026-01-01 13:00:30"), UTC)
    assert found == (utc("2026-01-01 13:00"), 180)


def test_every_is_counted_from_the_last_job() -> None:
    schedule = parse_schedule("@every 1h")
    since, now = utc("2026-01-01 10:10"), utc("2026-01-01 14:00")
    assert missed(schedule, since, now, UTC) == (utc("2026-01-01 13:10"), 3)
    assert next_due(schedule, since, now, UTC) == utc("2026-01-01 14:10")


@given(
    text=st.sampled_from(["* * * * *", "*/7 3-5 * * *", "5 4 1,15 * *", "0 22 * * 1-5"]),
    since=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    hours=st.integers(0, 24 * 40),
)
def test_next_moment_is_ahead_and_the_missed_one_behind(
    text: str, since: datetime, hours: int
) -> None:
    schedule, begin = parse_schedule(text), since.replace(tzinfo=UTC)
    now = begin + timedelta(hours=hours)
    found = missed(schedule, begin, now, UTC)
    ahead = next_due(schedule, begin, now, UTC)
    assert ahead is not None
    assert ahead > now
    if found.latest is not None:
        assert begin < found.latest <= now
        assert following(schedule, found.latest, UTC) == ahead


@pytest.mark.parametrize("schedule", [", * * * *", "* , * * *", "* * , * ,", "* * * , *"])
def test_a_field_without_any_number_is_never_due_and_not_searched_minute_by_minute(
    schedule: str,
) -> None:
    begun = process_time()
    assert following(parse_schedule(schedule), utc("2026-01-01 00:00:00"), ZoneInfo("UTC")) is None
    assert process_time() - begun < 0.5


def test_latest_of_half_a_year_of_missed_minutes_is_found_by_halves() -> None:
    asked: list[datetime] = []

    class Counted(tzinfo):
        """UTC, that notes each look at the clock."""

        def utcoffset(self, moment: datetime | None) -> timedelta:
            asked.append(moment or utc("2026-01-01 00:00:00"))
            return timedelta(0)

        def dst(self, moment: datetime | None) -> timedelta:
            return timedelta(0)

        def tzname(self, moment: datetime | None) -> str:
            return "counted"

        def fromutc(self, moment: datetime) -> datetime:
            asked.append(moment)
            return moment

    schedule = parse_schedule("* * * 1-6 *")
    since, now = utc("2026-06-30 23:58:30"), utc("2027-06-15 12:00:00")
    found = missed(schedule, since, now, Counted())
    assert found.latest == now
    assert len(asked) < 10_000


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_moments_at_the_ends_of_time_are_never_due(year: str) -> None:
    moment = utc(f"{year}-12-31 23:59:00") if year == "9999" else utc("0001-01-01 00:00:00")
    found = following(parse_schedule("0 0 1 1 *"), moment, ZoneInfo("America/New_York"))
    assert found is None or found.year == 2
