"""JSON of servers that are written in Go: they print null for values that are not set.

Go leaves a field away only if its type says `omitempty`. A pointer, list, map or time without it is
printed as null: `lastProbeTime` of a condition, `ports` of an EndpointSlice, `items` of a list.
"""

from typing import Any


def without_nulls(value: Any) -> Any:
    """Return a document without the members that are null. Elements of lists keep their place."""
    match value:
        case dict():
            return {name: without_nulls(each) for name, each in value.items() if each is not None}
        case list():
            return [without_nulls(each) for each in value]
        case _:
            return value
