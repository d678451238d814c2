"""Durations and moments as text: Go's `1h30m0s`, kubectl's compact ages, RFC 3339 times."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

SECOND: Final = 10**9
"""Nanoseconds in a second; durations are counted in nanoseconds."""

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PIECE: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_LONGEST: Final = 2**63


def parse_duration(text: str) -> int:
    """Nanoseconds in a duration such as `1h30m` or `-1.5s`; ValueError in Go's words."""
    sign, rest = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    total = 0
    position = 0
    while position < len(rest) or not rest:
        piece = _PIECE.match(rest, position)
        if piece is None or not (piece[1] or piece[2]):
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        total += _nanoseconds(piece[1], piece[2] or "", piece[3], text)
        position = piece.end()
    if total > (_LONGEST if sign == "-" else _LONGEST - 1):
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    return -total if sign == "-" else total


def _nanoseconds(whole: str, fraction: str, unit: str, text: str) -> int:
    if not unit:
        raise ValueError(f"time: missing unit in duration {_quoted(text)}")
    if unit not in _UNITS:
        raise ValueError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
    if len(whole) > 19:
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    # Digits beyond the nineteenth are below any nanosecond.
    fraction = fraction[:19]
    scale: int = 10 ** len(fraction)
    return int(whole or "0") * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // scale


def format_duration(nanoseconds: int) -> str:
    """A duration as Go prints it: `1h30m0s`, `7m21s`, `1.5s`, `100ms`, `0s`."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit in ("ns", "µs", "ms"):
        if rest < 1000 * _UNITS[unit]:
            return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, 60 * SECOND)
    seconds = f"{_decimal(rest, SECOND)}s"
    if minutes == 0:
        return sign + seconds
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if rest == 0:
        return str(whole)
    return f"{whole}." + str(unit + rest)[1:].rstrip("0")


def human_age(seconds: int) -> str:
    """How long ago, in the two digits or so that `kubectl get` has room for."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes = seconds // 60
    if minutes < 10:
        return _pair(seconds, 60, "m", "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _pair(minutes, 60, "h", "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _pair(hours, 24, "d", "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _pair(days, 365, "y", "d")
    return f"{days // 365}y"


LONG_AGE: Final = 24 * 3600
"""Seconds for which a long age stays the same at most."""


def constant_age(seconds: int) -> int:
    """Return for how many seconds from now on `human_age` stays the same."""
    if seconds < 600:
        return 1
    unit = 60 if seconds < 8 * 3600 else 3600 if seconds < 8 * 86400 else LONG_AGE
    return unit - seconds % unit


def _pair(amount: int, size: int, big: str, small: str) -> str:
    whole, rest = divmod(amount, size)
    return f"{whole}{big}{rest}{small}" if rest else f"{whole}{big}"


_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
).fullmatch


def parse_time(text: str) -> datetime:
    """The moment an RFC 3339 text names, in UTC; ValueError in Go's words if it names none."""
    if not _RFC3339(text):
        raise ValueError(_misread(text))
    try:
        moment = datetime.fromisoformat(text)
        return moment if text[-1] == "Z" else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"parsing time {_quoted(text)}: {_out_of_range(text)}") from None


def moved(moment: datetime, seconds: float) -> datetime:
    """Return the time shifted by so many seconds, limited to the range of datetime.

    Fields that count seconds are 64 bits wide, and times reach the year 9999.
    """
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        limit = datetime.max if seconds > 0 else datetime.min
        return limit.replace(microsecond=0, tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """A moment to the second, as `creationTimestamp` has it."""
    return _in_utc(moment).isoformat("T", "seconds")[:19] + "Z"


def format_micro_time(moment: datetime) -> str:
    """A moment to the microsecond, as a Lease's `renewTime` has it."""
    return _in_utc(moment).isoformat("T", "microseconds")[:26] + "Z"


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_ELEMENTS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        ("[0-9]{4}", "2006"),
        ("-", "-"),
        ("[0-9]{2}", "01"),
        ("-", "-"),
        ("[0-9]{2}", "02"),
        ("T", "T"),
        ("[0-9]{2}", "15"),
        (":", ":"),
        ("[0-9]{2}", "04"),
        (":", ":"),
        (r"[0-9]{2}(\.[0-9]+)?", "05"),
        ("Z|[+-][0-9]{2}:[0-9]{2}", "Z07:00"),
    )
)


def _misread(text: str) -> str:
    """Which part of the layout is the first that `text` does not follow."""
    position = 0
    for pattern, name in _ELEMENTS:
        found = pattern.match(text, position)
        if found is None:
            reading = f"parsing time {_quoted(text)} as {_quoted(_LAYOUT)}"
            return f"{reading}: cannot parse {_quoted(text[position:])} as {_quoted(name)}"
        position = found.end()
    return f"parsing time {_quoted(text)}: extra text: {_quoted(text[position:])}"


def _out_of_range(text: str) -> str:
    """Which part of a well-formed time is too large."""
    parts = {"month": (5, 1, 12), "hour": (11, 0, 23), "minute": (14, 0, 59), "second": (17, 0, 59)}
    for name, (at, least, most) in parts.items():
        if not least <= int(text[at : at + 2]) <= most:
            return f"{name} out of range"
    return "day out of range"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
