"""Values of expressions: documents as they are, and classes for what JSON does not have."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.patience import spend

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1
MAX_TEXT: Final = 3 << 20
"""Characters of one string that an expression may make: the largest request."""

NANOS: Final = 1_000_000_000


class Uint(int):
    """An unsigned integer: equal to the integer, but another type."""

    __slots__ = ()


class Timestamp:
    """A point in time, in nanoseconds since 1970. Its text has the offset from UTC, in seconds,
    that it was written with, as upstream's has; nothing else depends on the offset."""

    __slots__ = ("nanos", "offset")

    def __init__(self, nanos: int, offset: int = 0) -> None:
        if not _EARLIEST <= nanos <= _LATEST:
            raise CelError("timestamp overflow")
        self.nanos = nanos
        self.offset = offset

    def later(self, nanos: int) -> "Timestamp":
        """Return the time that many nanoseconds later, with the same offset."""
        return Timestamp(self.nanos + nanos, self.offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))

    def __lt__(self, other: "Timestamp") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Timestamp") -> bool:
        return self.nanos <= other.nanos

    def __str__(self) -> str:
        seconds, nanos = divmod(self.nanos, NANOS)
        moment, offset = _EPOCH + timedelta(seconds=seconds), self.offset
        try:
            moment += timedelta(seconds=offset)
        except OverflowError:  # a year that datetime does not have
            offset = 0
        text = moment.strftime("%Y-%m-%dT%H:%M:%S")
        fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f"{text.rjust(19, '0')}{fraction}{_zone(offset)}"


class CelDuration:
    """A length of time, in nanoseconds."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not INT_MIN <= nanos <= INT_MAX:
            raise CelError("duration overflow")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CelDuration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))

    def __lt__(self, other: "CelDuration") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "CelDuration") -> bool:
        return self.nanos <= other.nanos

    def __str__(self) -> str:
        sign = "-" if self.nanos < 0 else ""
        seconds, nanos = divmod(abs(self.nanos), NANOS)
        fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f"{sign}{seconds}{fraction}s"


class Maybe:
    """An optional value."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, *, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Maybe) or self.present != other.present:
            return False
        return not self.present or equal(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.present)


NOTHING: Final = Maybe(present=False)


class TypeValue:
    """A type as a value: what `type(x)` returns."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class SetList(list[Any]):
    """A list of the schema's list type `set`: its order does not count."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and len(self) == len(other) and _same_members(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __add__(self, other: list[Any]) -> "SetList":
        mine = {identity(each) for each in self}
        return SetList([*self, *(each for each in other if identity(each) not in mine)])


class MapList(list[Any]):
    """A list of the schema's list type `map`: keys identify its elements."""

    __slots__ = ("keys",)

    def __init__(self, elements: Iterable[Any], keys: tuple[str, ...]) -> None:
        super().__init__(elements)
        self.keys = keys

    def key(self, element: Any) -> Any:
        """Return what tells an element from the others."""
        return tuple(identity(element.get(key)) for key in self.keys)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        theirs = {self.key(each): each for each in other if isinstance(each, dict)}
        return all(
            self.key(each) in theirs and equal(each, theirs[self.key(each)]) for each in self
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __add__(self, other: list[Any]) -> "MapList":
        merged = {self.key(each): each for each in self}
        merged.update((self.key(each), each) for each in other)
        return MapList(merged.values(), self.keys)


def _same_members(one: list[Any], other: list[Any]) -> bool:
    return {identity(each) for each in one} == {identity(each) for each in other}


def identity(value: Any) -> Any:
    """Return a hashable form of a value; equal values have equal forms."""
    if isinstance(value, list | dict):
        check_extent(value)
    return _identity(value)


def _identity(value: Any) -> Any:
    if isinstance(value, dict):
        return ("map", frozenset((_identity(k), _identity(v)) for k, v in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(_identity, value)))
    return ("bool", value) if isinstance(value, bool) else value


_VISITED: Final = 4096
"""After how many values the event loop's patience is asked."""


def extent(value: Any) -> int:
    """Return how many values there are in a value, at most one more than MOST_VISITED.

    Lists and maps share their elements: `[a, a]` in `[b, b]` and so on is small in memory, and
    twice as much work with each step for every function that visits it.
    """
    waiting, count = [value], 0
    while waiting:
        each = waiting.pop()
        count += 1
        if not count % _VISITED:
            spend(_VISITED)
        if isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, str):
            count += len(each) // 100
        if count + len(waiting) > MOST_VISITED:
            return MOST_VISITED + 1
    return count


