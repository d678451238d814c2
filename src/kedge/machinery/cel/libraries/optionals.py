"""Optional values, and the insertion into maps that two-variable loops use."""

from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, function, method, named
from kedge.machinery.cel.operators import has_key, shown_key
from kedge.machinery.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    list_of,
    map_of,
    optional_of,
    parameter,
)
from kedge.machinery.cel.values import (
    NOTHING,
    CelDuration,
    Maybe,
    Timestamp,
)

_K: Final = parameter("K")
_V: Final = parameter("V")
_MAYBE: Final = optional_of(_V)


def _is_zero(value: Any) -> bool:
    if value is None or value is False:
        return True
    if isinstance(value, CelDuration):
        return value.nanos == 0
    if isinstance(value, Timestamp):
        return value.nanos == -62135596800 * 10**9
    if isinstance(value, int | float | str | bytes | list | dict):
        return not value
    return False


def _value(optional: Maybe) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def present_at(container: Any, key: Any) -> Maybe:
    """Return the element of a container if it has one; absent of an absent container."""
    if isinstance(container, Maybe):
        if not container.present:
            return NOTHING
        container = container.value
    if isinstance(container, dict):
        return Maybe(container[key]) if has_key(container, key) else NOTHING
    if isinstance(container, list):
        if type(key) is str:
            raise CelError("unsupported index type 'string' in list")
        if type(key) is not bool and isinstance(key, int) and 0 <= key < len(container):
            return Maybe(container[key])
    return NOTHING


def _first(values: list[Any]) -> Maybe:
    return Maybe(values[0]) if values else NOTHING


def _last(values: list[Any]) -> Maybe:
    return Maybe(values[-1]) if values else NOTHING


def _unwrapped(values: list[Maybe]) -> list[Any]:
    return [each.value for each in values if each.present]


def _insert(values: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if has_key(values, key):
        raise CelError(f"insert failed: key {shown_key(key)} already exists")
    # The loop's own map is not visible elsewhere, so it grows in place.
    values[key] = value
    return values


def _insert_all(values: dict[Any, Any], others: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in others.items():
        _insert(values, key, value)
    return values


_MAP: Final = map_of(_K, _V)

OPTIONALS: Final[Functions] = named(
    {
        "optional.of": (function("optional_of", (_V,), _MAYBE, Maybe),),
        "optional.ofNonZeroValue": (
            function(
                "optional_ofNonZeroValue",
                (_V,),
                _MAYBE,
                lambda value: NOTHING if _is_zero(value) else Maybe(value),
            ),
        ),
        "optional.none": (function("optional_none", (), _MAYBE, lambda: NOTHING),),
        "hasValue": (method("optional_hasValue", (_MAYBE,), BOOL, lambda o: o.present),),
        "value": (method("optional_value", (_MAYBE,), _V, _value),),
        "or": (
            method(
                "optional_or_optional", (_MAYBE, _MAYBE), _MAYBE, lambda a, b: a if a.present else b
            ),
        ),
        "orValue": (
            method(
                "optional_orValue_value",
                (_MAYBE, _V),
                _V,
                lambda a, b: a.value if a.present else b,
            ),
        ),
        "_?._": (function("select_optional_field", (DYN, STRING), DYN, present_at),),
        "_[?_]": (
            function("list_optindex_optional_int", (list_of(_V), INT), _MAYBE, present_at),
            function(
                "optional_list_optindex_optional_int",
                (optional_of(list_of(_V)), INT),
                _MAYBE,
                present_at,
            ),
            function("map_optindex_optional_value", (_MAP, _K), _MAYBE, present_at),
            function(
                "optional_map_optindex_optional_value", (optional_of(_MAP), _K), _MAYBE, present_at
            ),
        ),
        "_[_]": (
            function(
                "optional_list_index_int", (optional_of(list_of(_V)), INT), _MAYBE, present_at
            ),
            function("optional_map_index_value", (optional_of(_MAP), _K), _MAYBE, present_at),
        ),
        "first": (method("list_first", (list_of(_V),), _MAYBE, _first),),
        "last": (method("list_last", (list_of(_V),), _MAYBE, _last),),
        "optional.unwrap": (
            function("optional_unwrap", (list_of(_MAYBE),), list_of(_V), _unwrapped),
        ),
        "unwrapOpt": (method("optional_unwrapOpt", (list_of(_MAYBE),), list_of(_V), _unwrapped),),
        "cel.@mapInsert": (
            function("@mapInsert_map_key_value", (_MAP, _K, _V), _MAP, _insert),
            function("@mapInsert_map_map", (_MAP, _MAP), _MAP, _insert_all),
        ),
    }
)
