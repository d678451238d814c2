"""Dates in HTTP headers (RFC 9110, 5.6.7)."""

from datetime import UTC, datetime
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def http_date(moment: datetime) -> str:
    """Return the moment as `Sun, 06 Nov 1994 08:49:37 GMT`. The functions of the standard library
    are in modules that take milliseconds to import."""
    at = moment.astimezone(UTC)
    day = f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04}"
    return f"{day} {at:%H:%M:%S} GMT"
