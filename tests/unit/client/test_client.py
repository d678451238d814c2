from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.api import catalog
from kedge.api.apiextensions_v1 import custom_resource_definition
from kedge.api.core_v1 import config_map
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.model import Document, ObjectMeta
from kedge.api.resource import Resource
from kedge.client.client import (
    APPLY_PATCH,
    Client,
    DeletionOptions,
    DeletionPreconditions,
    error_of,
    path_of,
)
from kedge.client.transport import Body, Call, LocalSink, LocalTransport, WatchInflow
from kedge.client.view import PARTIAL, PARTIAL_LIST, outlines
from kedge.machinery import yaml_text
from kedge.machinery.errors import StatusError, expired, not_found
from kedge.machinery.foreign_json import without_nulls

CONFIG_MAPS = config_map.RESOURCE
WIDGETS = Resource(type=Document, group="example.com", plural="widgets", kind="Widget")


@dataclass
class Said:
    body: Body = b"{}"
    status: int = 200
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


class Listener:
    """A server that notes what it is asked and always says the same."""

    def __init__(self, answer: object = None, status: int = 200) -> None:
        self.calls: list[Call] = []
        self._answer = msgspec.json.encode({} if answer is None else answer)
        self._status = status
        self.client = Client(LocalTransport(self._hear), user_agent="tester/1")

    def _hear(self, call: Call) -> Said | Awaitable[Said]:
        self.calls.append(call)
        return Said(self._answer, self._status)

    @property
    def asked(self) -> str:
        call = self.calls[-1]
        return f"{call.method} {call.path}" + (f"?{call.query}" if call.query else "")

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.calls[-1].body)


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "path"),
    [
        (CONFIG_MAPS, "", "", "", "/api/v1/configmaps"),
        (CONFIG_MAPS, "ns", "x", "", "/api/v1/namespaces/ns/configmaps/x"),
        (WIDGETS, "ns", "x", "status", "/apis/example.com/v1/namespaces/ns/widgets/x/status"),
        (WIDGETS, "ns", "a/b c", "", "/apis/example.com/v1/namespaces/ns/widgets/a%2Fb%20c"),
        (
            custom_resource_definition.RESOURCE,
            "ignored",
            "x",
            "",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x",
        ),
    ],
)
def test_every_resource_has_its_path(
    resource: Resource[Any], namespace: str, name: str, subresource: str, path: str
) -> None:
    assert path_of(resource, namespace, name, subresource) == path


async def test_what_is_sent_names_its_kind_and_comes_back_typed() -> None:
    server = Listener({"metadata": {"name": "a", "uid": "u"}, "data": {"k": "v"}})
    sent = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns"), data={"k": "v"})
    got = await server.client.create(CONFIG_MAPS, sent, field_manager="me")
    assert server.asked == "POST /api/v1/namespaces/ns/configmaps?fieldManager=me"
    assert server.body["kind"] == "ConfigMap"
    assert got.metadata.uid == "u"
    assert got.data == {"k": "v"}


async def test_documents_keep_every_field() -> None:
    server = Listener({"metadata": {"name": "w"}, "spec": {"size": 3}})
    assert (await server.client.get(WIDGETS, "w", "ns")).content == {"spec": {"size": 3}}


