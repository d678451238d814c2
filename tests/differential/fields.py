"""Fields of a schema, one at a time: their paths, values that fit and values that do not."""

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.differential.schemas import ResolvedSchema

Path = tuple[str | int, ...]
LONG: Final = "x" * 300
TIME: Final = "2001-02-03T04:05:06Z"

_SERVER_SET: Final = {
    ("apiVersion",),
    ("kind",),
    ("metadata", "managedFields"),
    ("metadata", "selfLink"),
}
_DEEPEST: Final = 12


def paths(schema: ResolvedSchema) -> Iterator[tuple[Path, ResolvedSchema]]:
    """Yield each field below a schema, parents first; a type inside itself is entered once."""
    yield from _paths(schema, (), ())


def _paths(
    schema: ResolvedSchema, path: Path, names: tuple[str, ...]
) -> Iterator[tuple[Path, ResolvedSchema]]:
    if len(path) > _DEEPEST or names.count(schema.name) > (1 if schema.name else len(names)):
        return
    names = (*names, schema.name)
    for name in schema.get("properties", {}):
        below = (*path, name)
        if below in _SERVER_SET:
            continue
        field = schema.field(name)
        yield below, field
        yield from _paths(field, below, names)
    element = schema.element
    if element is not None:
        inner = (*path, 0 if schema.get("type") == "array" else "key")
        yield inner, element
        yield from _paths(element, inner, names)


def planted(base: Any, schema: ResolvedSchema, path: Path, value: Any) -> Any:
    """Return the document with a value at a path; missing parents get their required fields."""
    document = copy.deepcopy(base)
    place: Any = document
    for part, following in pairwise(path):
        inner = _below(schema, part)
        if inner is None:
            return None
        child = _child(place, part)
        if not isinstance(child, list if isinstance(following, int) else dict):
            child = [] if isinstance(following, int) else smallest(inner)
            _put(place, part, child)
        place, schema = child, inner
    _put(place, path[-1], value)
    return document


def _below(schema: ResolvedSchema, part: str | int) -> ResolvedSchema | None:
    if part in schema.get("properties", {}):
        return schema.field(str(part))
    return schema.element


def _child(place: Any, part: Any) -> Any:
    if isinstance(part, int):
        return place[part] if isinstance(place, list) and len(place) > part else None
    return place.get(part)


def _put(place: Any, part: Any, value: Any) -> None:
    if isinstance(part, int) and len(place) <= part:
        place.append(value)
    else:
        place[part] = value


def smallest(schema: ResolvedSchema) -> Any:
    """Return a value with nothing but the required fields."""
    match _kind(schema):
        case "object":
            wanted = schema.get("required", ())
            return {name: smallest(schema.field(name)) for name in wanted}
        case "list":
            element = schema.element
            return [smallest(element)] if element is not None else []
        case "map":
            return {}
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "time" | "micro-time":
            return TIME
        case "quantity" | "int-or-string":
            return "1"
        case "bytes":
            return "YQ=="
        case "string":
            return schema.get("enum", ["a"])[0]
        case _:
            return {}


def _kind(schema: ResolvedSchema) -> str:
    name, form = schema.name.rpartition(".")[2], schema.get("format", "")
    if name in ("Quantity", "IntOrString", "Time", "MicroTime"):
        spelled = {"IntOrString": "int-or-string", "MicroTime": "micro-time"}
        return spelled.get(name, name.lower())
    match schema.get("type"):
        case "object" if "properties" in schema:
            return "object"
        case "object":
            return "map" if schema.element is not None else "any"
        case "array":
            return "list"
        case "string" if form == "byte":
            return "bytes"
        case "string" | "integer" | "number" | "boolean" as plain:
            return str(plain)
        case _:
            return "any"


_WRONG: Final[dict[str, list[Any]]] = {
    "string": [5, True, [], {}, ["a"]],
    "integer": ["5", True, 1.5, {}, [], 2**31, 2**63, 2.0, 1e30],
    "number": ["5", True, {}],
    "boolean": ["true", 1, {}, []],
    "object": ["a", 5, [], [{}], True],
    "map": ["a", 5, [], True],
    "list": ["a", 5, {}, [5], ["a"], [[]], True],
    "time": ["", "a", 5, {}, "2001-02-03", "2001-02-03T04:05:06"],
    "micro-time": ["", "a", 5, {}, "2001-02-03"],
    "quantity": ["a", "", True, {}, "1 Gi", "1e", "--1"],
    "int-or-string": [True, {}, [], 1.5, 2**40],
    "bytes": ["not base64", 5, {}],
    "any": [],
}
_TRIED: Final[dict[str, list[Any]]] = {
    "string": ["", "a", "a-b", "A_b!", "-x", "a.b/c", "1", "10.0.0.1", "/a/../b", "ü", " ", LONG],
    "integer": [0, 1, -1, 2, 5, 100, 255, 80, 65535, 65536, 100_000, 2**31 - 1, -(2**31)],
    "number": [0, 1, -1, 0.5],
    "boolean": [True, False],
    "object": [{}, {"unknownField": 1}],
    "map": [{}, {"a": "b"}, {"key": None}, {"bad key!": "x"}, {"a/b/c": "x"}, {"": "x"}, {"a": 5}],
    "list": [[], [None], [{}], [""], ["a", "a"]],
    "time": [TIME, "2001-02-03T04:05:06.789Z", "2001-02-03T04:05:06+02:00"],
    "micro-time": [TIME, "2001-02-03T04:05:06.789012Z"],
    "quantity": [
        "1",
        1,
        "0",
        "-1",
        "1.5",
        "100m",
        "1Gi",
        "1e3",
        "0.1m",
        1.5,
        "12345678901234567890",
    ],
    "int-or-string": [0, 1, -1, "a", "50%", "150%", "-5%", "http", 65536, "", "1"],
    "bytes": ["YQ==", "", "YQ"],
    "any": [{}, "a", 5, [], {"a": 1}],
}


def values(schema: ResolvedSchema) -> Iterator[Any]:
    """Yield values for a field: some fit, some are of another type, some are out of range."""
    kind = _kind(schema)
    yield None
    yield from schema.get("enum", ())
    yield from _TRIED[kind]
    yield from _WRONG[kind]
    if kind in ("object", "list"):
        small = smallest(schema)
        yield small
        if kind == "list":
            yield [*small, *copy.deepcopy(small)]
