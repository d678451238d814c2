"""Conversions between types, sizes, and the parts of dates."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import (
    FunctionOverload,
    Functions,
    first_traversed,
    function,
    library,
    merged,
    method,
)
from kedge.machinery.cel.types import (
    ANY_TYPE,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    list_of,
    map_of,
    parameter,
    type_of,
)
from kedge.machinery.cel.values import (
    INT_MAX,
    INT_MIN,
    NANOS,
    UINT_MAX,
    CelDuration,
    Timestamp,
    TypeValue,
    Uint,
    go_float,
    parse_duration,
    parse_timestamp,
    type_name,
)
from kedge.machinery.patience import spend

_A: Final = parameter("A")
_B: Final = parameter("B")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _wrong(value: Any, wanted: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def _int_of_text(text: str) -> int:
    try:
        if len(text) > 24 or not text.lstrip("+-").isascii() or "_" in text or text != text.strip():
            raise ValueError
        value = int(text)
    except ValueError:
        raise _wrong(text, "int") from None
    if not INT_MIN <= value <= INT_MAX:
        raise _wrong(text, "int")
    return value


def _int_of_double(value: float) -> int:
    if math.isnan(value) or not float(INT_MIN) < value < float(INT_MAX):
        raise CelError("integer overflow")
    return int(value)


def _int_of_uint(value: int) -> int:
    if value > INT_MAX:
        raise CelError("integer overflow")
    return int(value)


def _uint_of_int(value: int) -> Uint:
    if value < 0:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def _uint_of_double(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < float(UINT_MAX):
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _uint_of_text(text: str) -> Uint:
    if len(text) > 24 or not text.isascii() or not text.isdigit() or int(text) > UINT_MAX:
        raise _wrong(text, "uint")
    return Uint(int(text))


def _double_of_text(text: str) -> float:
    try:
        if len(text) > 400 or "_" in text or text != text.strip():
            raise ValueError
        return float(text)
    except ValueError:
        raise _wrong(text, "double") from None


_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _bool_of_text(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _wrong(text, "bool")


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _timestamp_of_text(text: str) -> Timestamp:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise _wrong(text, "google.protobuf.Timestamp") from None


def _duration_of_text(text: str) -> CelDuration:
    try:
        return parse_duration(text)
    except ValueError:
        raise _wrong(text, "google.protobuf.Duration") from None


def _same(value: Any) -> Any:
    return value


CONVERSIONS: Final[Functions] = library(
    int=(
        function("int64_to_int64", (INT,), INT, _same),
        function("uint64_to_int64", (UINT,), INT, _int_of_uint),
        function("double_to_int64", (DOUBLE,), INT, _int_of_double),
        function("string_to_int64", (STRING,), INT, _int_of_text),
        function("timestamp_to_int64", (TIMESTAMP,), INT, lambda t: t.nanos // NANOS),
        function("duration_to_int64", (DURATION,), INT, lambda d: d.nanos),
    ),
    uint=(
        function("uint64_to_uint64", (UINT,), UINT, _same),
        function("int64_to_uint64", (INT,), UINT, _uint_of_int),
        function("double_to_uint64", (DOUBLE,), UINT, _uint_of_double),
        function("string_to_uint64", (STRING,), UINT, _uint_of_text),
    ),
    double=(
        function("double_to_double", (DOUBLE,), DOUBLE, _same),
        function("int64_to_double", (INT,), DOUBLE, float),
        function("uint64_to_double", (UINT,), DOUBLE, float),
        function("string_to_double", (STRING,), DOUBLE, _double_of_text),
    ),
    bool=(
        function("bool_to_bool", (BOOL,), BOOL, _same),
        function("string_to_bool", (STRING,), BOOL, _bool_of_text),
    ),
    string=(
        function("string_to_string", (STRING,), STRING, _same),
        function("bool_to_string", (BOOL,), STRING, lambda b: "true" if b else "false"),
        function("int64_to_string", (INT,), STRING, str),
        function("uint64_to_string", (UINT,), STRING, lambda u: str(int(u))),
        function("double_to_string", (DOUBLE,), STRING, go_float),
        function("bytes_to_string", (BYTES,), STRING, _text_of_bytes, first_traversed),
        function("timestamp_to_string", (TIMESTAMP,), STRING, str),
        function("duration_to_string", (DURATION,), STRING, str),
    ),
    bytes=(
        function("bytes_to_bytes", (BYTES,), BYTES, _same),
        function(
            "string_to_bytes",
            (STRING,),
            BYTES,
            lambda s: s.encode("utf-8", "surrogatepass"),
            first_traversed,
        ),
    ),
    timestamp=(
        function("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, _same),
        function("string_to_timestamp", (STRING,), TIMESTAMP, _timestamp_of_text),
        function("int64_to_timestamp", (INT,), TIMESTAMP, lambda s: Timestamp(s * NANOS)),
    ),
    duration=(
        function("duration_to_duration", (DURATION,), DURATION, _same),
        function("string_to_duration", (STRING,), DURATION, _duration_of_text),
        function("int64_to_duration", (INT,), DURATION, lambda n: CelDuration(n)),
    ),
    dyn=(function("to_dyn", (_A,), DYN, _same),),
    type=(function("type", (_A,), type_of(_A), lambda v: TypeValue(type_name(v))),),
)


def _sized(id: str) -> list[FunctionOverload]:
    types = (
        ("string", STRING),
        ("bytes", BYTES),
        ("list", list_of(_A)),
        ("map", map_of(_A, _B)),
    )
    declared = [function(f"size_{word}", (type,), INT, len) for word, type in types]
    return declared + [method(f"{word}_size", (type,), INT, len) for word, type in types]


_SIZES: Final[Functions] = library(size=_sized("size"))


_READ_ZONE: Final = 200
"""Patience of the event loop that the search for the file of a time zone uses."""


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    sign = -1 if name.startswith("-") else 1
    hours, colon, minutes = name.lstrip("+-").partition(":")
    if colon and hours.isdigit() and minutes.isdigit():
        return timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))
    if name == "UTC":
        return UTC
    spend(_READ_ZONE)
    return ZoneInfo(name)


def _local(time: Timestamp, zone: str) -> datetime:
    try:
        if len(zone) > 64:
            raise ValueError
        place = _zone(zone)
    except (ValueError, OSError, LookupError):
        raise CelError(f"unknown time zone {zone}") from None
    moment = _EPOCH + timedelta(seconds=time.nanos // NANOS)
    try:
        return moment.astimezone(place)
    except OverflowError:
        raise CelError("timestamp overflow") from None


def _part(read: Callable[[datetime, int], int]) -> Callable[..., int]:
    def part(time: Timestamp, zone: str = "UTC") -> int:
        return read(_local(time, zone), time.nanos % NANOS)

    return part


def _date_part(
    name: str, word: str, read: Callable[[datetime, int], int]
) -> tuple[FunctionOverload, ...]:
    part = _part(read)
    return (
        method(f"timestamp_to_{word}", (TIMESTAMP,), INT, part),
        method(f"timestamp_to_{word}_with_tz", (TIMESTAMP, STRING), INT, part),
    )


def _duration_part(word: str, unit: int) -> FunctionOverload:
    def part(duration: CelDuration) -> int:
        whole = abs(duration.nanos) // unit
        return whole if duration.nanos >= 0 else -whole

    return method(f"duration_to_{word}", (DURATION,), INT, part)


def _duration_millis(duration: CelDuration) -> int:
    whole = abs(duration.nanos) // 10**6
    return whole if duration.nanos >= 0 else -whole


_DATES: Final[Functions] = library(
    getFullYear=_date_part("getFullYear", "year", lambda t, n: t.year),
    getMonth=_date_part("getMonth", "month", lambda t, n: t.month - 1),
    getDayOfYear=_date_part("getDayOfYear", "day_of_year", lambda t, n: t.timetuple().tm_yday - 1),
    getDayOfMonth=_date_part("getDayOfMonth", "day_of_month", lambda t, n: t.day - 1),
    getDate=_date_part("getDate", "day_of_month_1_based", lambda t, n: t.day),
    getDayOfWeek=_date_part("getDayOfWeek", "day_of_week", lambda t, n: (t.weekday() + 1) % 7),
    getHours=(
        *_date_part("getHours", "hours", lambda t, n: t.hour),
        _duration_part("hours", 3600 * NANOS),
    ),
    getMinutes=(
        *_date_part("getMinutes", "minutes", lambda t, n: t.minute),
        _duration_part("minutes", 60 * NANOS),
    ),
    getSeconds=(
        *_date_part("getSeconds", "seconds", lambda t, n: t.second),
        _duration_part("seconds", NANOS),
    ),
    getMilliseconds=(
        *_date_part("getMilliseconds", "milliseconds", lambda t, n: n // 10**6),
        method("duration_to_milliseconds", (DURATION,), INT, _duration_millis),
    ),
)

STANDARD_FUNCTIONS: Final[Functions] = merged(CONVERSIONS, _SIZES, _DATES)

TYPE_NAMES: Final[dict[str, Any]] = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": ANY_TYPE,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
}
"""Types that expressions may name."""
