"""Lists and objects are counted before they are made."""

import json

import pytest

from kedge.machinery.container_count import MOST, count_containers, has_too_many


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b'{"a": [{}, [1, 2]]}', 4),
        (b'{"[": "{[", "b": "\\"[[["}', 1),
        (b'["\\\\", {}]', 2),
        (b'["no end [', 2),
    ],
)
def test_brackets_in_strings_do_not_count(text: bytes, count: int) -> None:
    assert count_containers(text) == count


def test_a_text_with_too_many_is_told_from_a_long_string() -> None:
    assert has_too_many(b"[" + b"[]," * MOST + b"1]")
    assert not has_too_many(b"[" + b"[]," * (MOST - 1) + b"1]")
    assert not has_too_many(json.dumps({"data": "[" * 2 * MOST}).encode())
