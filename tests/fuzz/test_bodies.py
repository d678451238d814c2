"""Bodies and patches: each is read, applied or refused with a status of its own."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.apiserver import body
from kedge.machinery import patch, strategic
from kedge.machinery.errors import StatusError
from kedge.machinery.patch import PatchError
from kedge.machinery.schema import Schema

TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.text(max_size=5) | st.sampled_from(
    ["a", "b", "$patch", "$retainKeys", "$setElementOrder/a", "$deleteFromPrimitiveList/a", "name"]
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["merge", "replace", "delete"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)
ITEM = Schema(type="object", fields={"name": Schema(type="string"), "a": Schema(type="string")})
SCHEMA = Schema(
    type="object",
    fields={
        "a": Schema(type="array", items=ITEM, merge_key="name"),
        "b": Schema(type="object", fields={"a": Schema(type="string")}),
    },
)


def yaml_texts() -> st.SearchStrategy[bytes]:
    piece = st.sampled_from(
        [
            *(
                "a: ",
                "- ",
                "\n",
                "  ",
                "&a ",
                "*a",
                "<<: ",
                "{",
                "}",
                "[",
                "]",
                "|\n",
                ">-\n",
                "? ",
            ),
            *(">-\n", ": ", "!!int ", "!!python/object:os.system ", "'", '"', "1", "x", "yes", "#"),
            *("---\n", "0x1"),
        ]
    )
    return st.lists(piece, max_size=80).map(lambda pieces: "".join(pieces).encode())


@pytest.mark.parametrize("type_", TYPES)
@given(data=st.binary(max_size=400) | yaml_texts() | VALUES.map(lambda v: json.dumps(v).encode()))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"- " * 50_000)
@example(b"a: &a [" + b"*a," * 10_000 + b"]")
@example(b'{"a":' + b"9" * 100_000 + b"}")
@example(b'{"a":1e999999999}')
@example(b'{"a":"\\ud800"}')
@example(b"k8s\x00" + b"\x12\xff\xff\xff\xff\x0f")
def test_a_body_is_read_or_refused_with_a_status(type_: str, data: bytes) -> None:
    with contextlib.suppress(StatusError):
        body.read(type_, data)


@given(DOCUMENTS, VALUES)
def test_a_merge_patch_is_applied_or_refused(document: dict[str, Any], change: Any) -> None:
    with contextlib.suppress(PatchError):
        patch.apply_merge(document, change)


@given(DOCUMENTS, DOCUMENTS)
def test_a_strategic_patch_is_applied_or_refused(
    document: dict[str, Any], change: dict[str, Any]
) -> None:
    before = json.dumps(document)
    with contextlib.suppress(PatchError):
        strategic.apply(SCHEMA, document, change)
    assert json.dumps(document) == before


OPERATION = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
        "path": st.lists(KEYS, max_size=3).map(lambda parts: "".join(f"/{p}" for p in parts)),
        "from": st.lists(KEYS, max_size=3).map(lambda parts: "".join(f"/{p}" for p in parts)),
        "value": VALUES,
    },
)


@given(DOCUMENTS, st.lists(OPERATION | VALUES, max_size=6) | VALUES)
def test_a_json_patch_is_applied_or_refused(document: dict[str, Any], operations: Any) -> None:
    before = json.dumps(document)
    with contextlib.suppress(PatchError):
        patch.apply_json(document, operations)
    assert json.dumps(document) == before
