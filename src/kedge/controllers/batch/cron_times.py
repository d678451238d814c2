"""The scheduled times of a CronJob: missed ones, and the next one."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from kedge.api.batch_v1.schedule import Schedule

YEARS: Final = 5
"""How far ahead a moment is looked for."""
MANY: Final = 100
"""More missed moments than this are worth a warning."""
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


class EmptySchedule(ValueError):
    """A schedule without any time, such as February 31."""

    def __init__(self) -> None:
        super().__init__("time difference between two schedules is less than 1 second")


class MissedRuns(NamedTuple):
    """The scheduled times since the last job."""

    latest: datetime | None
    """The last moment that has passed."""
    times: int = 0
    """About how many there were, if more than the one."""


def following(schedule: Schedule, moment: datetime, zone: tzinfo | None) -> datetime | None:
    """The first moment of a schedule after another; None if there is none for years.

    The clock of the zone is read minute by minute, as cron does: what falls into the hour that is
    left out in spring is left out too, and what falls into the one that comes twice comes twice.
    Without a zone it is the machine's.
    """
    try:
        if schedule.every:
            return moment.replace(microsecond=0) + timedelta(microseconds=schedule.every // 1000)
        return _following(schedule, moment, zone)
    except OverflowError:
        # Before year 1 or after year 9999.
        return None


def _following(schedule: Schedule, moment: datetime, zone: tzinfo | None) -> datetime | None:
    if not (schedule.minutes and schedule.hours):
        # Upstream's parser accepts `, * * * *`; there is no such minute to walk to.
        return None
    at = moment.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
    last_year = at.year + YEARS
    while True:
        local = at.astimezone(zone)
        if local.year > last_year:
            return None
        if local.month not in schedule.months:
            at = max(_midnight(_next_month(local), zone), at + _MINUTE)
        elif not _is_day(schedule, local):
            at = max(_midnight(local.date() + _DAY, zone), at + _MINUTE)
        elif local.hour not in schedule.hours:
            at += (60 - local.minute) * _MINUTE
        elif local.minute not in schedule.minutes:
            at += _MINUTE
        else:
            return at


def _is_day(schedule: Schedule, local: datetime) -> bool:
    day = local.day in schedule.days
    weekday = local.isoweekday() % 7 in schedule.weekdays
    # Both count if one was left open, either if both were given.
    if schedule.any_day or schedule.any_weekday:
        return day and weekday
    return day or weekday


def _next_month(local: datetime) -> date:
    return (local.date().replace(day=1) + 31 * _DAY).replace(day=1)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    # A time without a zone is taken for the machine's own.
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def missed(schedule: Schedule, since: datetime, now: datetime, zone: tzinfo | None) -> MissedRuns:
    """Return the scheduled times after one time and up to another."""
    first = following(schedule, since, zone)
    second = following(schedule, first, zone) if first is not None else None
    if first is None or second is None:
        raise EmptySchedule
    if now < first:
        return MissedRuns(None)
    if now < second:
        return MissedRuns(first)
    gap = second - first
    count = (now - first) // gap + 1
    return MissedRuns(_latest(schedule, first + (count - 2) * gap, now, zone), count)


def _latest(
    schedule: Schedule, since: datetime, now: datetime, zone: tzinfo | None
) -> datetime | None:
    """Return the last scheduled time between two times; None if there is none.

    It is found by binary search. There may be many scheduled times in between: half a year of
    minutes, if a schedule pauses for the other half.
    """
    latest = following(schedule, since, zone)
    if latest is None or latest > now:
        return None
    if schedule.every:
        return latest  # All gaps are equal, so that `since` was exact.
    end = now
    while end - latest >= _MINUTE:
        middle = latest + (end - latest) / 2
        at = following(schedule, middle, zone)
        if at is not None and at <= now:
            latest = at
        else:
            end = middle
    return latest


def next_due(
    schedule: Schedule, since: datetime, now: datetime, zone: tzinfo | None
) -> datetime | None:
    """When to look again: the first moment that was not due yet."""
    try:
        found = missed(schedule, since, now, zone)
    except EmptySchedule:
        return following(schedule, now, zone)
    if found.latest is not None:
        return following(schedule, found.latest, zone)
    return following(schedule, now if found.times else since, zone)