def check_extent(value: Any) -> None:
    """Refuse a value that takes too long to visit."""
    if extent(value) > MOST_VISITED:
        raise CelError("value is too large")


def extra_price(one: Any, other: Any) -> int:
    """Return what kedge charges for a comparison of large values besides upstream's price."""
    return max(0, min(extent(one), extent(other)) - 1000)


def equal(one: Any, other: Any) -> bool:
    """Compare two values as CEL does: numbers across types, but true is not 1."""
    mine, theirs = type(one), type(other)
    if mine is theirs and mine in _PLAIN:
        return bool(one == other)
    if (mine is bool) is not (theirs is bool):
        return False
    if mine is list and theirs is not list and isinstance(other, list):
        other = list(other)  # the left operand decides whether order counts
    if isinstance(one, list | dict) and min(extent(one), extent(other)) > MOST_VISITED:
        raise CelError("value is too large")
    # Python's comparison runs in C, and finds every difference but that of true and 1.
    if one != other:
        return False
    return mine in _SIMPLE or mine in (SetList, MapList) or _no_bool_is_a_number(one, other)


def _no_bool_is_a_number(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_no_bool_is_a_number(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_no_bool_is_a_number, one, other))
    return (type(one) is bool) is (type(other) is bool)


MOST_VISITED: Final = 100_000
"""Values that one function may visit."""
_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None), Uint})
_SIMPLE: Final = frozenset({str, int, float, bytes, type(None), Uint, Timestamp, CelDuration})

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = -62135596800 * NANOS
_LATEST: Final = 253402300799 * NANOS + NANOS - 1

_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    dict: "map",
    list: "list",
    SetList: "list",
    MapList: "list",
    Timestamp: "google.protobuf.Timestamp",
    CelDuration: "google.protobuf.Duration",
    Maybe: "optional_type",
    TypeValue: "type",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type, as `type(x)` has it."""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, dict):
        return "map"
    return str(getattr(value, "cel_type", "dyn"))


def size_of(value: Any) -> int:
    """Return the size that prices are computed from: 1 for values without a size."""
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is bytes:
        return len(value)
    if kind is Maybe:
        return size_of(value.value) if value.present else 1
    if isinstance(value, list | dict):
        return len(value)
    sized: Callable[[], int] | None = getattr(value, "cel_size", None)
    return sized() if sized is not None else 1


def _zone(offset: int) -> str:
    if not offset:
        return "Z"
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"


_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
).fullmatch


@lru_cache(maxsize=1024)
def parse_timestamp(text: str) -> Timestamp:
    """Return the time that RFC 3339 text names; ValueError if it names none."""
    match = _TIMESTAMP(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    nanos = int(((match[7] or "") + "000000000")[:9])
    delta = moment - _EPOCH
    seconds, offset = delta.days * 86400 + delta.seconds, 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 23 or minutes > 59:
            raise ValueError(text)
        offset = (1 if match[8] == "+" else -1) * (hours * 3600 + minutes * 60)
    try:
        return Timestamp((seconds - offset) * NANOS + nanos, offset)
    except CelError:
        raise ValueError(text) from None


_DURATION: Final = re.compile(r"([+-]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.A)
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.A)
_UNITS: Final = {
    "ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6,
    "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS,
}  # fmt: skip


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> CelDuration:
    """Return the length of time that Go's notation names; ValueError if it names none."""
    if text in ("0", "+0", "-0"):
        return CelDuration(0)
    if len(text) > 128 or _DURATION.fullmatch(text) is None:
        raise ValueError(text)
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        total += int(whole or "0") * _UNITS[unit]
        if fraction:
            total += int(fraction[:18]) * _UNITS[unit] // 10 ** len(fraction[:18])
    try:
        return CelDuration(-total if text.startswith("-") else total)
    except CelError:
        raise ValueError(text) from None


def go_float(value: float) -> str:
    """Return a number as Go prints it with %g: an exponent from 21 digits on."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    sign = "-" if text.startswith("-") else ""
    point = len(mantissa.lstrip("-").partition(".")[0]) + int(exponent or "0")
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0")
    if not stripped:
        return f"{sign}0"
    if point - 1 < -4 or point - 1 >= 21:
        rest = f".{stripped[1:]}" if len(stripped) > 1 else ""
        power = point - 1
        return f"{sign}{stripped[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{stripped}"
    if len(stripped) <= point:
        return f"{sign}{stripped}{'0' * (point - len(stripped))}"
    return f"{sign}{stripped[:point]}.{stripped[point:]}"
