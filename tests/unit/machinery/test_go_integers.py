"""Integers beyond the range of their field become what Go makes of them."""

from typing import Any

import pytest

from kedge.machinery.go_integers import converted
from kedge.machinery.schema import Schema

SHORT = Schema(type="integer", format="int32")
LONG = Schema(type="integer", format="int64")
LEAST = -(1 << 63)


@pytest.mark.parametrize(
    ("given", "short", "long"),
    [
        (5, 5, 5),
        (-1, -1, -1),
        (1 << 31, -(1 << 31), 1 << 31),
        ((1 << 32) + 1, 1, (1 << 32) + 1),
        (1 << 63, 0, LEAST),
        (LEAST - 1, 0, LEAST),
        (1e30, 0, LEAST),
        (7.0, 7, 7),
        (1.5, 1.5, 1.5),
        (True, True, True),
        ("5", "5", "5"),
        (None, None, None),
    ],
)
def test_integers_are_cut_as_in_go(given: Any, short: Any, long: Any) -> None:
    assert converted(SHORT, given) == short
    assert converted(LONG, given) == long


def test_integers_are_found_wherever_they_are() -> None:
    inner = Schema(type="object", fields={"n": SHORT, "name": Schema(type="string")})
    schema = Schema(
        type="object",
        fields={
            "list": Schema(type="list", items=inner),
            "map": Schema(type="map", items=SHORT),
            "odd": Schema(type="list", items=SHORT),
        },
    )
    many = 1 << 32
    document = {
        "list": [{"n": many, "name": "a", "none": many}],
        "map": {"k": many},
        "odd": "text",
        "unknown": many,
    }
    assert converted(schema, document) == {
        "list": [{"n": 0, "name": "a", "none": many}],
        "map": {"k": 0},
        "odd": "text",
        "unknown": many,
    }
