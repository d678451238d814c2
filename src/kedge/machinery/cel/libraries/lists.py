"""Functions on lists: Kubernetes' own, the extension of cel-go (version 3), and sets."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import (
    FunctionOverload,
    Functions,
    function,
    library,
    merged,
    method,
    named,
)
from kedge.machinery.cel.operators import OPERATORS, in_list, less
from kedge.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    list_of,
    parameter,
)
from kedge.machinery.cel.values import CelDuration, Uint, check_extent, equal
from kedge.machinery.patience import spend

_T: Final = parameter("T")
_LIST: Final = list_of(_T)
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_MOST_ELEMENTS: Final = 1 << 20
"""Elements of a list that an expression may make of a number."""


def traversal_cost(value: Any) -> int:
    """Return the price of visiting a value and everything in it."""
    if isinstance(value, list | dict):
        check_extent(value)
    return _traversal_cost(value)


def _traversal_cost(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode("utf-8", "surrogatepass")) * 0.1)
    if isinstance(value, bytes):
        return int(len(value) * 0.1)
    if isinstance(value, list):
        if value and type(value[0]) in (int, float, bool):
            return len(value)
        return sum(map(_traversal_cost, value))
    if isinstance(value, dict):
        return sum(_traversal_cost(key) + _traversal_cost(each) for key, each in value.items())
    return 1


def _traversed(values: list[Any], *_: Any) -> int:
    return traversal_cost(values)


def _is_sorted(values: list[Any]) -> bool:
    return not any(less(later, former) for former, later in pairwise(values))


def _smallest(values: list[Any]) -> Any:
    if not values:
        raise CelError("min called on empty list")
    return min(values)


def _largest(values: list[Any]) -> Any:
    if not values:
        raise CelError("max called on empty list")
    best = values[0]
    for value in values[1:]:
        best = value if best < value else best
    return best


def _sum_of(type: CelType, zero: Any) -> FunctionOverload:
    add = next(each for each in OPERATORS["_+_"] if each.parameters == (type, type)).implementation

    def total(values: list[Any]) -> Any:
        result = zero
        for value in values:
            result = add(result, value)
        return result

    return method(f"list_{type}_sum", (list_of(type),), type, total, _traversed)


def _index_of(values: list[Any], value: Any) -> int:
    for i, each in enumerate(values):
        if equal(each, value):
            return i
    return -1


def _last_index_of(values: list[Any], value: Any) -> int:
    for i in range(len(values) - 1, -1, -1):
        if equal(values[i], value):
            return i
    return -1


def _for_each(
    id: str, result: CelType | None, implementation: Callable[..., Any]
) -> list[FunctionOverload]:
    return [
        method(f"list_{type}_{id}", (list_of(type),), result or type, implementation, _traversed)
        for type in _COMPARABLE
    ]


_KUBERNETES: Final[Functions] = library(
    isSorted=_for_each("is_sorted", BOOL, _is_sorted),
    min=_for_each("min", None, _smallest),
    max=_for_each("max", None, _largest),
    sum=(
        _sum_of(INT, 0),
        _sum_of(UINT, Uint(0)),
        _sum_of(DOUBLE, 0.0),
        _sum_of(DURATION, CelDuration(0)),
    ),
    indexOf=(method("list_a_index_of", (_LIST, _T), INT, _index_of, _traversed),),
    lastIndexOf=(method("list_a_last_index_of", (_LIST, _T), INT, _last_index_of, _traversed),),
)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    shown = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise CelError(f"{shown}, negative indexes not supported")
    if start > end:
        raise CelError(f"{shown}, start index must be less than or equal to end index")
    if len(values) < end:
        raise CelError(f"{shown}, list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list) and depth > 0:
            flat.extend(_flatten(value, depth - 1))
        else:
            flat.append(value)
    return flat


def _flatten_price(values: list[Any], depth: int = 1) -> int:
    """Return upstream's price, and besides that of large results. A list may occur in another a
    thousand times, and its elements would be as many times as much."""
    return _allocated(max(0, depth), len(values)) + max(0, _flat_size(values, depth) - 1000)


def _flat_size(values: list[Any], depth: int) -> int:
    size = len(values)
    if depth > 0:
        spend(size // 10)
        for value in values:
            if size > _MOST_ELEMENTS:
                raise CelError("value is too large")
            if isinstance(value, list):
                size += _flat_size(value, depth - 1)
    return size


def _same_types(values: list[Any]) -> None:
    if any(type(value) is not type(values[0]) for value in values):
        raise CelError("list elements must have the same type")


def _sort(values: list[Any]) -> list[Any]:
    return _sort_by(values, values)


def _sort_by(values: list[Any], keys: list[Any]) -> list[Any]:
    if not values:
        return values
    _same_types(keys)
    try:
        order = sorted(range(len(values)), key=keys.__getitem__)
    except TypeError:
        raise CelError("list elements must be comparable") from None
    return [values[i] for i in order]


def _range(count: int) -> list[int]:
    if count > _MOST_ELEMENTS:
        raise CelError("list size exceeds limit")
    return list(range(count))


def _distinct(values: list[Any]) -> list[Any]:
    seen: list[Any] = []
    for value in values:
        if not in_list(value, seen):
            seen.append(value)
    return seen


def _allocated(factor: float, size: int) -> int:
    return 11 + math.ceil(size * factor)


def _slice_price(values: list[Any], start: int, end: int) -> int:
    return _allocated(1, max(0, end - start) if start >= 0 else 0)


def _self_compared(values: list[Any]) -> int:
    if not values:
        return _allocated(2, 0)
    return _allocated(2.1 if isinstance(values[0], str | bytes) else 2, len(values) ** 2)


def _each_type(
    id: str, implementation: Callable[..., Any], *, keys: bool = False
) -> list[FunctionOverload]:
    declared = []
    for type in _COMPARABLE:
        given: tuple[CelType, ...] = (_LIST, list_of(type)) if keys else (list_of(type),)
        price = (lambda values, by: _self_compared(by)) if keys else _self_compared
        declared.append(method(f"list_{type}_{id}", given, given[0], implementation, price))
    return declared


_EXTENSION: Final[Functions] = named(
    {
        "slice": (method("list_slice", (_LIST, INT, INT), _LIST, _slice, _slice_price),),
        "flatten": (
            FunctionOverload(
                "list_flatten",
                (list_of(_LIST),),
                _LIST,
                _flatten,
                member=True,
                price=_flatten_price,
                guards=(list_of(DYN),),
            ),
            method(
                "list_flatten_int",
                (list_of(DYN), INT),
                list_of(DYN),
                _flatten,
                _flatten_price,
            ),
        ),
        "sort": _each_type("sort", _sort),
        "@sortByAssociatedKeys": _each_type("sortByAssociatedKeys", _sort_by, keys=True),
        "lists.range": (
            function(
                "lists_range",
                (INT,),
                list_of(INT),
                _range,
                lambda count: _allocated(1, max(0, count)),
            ),
        ),
        "reverse": (
            method(
                "list_reverse",
                (_LIST,),
                _LIST,
                lambda values: list(reversed(values)),
                lambda values: _allocated(1, len(values)),
            ),
        ),
        "distinct": (method("list_distinct", (_LIST,), _LIST, _distinct, _self_compared),),
    }
)


def _contains_all(values: list[Any], others: list[Any]) -> bool:
    return all(in_list(each, values) for each in others)


def _equivalent(values: list[Any], others: list[Any]) -> bool:
    return _contains_all(values, others) and _contains_all(others, values)


def _intersects(values: list[Any], others: list[Any]) -> bool:
    return any(in_list(each, others) for each in values)


def _product(values: list[Any], others: list[Any]) -> int:
    return 1 + len(values) * len(others)


def _product_twice(values: list[Any], others: list[Any]) -> int:
    return 1 + 2 * len(values) * len(others)


_PAIR: Final = (_LIST, _LIST)
_SETS: Final[Functions] = library(
    sets__contains=(function("list_sets_contains_list", _PAIR, BOOL, _contains_all, _product),),
    sets__equivalent=(
        function("list_sets_equivalent_list", _PAIR, BOOL, _equivalent, _product_twice),
    ),
    sets__intersects=(function("list_sets_intersects_list", _PAIR, BOOL, _intersects, _product),),
)

LISTS: Final = merged(_KUBERNETES, _EXTENSION, _SETS)
