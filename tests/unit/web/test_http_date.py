from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as some

from kedge.web.http_date import http_date

MOMENTS = some.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30), timezones=some.just(UTC))


@given(MOMENTS)
def test_date_is_the_one_of_the_standard_library(moment: datetime) -> None:
    assert http_date(moment) == format_datetime(moment, usegmt=True)


def test_date_is_in_utc() -> None:
    moment = datetime(2026, 11, 17, 1, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    assert http_date(moment) == "Mon, 16 Nov 2026 23:00:00 GMT"
