"""The protobuf form of OpenAPI version 2, read back by the rules of the wire format."""

from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.openapi_protobuf import encode

Fields = dict[int, list[Any]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Fields:
    """The fields of a message: numbers as they are, all else as bytes."""
    found: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            found[tag >> 3].append(value)
            continue
        size, at = varint(data, at) if tag & 7 == 2 else (8, at)
        found[tag >> 3].append(data[at : at + size])
        at += size
    assert at == len(data)
    return found


def at(data: bytes, *path: int) -> Any:
    """The first value at a path of field numbers."""
    for number in path:
        data = fields(data)[number][0]
    return data


def definition(schema: dict[str, Any]) -> bytes:
    """What is written for one schema."""
    written: bytes = at(encode({"definitions": {"io.Boat": schema}}), 9, 1)
    assert at(written, 1) == b"io.Boat"
    value: bytes = at(written, 2)
    return value


def test_a_schema_keeps_what_kubectl_looks_up() -> None:
    schema = definition(
        {
            "type": "object",
            "description": "A boat.",
            "required": ["owner", "crew"],
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "Boat", "version": "v1"}],
            "properties": {
                "owner": {"$ref": "#/definitions/io.Person"},
                "crew": {"type": "array", "items": {"type": "string"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    )
    assert at(schema, 22, 1) == b"object"
    assert at(schema, 4) == b"A boat."
    assert fields(schema)[19] == [b"owner", b"crew"]
    extension = at(schema, 31)
    assert at(extension, 1) == b"x-kubernetes-group-version-kind"
    assert msgspec.yaml.decode(at(extension, 2, 2))[0]["kind"] == "Boat"
    properties = {at(entry, 1): at(entry, 2) for entry in fields(at(schema, 25))[1]}
    assert list(properties) == [b"owner", b"crew", b"labels"]
    assert at(properties[b"owner"], 1) == b"#/definitions/io.Person"
    assert at(properties[b"crew"], 23, 1, 22, 1) == b"string"
    assert at(properties[b"labels"], 21, 1, 22, 1) == b"string"


def test_an_operation_is_found_by_path_and_method() -> None:
    operation = {
        "operationId": "listBoats",
        "produces": ["application/json"],
        "parameters": [
            {"name": "limit", "in": "query", "type": "integer"},
            {"name": "namespace", "in": "path", "type": "string", "required": True},
            {"name": "body", "in": "body", "schema": {"$ref": "#/definitions/io.Boat"}},
        ],
        "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/io.Boat"}}},
    }
    path = at(encode({"paths": {"/boats": {"get": operation}}}), 8, 2)
    assert at(path, 1) == b"/boats"
    written = at(path, 2, 2)
    assert at(written, 5) == b"listBoats"
    query, place, body = fields(written)[8]
    assert at(query, 1, 2, 3, 4) == b"limit"
    assert at(place, 1, 2, 4, 4) == b"namespace"
    assert at(place, 1, 2, 4, 1) == 1
    assert at(body, 1, 1, 5, 1) == b"#/definitions/io.Boat"
    response = at(written, 9, 1)
    assert at(response, 1) == b"200"
    assert at(response, 2, 1, 2, 1, 1) == b"#/definitions/io.Boat"


@given(st.integers(min_value=0, max_value=2**63 - 1), st.text(max_size=300))
def test_numbers_and_texts_come_back(number: int, text: str) -> None:
    schema = definition({"maxLength": number, "description": text, "uniqueItems": True})
    assert at(schema, 11) == number
    assert at(schema, 4) == text.encode()
    assert at(schema, 16) == 1
