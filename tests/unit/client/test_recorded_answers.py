"""What the client makes of answers that a kube-apiserver gave."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kedge.api import catalog
from kedge.api.coordination_v1 import lease
from kedge.api.core_v1 import config_map
from kedge.api.core_v1.pod import pod, pod_addresses
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.client import Client, error_of
from kedge.client.discovery import ServedResources, parse
from kedge.client.transport import Body, Call, LocalTransport
from kedge.client.view import JSON, View, outlines
from kedge.machinery import yaml_text
from kedge.machinery.errors import StatusError

RECORDED = {
    each["name"]: each
    for each in yaml_text.read((Path(__file__).parent / "recorded_answers.yaml").read_bytes())
}
WIDGETS = Resource(type=Document, group="example.com", plural="widgets", kind="Widget")


class RecordedAnswer:
    content_type = "application/json"

    def __init__(self, name: str) -> None:
        self.status: int = RECORDED[name]["status"]
        self.body: Body = RECORDED[name]["body"].encode()
        self.headers: list[tuple[str, str]] = []


def client_of(name: str) -> Client:
    """A client of a server that gives one recorded answer to everything."""

    def answer(call: Call) -> RecordedAnswer:
        return RecordedAnswer(name)

    return Client(LocalTransport(answer))


def lists() -> list[str]:
    return [name for name in RECORDED if name.startswith("list ")]


def resource_of(name: str) -> Resource[Any]:
    listed = msgspec.json.decode(RECORDED[name]["body"])
    kind = listed["kind"].removesuffix("List")
    if kind == "Widget":
        return WIDGETS
    return next(
        each
        for each in catalog.BUILT_IN
        if (each.kind, each.api_version) == (kind, listed["apiVersion"])
    )


@pytest.mark.parametrize("name", lists())
async def test_objects_are_taken_with_what_go_prints_for_values_that_are_not_set(
    name: str,
) -> None:
    resource = resource_of(name)
    sent = msgspec.json.decode(RECORDED[name]["body"])
    listing = await client_of(name).list(resource)
    names = [each["metadata"]["name"] for each in sent["items"]]
    assert listing.version == sent["metadata"]["resourceVersion"]
    assert [each.metadata.name for each in listing.items] == names
    assert all(resource.to_document(each)["kind"] == resource.kind for each in listing.items)
    shown = await client_of(name).list_as(outlines(resource))
    assert [each.metadata.name for each in shown.items] == names


def test_the_record_has_values_that_kedge_does_not_print() -> None:
    bodies = "".join(RECORDED[name]["body"] for name in lists())
    for member in ("endpoints", "eventTime", "lastProbeTime", "lastTimestamp", "ports", "size"):
        assert f'"{member}":null' in bodies


async def test_metadata_alone_is_taken() -> None:
    found = await client_of("partial pods").list_as(outlines(pod.RESOURCE))
    assert {"web", "ended", "waits"} <= {each.metadata.name for each in found.items}


@pytest.mark.parametrize(
    ("name", "code", "reason", "words"),
    [
        ("not found", 404, "NotFound", 'pods "absent" not found'),
        ("no resource", 404, "NotFound", "the server could not find the requested resource"),
        ("no group", 404, "Unknown", "404 page not found"),
        ("forbidden", 403, "Forbidden", 'User "system:anonymous" cannot list'),
        ("unauthorized", 401, "Unauthorized", "Unauthorized"),
        ("invalid", 422, "Invalid", 'Pod "X_" is invalid: \\[metadata.name: '),
        ("conflict", 409, "Conflict", "the object has been modified"),
        ("exists", 409, "AlreadyExists", 'configmaps "settings" already exists'),
        ("bad request", 400, "BadRequest", 'unknown field "daat"'),
        ("refused by limits", 403, "Forbidden", "maximum cpu usage per Container is 4"),
        ("apply conflict", 409, "Conflict", "using v1: .data.colour"),
        ("media", 415, "UnsupportedMediaType", "accepted media types include"),
        ("representation", 406, "NotAcceptable", "only the following media types are accepted"),
        ("method", 405, "MethodNotAllowed", "does not allow this method"),
        ("too large version", 504, "Timeout", "^Timeout: request did not complete"),
        ("no access to logs", 400, "BadRequest", "container absent is not valid for pod web"),
    ],
)
def test_a_refusal_is_understood(name: str, code: int, reason: str, words: str) -> None:
    answer = RECORDED[f"status {name}"]
    error = error_of(answer["status"], answer["body"].encode())
    assert (error.code, error.reason) == (code, reason)
    with pytest.raises(StatusError, match=words):
        raise error


class PlainServer:
    """A server that has no representation but whole objects."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.requested: list[str] = []
        self.client = Client(LocalTransport(self._answer))

    def _answer(self, call: Call) -> RecordedAnswer:
        self.requested.append(call.headers["accept"])
        is_whole = self.requested[-1] == JSON
        return RecordedAnswer(self._name if is_whole else "status representation")