async def test_selectors_are_escaped() -> None:
    server = Listener({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": []})
    listing = await server.client.list(CONFIG_MAPS, labels="app in (a,b)", fields="x!=y", limit=5)
    query = "labelSelector=app+in+%28a%2Cb%29&fieldSelector=x%21%3Dy&limit=5"
    assert server.asked == f"GET /api/v1/configmaps?{query}"
    assert (listing.version, listing.continue_) == ("7", "next")


async def test_an_outline_is_all_that_is_asked_for() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o"}
    meta = {"name": "a", "uid": "u", "ownerReferences": [owner], "finalizers": ["f"]}
    server = Listener({"metadata": meta, "items": [{"metadata": meta}]})
    one = await server.client.get_as(outlines(CONFIG_MAPS), "a", "ns")
    assert server.calls[-1].headers["accept"] == PARTIAL
    listing = await server.client.list_as(outlines(CONFIG_MAPS))
    assert server.calls[-1].headers["accept"] == PARTIAL_LIST
    assert listing.items == [one]
    assert one.metadata.owner_references[0].uid == "o"


async def test_delete_says_how() -> None:
    server = Listener()
    options = DeletionOptions(
        propagation_policy="Orphan", preconditions=DeletionPreconditions(uid="u")
    )
    await server.client.delete(CONFIG_MAPS, "a", "ns", options=options)
    assert server.body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u"},
    }


async def test_an_applied_patch_says_what_it_is() -> None:
    server = Listener({"metadata": {"name": "a"}})
    await server.client.patch(
        CONFIG_MAPS, "a", {"data": {}}, "ns", form=APPLY_PATCH, field_manager="me", force=True
    )
    assert server.asked.endswith("?fieldManager=me&force=true")
    assert server.calls[-1].headers["content-type"] == "application/apply-patch+yaml"


async def test_a_subresource_of_another_kind_is_spoken_with_in_documents() -> None:
    server = Listener({"kind": "Scale", "spec": {"replicas": 2}})
    answer = await server.client.exchange("GET", WIDGETS, "w", "scale", namespace="ns")
    assert server.asked == "GET /apis/example.com/v1/namespaces/ns/widgets/w/scale"
    assert answer["spec"] == {"replicas": 2}


async def test_a_failure_is_raised_as_what_the_server_threw() -> None:
    server = Listener(not_found("", "configmaps", "a").status(), 404)
    with pytest.raises(StatusError, match='configmaps "a" not found') as caught:
        await server.client.get(CONFIG_MAPS, "a", "ns")
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")


def test_a_refusal_without_a_kind_is_understood() -> None:
    error = error_of(504, b'{"metadata":{},"status":"Failure","message":"late","code":504}')
    assert (error.code, str(error)) == (504, "late")


def test_an_answer_that_is_no_status_is_an_error_all_the_same() -> None:
    error = error_of(404, b"404 page not found\n")
    assert (error.code, str(error)) == (404, "404 page not found")


async def test_events_that_arrive_in_pieces_are_put_together() -> None:
    async def piecemeal(sink: LocalSink) -> None:
        sink.write(b'{"type":"ADDED","object":{"metadata":{"name":"a","resour')
        sink.write(b'ceVersion":"5"}}}\n{"type":"BOOKMARK","object":{"meta')
        sink.write(b'data":{"resourceVersion":"9"}}}\n')

    client = Client(LocalTransport(lambda call: Said(piecemeal)))
    async with client.watch(CONFIG_MAPS, version="1") as events:
        seen = [(event.type, event.version, event.object.metadata.name) async for event in events]
    assert seen == [("ADDED", "5", "a"), ("BOOKMARK", "9", "")]


async def test_events_that_are_told_and_events_in_writing_keep_their_order() -> None:
    async def telling(sink: LocalSink) -> None:
        assert isinstance(sink, WatchInflow)
        sink.tell("ADDED", b'{"metadata":{"name":"a","resourceVersion":"5"}}')
        sink.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}\n')
        sink.tell("DELETED", b'{"metadata":{"name":"a","resourceVersion":"7"}}')

    client = Client(LocalTransport(lambda call: Said(telling)))
    async with client.watch(CONFIG_MAPS, version="1") as events:
        seen = [(event.type, event.version, event.object.metadata.name) async for event in events]
    assert seen == [("ADDED", "5", "a"), ("BOOKMARK", "6", ""), ("DELETED", "7", "a")]


async def test_an_error_event_is_raised() -> None:
    line = {"type": "ERROR", "object": expired("too old").status()}

    async def failing(sink: LocalSink) -> None:
        sink.write(msgspec.json.encode(line) + b"\n")

    client = Client(LocalTransport(lambda call: Said(failing)))
    with pytest.raises(StatusError, match="too old") as caught:
        async with client.watch(CONFIG_MAPS, version="1") as events:
            await anext(events)
    assert caught.value.code == 410


GO_ANSWERS = yaml_text.read((Path(__file__).parent / "go_answers.yaml").read_bytes())


@pytest.mark.parametrize("answer", GO_ANSWERS, ids=lambda answer: answer["kind"])
async def test_answers_of_servers_written_in_go_are_taken(answer: dict[str, Any]) -> None:
    resource = next(
        each
        for each in catalog.BUILT_IN
        if (each.api_version, each.kind) == (answer["apiVersion"], answer["kind"])
    )
    client = Listener(answer).client
    expected = resource.from_document(without_nulls(answer) if resource.typed else answer)
    assert await client.get(resource, "x", "default") == expected
    listing = await Listener({"metadata": {}, "items": [answer]}).client.list(resource)
    assert listing.items == [expected]
    [outline] = (await Listener({"items": [answer]}).client.list_as(outlines(resource))).items
    assert outline.metadata.name == answer["metadata"]["name"]


@pytest.mark.parametrize("items", [{}, {"items": None}, {"metadata": None, "items": None}])
async def test_a_list_without_items_is_empty(items: dict[str, Any]) -> None:
    listing = await Listener(items).client.list(CONFIG_MAPS)
    assert (listing.items, listing.version, listing.continue_) == ([], "", "")


async def test_nulls_of_custom_resources_are_kept() -> None:
    answer = {"metadata": {"name": "w", "creationTimestamp": None}, "spec": {"size": None}}
    widget = await Listener(answer).client.get(WIDGETS, "w", "default")
    assert (widget.metadata.name, widget.content) == ("w", {"spec": {"size": None}})
