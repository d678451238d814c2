"""Lists of objects: what their items show, and how they are divided into pieces."""

import json
import sys
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.apiserver.test_render import META, item, tables

from kedge.api.autoscaling_v1.horizontal_pod_autoscaler import RESOURCE as FIRST_AUTOSCALERS
from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import RESOURCE as AUTOSCALERS
from kedge.api.core_v1.config_map import RESOURCE
from kedge.api.resource import Resource
from kedge.apiserver import object_lists
from kedge.apiserver.watchcache import Item


def _stored(resource: Resource[Any], separators: tuple[str, str]) -> Item:
    document = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3},
    }
    return Item("/registry/a", 1, json.dumps(document, separators=separators).encode())


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["written here", "foreign"])
@pytest.mark.parametrize(
    "resource", [RESOURCE, AUTOSCALERS, FIRST_AUTOSCALERS], ids=lambda each: each.api_version
)
def test_items_of_lists_do_not_repeat_the_kind(
    resource: Resource[Any], separators: tuple[str, str], form: str
) -> None:
    stored = resource.store_as.resource if resource.store_as else resource
    items = [_stored(stored, separators)] * 2
    make = object_lists.list_pieces if form == "json" else object_lists.yaml_list_pieces
    listed = yaml.safe_load(b"".join(make(resource, items, META)))
    assert (listed["kind"], listed["apiVersion"]) == (resource.list_kind, resource.api_version)
    assert [next(iter(each)) for each in listed["items"]] == ["metadata", "metadata"]
    assert "kind" not in listed["items"][0]
    assert "apiVersion" not in listed["items"][0]


def test_items_of_custom_resources_say_what_they_are() -> None:
    custom = replace(RESOURCE, custom=True)
    (piece,) = object_lists.list_pieces(custom, [_stored(custom, (",", ":"))], META)
    assert json.loads(piece)["items"][0]["kind"] == "ConfigMap"


@pytest.mark.parametrize("count", [0, 1, 5, 900])
@pytest.mark.parametrize("size", [10, 3_000, object_lists.TURN])
def test_a_list_is_indented_piece_by_piece(count: int, size: int) -> None:
    items = [
        item(number, size) for number in range(count if size < object_lists.TURN else count % 7)
    ]
    for plain in (object_lists.list_pieces, lambda *rest: tables(rest[1])):
        whole = b"".join(plain(RESOURCE, items, META))
        indented = b"".join(object_lists.indented_pieces(plain(RESOURCE, items, META)))
        assert indented == msgspec.json.format(whole, indent=2) + b"\n"


@pytest.mark.parametrize("large", [0, 1, 2])
def test_a_large_object_in_an_indented_list_is_sent_as_it_is(large: int) -> None:
    sizes = [object_lists.INDENTED_BYTES + 1 if i == large else 300_000 for i in range(3)]
    items = [item(i, size) for i, size in enumerate(sizes)]
    whole = b"".join(object_lists.list_pieces(RESOURCE, items, META))
    pieces = list(object_lists.indented_pieces(object_lists.list_pieces(RESOURCE, items, META)))
    assert json.loads(b"".join(pieces)) == json.loads(whole)
    longest = max(pieces, key=len)
    assert longest.count(b"\n") <= 1


def test_no_document_is_decoded_while_a_piece_of_yaml_is_sent() -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{%b}}' % (
        b",".join(b'"key-%d":"%b"' % (i, b"v" * 90) for i in range(3_000))
    )
    items = [Item(f"/registry/configmaps/default/{i}", i, body) for i in range(3)]
    assert b"key-2999" in b"".join(object_lists.yaml_list_pieces(RESOURCE, items[:1], META))
    before = sys.getallocatedblocks()
    pieces = object_lists.yaml_list_pieces(RESOURCE, items, META)
    first = next(pieces)
    # A decoded document has 6,000 blocks.
    assert sys.getallocatedblocks() - before < 1_000
    assert len(first) + sum(map(len, pieces)) > 3 * len(body)


GROUPS = st.lists(st.lists(st.sampled_from([b"1", b"22", b"3" * object_lists.PIECE]), max_size=3))


@given(GROUPS, st.sampled_from([b"", b"{"]))
def test_pieces_are_the_whole_list_however_it_is_divided(
    groups: list[list[bytes]], opening: bytes
) -> None:
    pieces = list(object_lists.joined(b"[", groups, b"]", opening=opening))
    elements = [opening + element for group in groups for element in group]
    assert b"".join(pieces) == b"[" + b",".join(elements) + b"]"


def test_large_objects_are_not_gathered_into_one_piece() -> None:
    items = [item(number, object_lists.PIECE) for number in range(object_lists.TOGETHER)]
    pieces = list(object_lists.list_pieces(RESOURCE, items, META))
    assert max(map(len, pieces)) < 2 * object_lists.PIECE
