"""Answers in protobuf mean the same as those in JSON."""

import struct
from typing import Any

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.api.model import ListMeta
from kedge.api.protobuf import decoder
from kedge.api.protobuf.encoder import envelope
from kedge.api.protobuf.messages import MEDIA_TYPE
from kedge.apiserver import protobuf_answers
from kedge.apiserver.long_work import LONG
from kedge.apiserver.watchcache import Item
from kedge.machinery.protobuf_wire import BYTES, fields
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
PARTIAL = f"{MEDIA_TYPE};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
BOTH = f"{MEDIA_TYPE},application/json"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": name}}, "data": data or {"k": "v"}}


def objects_of(body: bytes, api_version: str, kind: str) -> list[dict[str, Any]]:
    """The objects of an encoded list."""
    raw = next(value for number, _, value in fields(body[4:]) if number == 2)
    items = [value for number, _, value in fields(raw) if number == 2]
    return [decoder.decode(envelope(api_version, kind, item)) for item in items]


def events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The events of an encoded watch."""
    found = []
    while stream:
        (length,) = struct.unpack(">I", stream[:4])
        frame, stream = stream[4 : 4 + length], stream[4 + length :]
        parts = {number: value for number, wire, value in fields(frame) if wire == BYTES}
        (_, _, body) = next(fields(parts[2]))
        found.append((parts[1].decode(), decoder.decode(body)))
    return found


async def test_an_object_is_the_same_in_both_forms(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map("a"), accept=BOTH)
    assert made == await server.get(f"{MAPS}/a")
    answer = await server.call("GET", f"{MAPS}/a", accept=MEDIA_TYPE)
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert answer.document == made


async def test_a_change_is_seen_in_protobuf_too(server: LocalServer) -> None:
    await server.post(MAPS, config_map("a"))
    assert (await server.get(f"{MAPS}/a", accept=BOTH))["data"] == {"k": "v"}
    await server.put(f"{MAPS}/a", config_map("a", k="w"))
    assert (await server.get(f"{MAPS}/a", accept=BOTH))["data"] == {"k": "w"}


async def test_metadata_alone_comes_in_protobuf_too(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map("a"))
    answer = await server.call("GET", f"{MAPS}/a", accept=PARTIAL)
    body = decoder.decode(answer.data)
    assert body == {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": made["metadata"],
    }


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("size", [1, 5_000])
async def test_a_list_holds_all_objects(server: LocalServer, count: int, size: int) -> None:
    for number in range(count):
        await server.post(MAPS, config_map(f"m{number:02}", k="x" * size))
    expected = await server.get(MAPS)
    answer = await server.call("GET", MAPS, accept=BOTH)
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    listed = objects_of(answer.data, "v1", "ConfigMap")
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert listed == [head | each for each in expected["items"]]
    partial = f"{MEDIA_TYPE};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = await server.call("GET", MAPS, accept=partial)
    shown = objects_of(answer.data, "meta.k8s.io/v1", "PartialObjectMetadata")
    assert [each["metadata"] for each in shown] == [each["metadata"] for each in listed]


def test_large_lists_are_encoded_in_turns_and_not_kept() -> None:
    body = b'{"metadata":{"name":"a"},"data":{"a":"%b"}}' % (b"x" * protobuf_answers.TURN)
    items = [Item(f"/registry/configmaps/default/{n}", n, body) for n in range(5)]
    pieces = protobuf_answers.list_pieces(RESOURCE, items, ListMeta(resourceVersion="7"))
    lengths = [len(piece) for piece in pieces]
    assert lengths[:5] == [0] * 5
    assert len([length for length in lengths if length > protobuf_answers.TURN]) == 5
    assert all(item.protobuf is None for item in items)


async def test_a_watch_sends_events_and_bookmarks_in_frames(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map("a"))
    watching = await server.watch(
        f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        "&sendInitialEvents=true",
        accept=BOTH,
    )
    large = await server.post(MAPS, config_map("b", k="x" * 2 * LONG))
    await server.call("DELETE", f"{MAPS}/a")
    await server.settle()
    while len(found := events(watching.sink.data)) < 4:
        await server.settle()
    assert [type_ for type_, _ in found] == ["ADDED", "BOOKMARK", "ADDED", "DELETED"]
    assert found[0][1] == made
    assert found[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert found[2][1] == large


async def test_an_error_has_the_form_that_is_preferred(server: LocalServer) -> None:
    answer = await server.call("GET", f"{MAPS}/missing", accept=BOTH)
    assert (answer.status, answer.headers["Content-Type"]) == (404, MEDIA_TYPE)
    plain = await server.call("GET", f"{MAPS}/missing")
    assert answer.document == plain.document
    yaml = await server.call("GET", f"{MAPS}/missing", accept="application/yaml")
    assert yaml.headers["Content-Type"] == "application/yaml"
    assert "reason: NotFound" in yaml.text


async def test_a_review_is_answered_in_protobuf(server: LocalServer) -> None:
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    answer = await server.call(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        review,
        accept=BOTH,
    )
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert answer.document["status"]["allowed"] is True


async def test_custom_resources_are_never_protobuf(server: LocalServer) -> None:
    crd = {
        "metadata": {"name": "configmaps.apps.example.com"},
        "spec": {
            "group": "apps.example.com",
            "scope": "Namespaced",
            "names": {"plural": "configmaps", "kind": "Deployment"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    await server.clock.advance(2)
    url = "/apis/apps.example.com/v1/namespaces/default/configmaps"
    answer = await server.call("GET", url, accept=BOTH)
    assert answer.headers["Content-Type"] == "application/json"
    refused = await server.call("GET", url, accept=MEDIA_TYPE)
    assert refused.status == 406