ADDRESSES = View(
    pod.RESOURCE, pod_addresses.decode, pod_addresses.MEDIA_TYPE, pod_addresses.MEDIA_TYPE
)


async def test_pods_are_listed_whole_where_the_server_has_no_addresses_of_pods() -> None:
    server = PlainServer("list pods")
    for _ in range(2):
        found = await server.client.list_as(replace(ADDRESSES, or_whole=True))
        ended = next(each for each in found.items if each.metadata.name == "ended")
        assert (ended.metadata.namespace, ended.status.phase) == ("recorded", "Pending")
    assert server.requested == [pod_addresses.MEDIA_TYPE, JSON] * 2


async def test_pods_are_watched_whole_where_the_server_has_no_addresses_of_pods() -> None:
    server = PlainServer("watch pods")
    view = replace(ADDRESSES, or_whole=True)
    async with server.client.watch_as(view, version="1") as events:
        seen = {event.object.metadata.name: event.object async for event in events}
    assert seen.keys() == {"ask", "web"}
    assert (seen["web"].metadata.labels, seen["web"].status.podIP) == ({"app": "web"}, "10.244.1.2")
    assert server.requested == [pod_addresses.MEDIA_TYPE, JSON]


async def test_other_views_do_not_fall_back_to_whole_objects() -> None:
    server = PlainServer("list pods")
    with pytest.raises(StatusError, match="only the following media types"):
        await server.client.list_as(ADDRESSES)
    with pytest.raises(StatusError, match="only the following media types"):
        async with server.client.watch_as(ADDRESSES, version="1"):
            pass
    assert server.requested == [pod_addresses.MEDIA_TYPE] * 2


async def test_a_server_that_refuses_whole_objects_too_is_asked_once_for_them() -> None:
    server = PlainServer("status representation")
    with pytest.raises(StatusError, match="only the following media types"):
        async with server.client.watch_as(replace(ADDRESSES, or_whole=True), version="1"):
            pass
    assert server.requested == [pod_addresses.MEDIA_TYPE, JSON]


async def test_changes_are_told_in_their_order() -> None:
    async with client_of("watch changes").watch(config_map.RESOURCE, version="1") as events:
        seen = [(event.type, event.object.metadata.name) async for event in events]
    assert seen == [("ADDED", "second"), ("DELETED", "second")]


async def test_a_bookmark_has_a_version_and_an_object_without_a_name() -> None:
    async with client_of("watch bookmark").watch(lease.RESOURCE, version="1") as events:
        seen = [
            (event.type, event.version.isdigit(), event.object.metadata.name)
            async for event in events
        ]
    assert set(seen) == {("BOOKMARK", True, "")}


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("expired", 410, "too old resource version"),
        ("initial", 500, "a watch stream was requested"),
    ],
)
async def test_a_watch_that_a_server_ends_raises_its_reason(
    name: str, code: int, words: str
) -> None:
    with pytest.raises(StatusError, match=words) as caught:
        async with client_of(f"watch {name}").watch(config_map.RESOURCE, version="1") as events:
            await anext(events)
    assert caught.value.code == code


def test_discovery_leads_to_every_resource() -> None:
    served = ServedResources(
        [
            each
            for page in ("discovery api", "discovery apis")
            for each in parse(RECORDED[page]["body"].encode())
        ]
    )
    widgets = served.of_kind("example.com/v1", "Widget")
    assert widgets is not None
    assert (widgets.plural, widgets.namespaced) == ("widgets", True)
    assert {"deployments", "jobs"} <= {each.plural for each in served.preferred("list")}
