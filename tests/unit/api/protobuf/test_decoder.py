"""Decoding of protobuf bodies, with bodies recorded from kubectl 1.36."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.protobuf import decoder
from kedge.api.protobuf.messages import MAGIC

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("bodies.json").read_text())
BODIES = [base64.b64decode(each["body"]) for each in RECORDED]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    head = block(1, block(1, api_version) + block(2, kind))
    return MAGIC + head + block(2, raw) + block(3, "") + block(4, "")


def decoded(api_version: str, kind: str, raw: bytes) -> dict[str, Any]:
    document = decoder.decode(body(api_version, kind, raw))
    assert (document.pop("apiVersion"), document.pop("kind")) == (api_version, kind)
    return document


@pytest.mark.parametrize("case", RECORDED, ids=[each["command"] for each in RECORDED])
def test_bodies_of_kubectl_become_what_it_would_have_sent_as_json(case: dict[str, Any]) -> None:
    assert decoder.decode(base64.b64decode(case["body"])) == case["document"]


def test_zero_of_a_pointer_is_kept_and_zero_of_a_plain_field_dropped() -> None:
    meta = block(1, "web") + block(2, "") + number(7, 0) + block(8, b"")
    spec = number(1, 0) + number(5, 0)  # replicas is a pointer, minReadySeconds is not
    document = decoded("apps/v1", "Deployment", block(1, meta) + block(2, spec))
    assert document == {"metadata": {"name": "web"}, "spec": {"replicas": 0}}


def test_empty_text_is_kept_only_where_it_means_something() -> None:
    # storageClassName: "" asks for no class at all; volumeName: "" for nothing.
    spec = block(3, "") + block(5, "")
    document = decoded("v1", "PersistentVolumeClaim", block(2, spec))
    assert document == {"spec": {"storageClassName": ""}}


def test_present_message_without_fields_is_an_empty_object() -> None:
    volume = block(1, "tmp") + block(2, block(2, b""))  # volumeSource { emptyDir {} }
    document = decoded("v1", "Pod", block(2, block(1, volume)))
    assert document == {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}


def test_times_are_written_as_json_writes_them() -> None:
    spec = block(4, number(1, 1_700_000_000) + number(2, 123_456_789)) + block(3, b"")
    assert decoded("coordination.k8s.io/v1", "Lease", block(2, spec)) == {
        "spec": {"renewTime": "2023-11-14T22:13:20.123456Z"}
    }
    meta = block(8, number(1, 0) + number(2, 0))
    assert decoded("v1", "Pod", block(1, meta)) == {
        "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}
    }


def test_int_or_string_is_one_of_the_two() -> None:
    ports = [number(1, 0) + number(2, 8080) + block(3, ""), number(1, 1) + block(3, "http")]
    spec = b"".join(block(1, number(3, 80) + block(4, port)) for port in ports)
    shown = decoded("v1", "Service", block(2, spec))["spec"]["ports"]
    assert [port["targetPort"] for port in shown] == [8080, "http"]


def test_maps_bytes_and_extra_values_have_their_json_form() -> None:
    entry = block(1, "token") + block(2, b"\x00\xff")
    assert decoded("v1", "Secret", block(2, entry)) == {"data": {"token": "AP8="}}
    extra = block(1, "scopes") + block(2, block(1, "a") + block(1, "b"))
    user = block(3, "g") + block(4, extra)  # groups, extra of userInfo
    review = block(2, block(1, user))
    assert decoded("authentication.k8s.io/v1", "SelfSubjectReview", review) == {
        "status": {"userInfo": {"groups": ["g"], "extra": {"scopes": ["a", "b"]}}}
    }


def test_schemas_of_crds_keep_their_choices() -> None:
    text = block(5, "string")
    props = (
        block(24, block(1, text))  # items: a schema
        + block(30, number(1, 0))  # additionalProperties: false
        + block(33, number(1, 1) + block(2, text))  # additionalItems: a schema
        + block(8, block(1, b'{"a":[1]}'))  # default
        + block(20, block(1, b"null"))  # enum: [null]
        + number(38, 0)  # x-kubernetes-preserve-unknown-fields: false
    )
    version = block(1, "v1") + block(4, block(1, props))
    spec = block(7, version)
    document = decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", block(2, spec))
    (shown,) = document["spec"]["versions"]
    assert shown["schema"]["openAPIV3Schema"] == {
        "items": {"type": "string"},
        "additionalProperties": False,
        "additionalItems": {"type": "string"},
        "default": {"a": [1]},
        "enum": [None],
        "x-kubernetes-preserve-unknown-fields": False,
    }


def test_delete_options_are_known_in_every_group() -> None:
    raw = number(1, 0) + block(4, "Foreground") + block(5, "All")
    expected = {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "dryRun": ["All"]}
    assert decoded("v1", "DeleteOptions", raw) == expected
    assert decoded("apps/v1", "DeleteOptions", raw) == expected


def test_negative_numbers_and_unknown_fields() -> None:
    raw = number(2, -5) + number(999, 1) + block(998, b"x")
    assert decoded("scheduling.k8s.io/v1", "PriorityClass", raw) == {"value": -5}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{}", "does not appear to be a protobuf"),
        (body("v1", "Nonsense", b""), 'no kind "Nonsense" is registered for version "v1"'),
        (body("authentication.k8s.io/v1", "ExtraValue", b""), "no kind"),
        (body("v1", "Pod", block(1, b"\x0a\xff")), "unexpected EOF"),
        (body("v1", "Pod", number(1, 7)), "wrong wireType = 0"),
        (body("v1", "Pod", b"\x0b"), "illegal wireType 3"),
        (body("v1", "Pod", block(1, block(1, b"\xff"))), "utf-8"),
        (body("v1", "Pod", block(1, block(8, number(1, 1 << 62)))), "out of range"),
        (body("apps/v1", "ControllerRevision", block(2, block(1, b"{"))), "invalid JSON"),
    ],
)
def test_malformed_bodies_are_refused_in_words(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decoder.decode(raw)


def test_deep_nesting_is_refused() -> None:
    props = b""
    for _ in range(200):
        props = block(28, props)  # not: {not: {not: ...}}
    spec = block(7, block(4, block(1, props)))
    with pytest.raises(ValueError, match="nested too deeply"):
        decoder.decode(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", block(2, spec)))


@given(st.sampled_from(BODIES), st.data())
def test_whatever_arrives_gives_a_document_or_a_value_error(
    sent: bytes, data: st.DataObject
) -> None:
    changed = bytearray(sent)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    with contextlib.suppress(ValueError):
        json.dumps(decoder.decode(broken))


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Node", "Service", "Event", "ConfigMap"]))
def test_random_bytes_give_a_document_or_a_value_error(raw: bytes, kind: str) -> None:
    with contextlib.suppress(ValueError):
        json.dumps(decoder.decode(body("v1", kind, raw)))
