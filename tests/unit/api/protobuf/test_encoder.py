"""Encoding of protobuf answers: decoding them gives the same documents."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.api.catalog import BUILT_IN
from kedge.api.protobuf import decoder
from kedge.api.protobuf.encoder import encode, envelope
from kedge.api.protobuf.messages import MessageField, fields_of, message_name

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("bodies.json").read_text())
KINDS = sorted({(each.api_version, each.kind, each.message) for each in BUILT_IN if each.message})
Documents = st.SearchStrategy[Any]

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
BYTES = st.binary(max_size=5).map(lambda data: base64.b64encode(data).decode())
WHOLE = st.integers(-(2**63), 2**63 - 1).filter(bool)
SCALARS: dict[str, Documents] = {
    "string": NAMES,
    "int": WHOLE,
    "bool": st.just(True),
    "double": st.floats(allow_nan=False, allow_infinity=False).filter(bool),
    "bytes": BYTES.filter(bool),
    "json": st.dictionaries(NAMES, NAMES | st.integers(), min_size=1, max_size=2),
    "quantity": st.sampled_from(["1", "500m", "1Gi"]),
    "int-or-string": WHOLE.map(lambda value: value >> 33 or 1) | st.just("50%"),
    "time": st.sampled_from(
        ["1969-12-31T23:59:59Z", "2030-01-02T03:04:05Z", "0001-01-02T00:00:00Z"]
    ),
    "micro-time": st.sampled_from(["2030-01-02T03:04:05.000006Z", "1969-12-31T23:59:59.999999Z"]),
    "duration": st.sampled_from(["1m30s", "1ms"]),
}
ZEROS: dict[str, Any] = {"string": "", "int": 0, "bool": False, "double": 0.0}


def documents(message: str, depth: int) -> Documents:
    """Documents of a message whose fields all survive: Go drops zeros of fields that are no
    pointers, and empty lists and maps."""
    known = fields_of(message)
    if any(field.name == "*" for field in known.values()):
        return st.one_of([values(field, depth) for field in known.values() if depth or field.many])
    fields: dict[str, Documents] = {}
    inline: list[Documents] = []
    for field in known.values():
        if field.name == ".":
            inline.append(documents(field.type, depth))
        elif depth or "." not in field.type:
            fields[field.name] = values(field, depth)
    own = st.fixed_dictionaries({}, optional=fields)
    for each in inline:
        own = st.tuples(own, each).map(lambda pair: pair[1] | pair[0])
    return own


def values(field: MessageField, depth: int) -> Documents:
    if "." in field.type:
        element = st.deferred(lambda: documents(field.type, depth - 1))
    else:
        element = SCALARS[field.type]
        if (field.pointer or field.kept) and field.type in ZEROS:
            element |= st.just(ZEROS[field.type])
    match field.many:
        case "list":
            return st.lists(element, min_size=1, max_size=2)
        case "map":
            return st.dictionaries(NAMES, element, min_size=1, max_size=2)
        case _:
            return element


@pytest.mark.parametrize(("api_version", "kind", "message"), KINDS)
@settings(max_examples=5, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_an_encoded_object_decodes_to_the_same_document(
    api_version: str, kind: str, message: str, data: st.DataObject
) -> None:
    document = data.draw(documents(message, 4))
    body = envelope(api_version, kind, encode(message, document))
    assert decoder.decode(body) == {"apiVersion": api_version, "kind": kind} | document


def test_most_built_in_kinds_have_a_message() -> None:
    without = {each.group for each in BUILT_IN if not each.message}
    assert without == {"metrics", "metrics.k8s.io", "scheduling.kedge"}


@pytest.mark.parametrize("case", RECORDED, ids=[each["command"] for each in RECORDED])
def test_documents_of_kubectl_survive(case: dict[str, Any]) -> None:
    document = dict(case["document"])
    api_version, kind = document["apiVersion"], document["kind"]
    body = envelope(api_version, kind, encode(message_name(api_version, kind), document))
    assert decoder.decode(body) == document


@pytest.mark.parametrize(
    ("message", "document", "encoded"),
    [
        ("core.v1.ConfigMap", {"data": {"a": "b"}}, b"\x12\x06\x0a\x01a\x12\x01b"),
        ("core.v1.ConfigMap", {"data": {"a": ""}}, b"\x12\x05\x0a\x01a\x12\x00"),
        ("core.v1.ConfigMap", {"data": None, "unknown": 5}, b""),
        ("core.v1.Volume", {"emptyDir": {}}, b"\x12\x02\x12\x00"),
        ("core.v1.ObjectReference", {"name": "x" * 200}, b"\x1a\xc8\x01" + b"x" * 200),
        ("meta.v1.Status", {"code": -1}, b"\x30" + b"\xff" * 9 + b"\x01"),
        ("core.v1.PodSecurityContext", {"supplementalGroups": [1, 2]}, b"\x20\x01\x20\x02"),
    ],
)
def test_the_bytes_are_those_of_the_wire_format(
    message: str, document: dict[str, Any], encoded: bytes
) -> None:
    assert encode(message, document) == encoded


def test_a_schema_allows_what_it_describes() -> None:
    message = "apiextensions.v1.JSONSchemaProps"
    assert encode(message, {"additionalProperties": False}) == b"\xf2\x01\x02\x08\x00"
    assert encode(message, {"additionalProperties": {}}) == b"\xf2\x01\x04\x08\x01\x12\x00"
    assert encode(message, {"items": [{}, {"type": "x"}]})[2:] == b"\x07\x12\x00\x12\x03\x2a\x01x"
