"""Operators: arithmetic with bounds, comparison, equality, indexing, membership."""

import math
from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, Price, function, named
from kedge.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    list_of,
    map_of,
    parameter,
)
from kedge.machinery.cel.values import (
    INT_MAX,
    INT_MIN,
    MAX_TEXT,
    MOST_VISITED,
    UINT_MAX,
    CelDuration,
    Uint,
    equal,
    extra_price,
    size_of,
    type_name,
)

NO_OVERLOAD: Final = "no such overload"
_A: Final = parameter("A")
_B: Final = parameter("B")


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def _add_int(a: int, b: int) -> int:
    value = a + b
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _divide_int(a: int, b: int) -> int:
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(a) // abs(b)
    return _int(quotient if (a < 0) == (b < 0) else -quotient)


def _modulo_int(a: int, b: int) -> int:
    if b == 0:
        raise CelError("modulus by zero")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _divide_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("division by zero")
    return Uint(int(a) // int(b))


def _modulo_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("modulus by zero")
    return Uint(int(a) % int(b))


def _divide_double(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _multiply_double(a: float, b: float) -> float:
    return a * b


def _join(a: Any, b: Any) -> Any:
    if len(a) + len(b) > MAX_TEXT:
        raise CelError("string size exceeds limit")
    return a + b


def _add_lists(a: list[Any], b: list[Any]) -> list[Any]:
    if len(a) + len(b) > MOST_VISITED:
        raise CelError("list size exceeds limit")
    return a + b


def _added_price(a: list[Any], b: list[Any]) -> int:
    """Return the price of a longer list: upstream takes 1, whose lists are not copied."""
    return 1 + max(0, len(a) + len(b) - 1000)


def _joined_price(a: Any, b: Any) -> int:
    return math.ceil((len(a) + len(b)) * 0.1)


def shorter(a: Any, b: Any) -> int:
    """Return the price of comparing two values: that of traversing the shorter one."""
    return math.ceil(min(size_of(a), size_of(b)) * 0.1)


def equality_price(a: Any, b: Any) -> int:
    """Return the price of `==`: opaque values cost 1."""
    return 1 if hasattr(a, "cel_type") else shorter(a, b)


def _not_equal(a: Any, b: Any) -> bool:
    return not equal(a, b)


def less(a: Any, b: Any) -> bool:
    """Compare values of one comparable type, or numbers."""
    return bool(a < b)


def _less_equal(a: Any, b: Any) -> bool:
    return bool(a <= b)


def _greater(a: Any, b: Any) -> bool:
    return bool(b < a)


def _greater_equal(a: Any, b: Any) -> bool:
    return bool(b <= a)


def index_list(values: list[Any], index: Any) -> Any:
    """Return an element; an index may be a number of any type without a fraction."""
    if type(index) is not int:
        if type(index) is Uint or (type(index) is float and index.is_integer()):
            index = int(index)
        else:
            raise CelError(f"unsupported index type '{type_name(index)}' in list")
    if 0 <= index < len(values):
        return values[index]
    raise CelError(f"index out of bounds: {index}")


def index_map(values: dict[Any, Any], key: Any) -> Any:
    """Return the value of a key."""
    if has_key(values, key):
        return values[key]
    raise CelError(f"no such key: {shown_key(key)}")


class EscapedKey(str):
    """A key of documents that expressions name in another way: `a-b` as `a__dash__b`."""

    name: str

    def __new__(cls, key: str, name: str) -> "EscapedKey":
        made = super().__new__(cls, key)
        made.name = name
        return made


def shown_key(key: Any) -> str:
    """Return a key as errors show it."""
    if isinstance(key, EscapedKey):
        return str(key.name)
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def has_key(values: dict[Any, Any], key: Any) -> bool:
    """Tell whether a map has a key; true is not 1."""
    try:
        found = key in values
    except TypeError:
        raise CelError(f"unsupported key type: {type_name(key)}") from None
    if not found or type(key) is str or not (key == 0 or key == 1):
        return found
    # For Python True and 1 are the same key.
    return any(k == key and (type(k) is bool) is (type(key) is bool) for k in values)


def index_any(container: Any, key: Any) -> Any:
    """Return the element of a container of any type."""
    if isinstance(container, dict):
        return index_map(container, key)
    if isinstance(container, list):
        return index_list(container, key)
    raise CelError(NO_OVERLOAD if container is not None else f"no such key: {shown_key(key)}")


def in_list(value: Any, values: list[Any]) -> bool:
    """Tell whether a list has an element that equals the value."""
    kind = type(value)
    if kind is str:
        return value in values
    return any(equal(value, each) for each in values)


def _in_map(key: Any, values: dict[Any, Any]) -> bool:
    return has_key(values, key)


def _not_strictly_false(value: Any) -> bool:
    return value is not False


def _comparisons(name: str, word: str) -> list[Any]:
    compare = {"<": less, "<=": _less_equal, ">": _greater, ">=": _greater_equal}[name]
    declared = [
        function(f"{word}_{type}", (type, type), BOOL, compare)
        for type in (BOOL, INT, UINT, DOUBLE, TIMESTAMP, DURATION)
    ]
    declared += [
        function(f"{word}_{type}", (type, type), BOOL, compare, shorter) for type in (STRING, BYTES)
    ]
    numbers = (INT, UINT, DOUBLE)
    declared += [
        function(f"{word}_{one}_{other}", (one, other), BOOL, compare)
        for one in numbers
        for other in numbers
        if one is not other
    ]
    return declared


def _size_price(value: Any, values: Any) -> int:
    return size_of(values) + (extra_price(values, values) if isinstance(value, list | dict) else 0)


_IN_LIST_PRICE: Final[Price] = _size_price

OPERATORS: Final[Functions] = named(
    {
        "_+_": (
            function("add_int64", (INT, INT), INT, _add_int),
            function("add_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) + int(b))),
            function("add_double", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a + b),
            function("add_string", (STRING, STRING), STRING, _join, _joined_price),
            function("add_bytes", (BYTES, BYTES), BYTES, _join, _joined_price),
            function("add_list", (list_of(_A), list_of(_A)), list_of(_A), _add_lists, _added_price),
            function(
                "add_timestamp_duration",
                (TIMESTAMP, DURATION),
                TIMESTAMP,
                lambda a, b: a.later(b.nanos),
            ),
            function(
                "add_duration_timestamp",
                (DURATION, TIMESTAMP),
                TIMESTAMP,
                lambda a, b: b.later(a.nanos),
            ),
            function(
                "add_duration_duration",
                (DURATION, DURATION),
                DURATION,
                lambda a, b: CelDuration(a.nanos + b.nanos),
            ),
        ),
        "_-_": (
            function("subtract_int64", (INT, INT), INT, lambda a, b: _int(a - b)),
            function("subtract_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) - int(b))),
            function("subtract_double", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b),
            function(
                "subtract_timestamp_timestamp",
                (TIMESTAMP, TIMESTAMP),
                DURATION,
                lambda a, b: CelDuration(a.nanos - b.nanos),
            ),
            function(
                "subtract_timestamp_duration",
                (TIMESTAMP, DURATION),
                TIMESTAMP,
                lambda a, b: a.later(-b.nanos),
            ),
            function(
                "subtract_duration_duration",
                (DURATION, DURATION),
                DURATION,
                lambda a, b: CelDuration(a.nanos - b.nanos),
            ),
        ),
        "_*_": (
            function("multiply_int64", (INT, INT), INT, lambda a, b: _int(a * b)),
            function("multiply_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) * int(b))),
            function("multiply_double", (DOUBLE, DOUBLE), DOUBLE, _multiply_double),
        ),
        "_/_": (
            function("divide_int64", (INT, INT), INT, _divide_int),
            function("divide_uint64", (UINT, UINT), UINT, _divide_uint),
            function("divide_double", (DOUBLE, DOUBLE), DOUBLE, _divide_double),
        ),
        "_%_": (
            function("modulo_int64", (INT, INT), INT, _modulo_int),
            function("modulo_uint64", (UINT, UINT), UINT, _modulo_uint),
        ),
        "-_": (
            function("negate_int64", (INT,), INT, lambda a: _int(-a)),
            function("negate_double", (DOUBLE,), DOUBLE, lambda a: -a),
        ),
        "!_": (function("logical_not", (BOOL,), BOOL, lambda a: not a),),
        "_==_": (function("equals", (_A, _A), BOOL, equal, equality_price),),
        "_!=_": (function("not_equals", (_A, _A), BOOL, _not_equal, shorter),),
        "_<_": _comparisons("<", "less"),
        "_<=_": _comparisons("<=", "less_equals"),
        "_>_": _comparisons(">", "greater"),
        "_>=_": _comparisons(">=", "greater_equals"),
        "_[_]": (
            function("index_list", (list_of(_A), INT), _A, index_list),
            function("index_map", (map_of(_A, _B), _A), _B, index_map),
        ),
        "@in": (
            function("in_list", (_A, list_of(_A)), BOOL, in_list, _IN_LIST_PRICE),
            function("in_map", (_A, map_of(_A, _B)), BOOL, _in_map),
        ),
        "_&&_": (function("logical_and", (BOOL, BOOL), BOOL, lambda a, b: a and b),),
        "_||_": (function("logical_or", (BOOL, BOOL), BOOL, lambda a, b: a or b),),
        "_?_:_": (function("conditional", (BOOL, _A, _A), _A, lambda c, a, b: a if c else b),),
        "@not_strictly_false": (
            function("not_strictly_false", (BOOL,), BOOL, _not_strictly_false),
        ),
    }
)
