"""Custom resources whose versions a webhook converts, with a real HTTPS webhook."""

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.crd import webhook_converter
from kedge.machinery.clock import SystemClock
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TABLE, LocalServer
from kedge.testing.webhook_server import Asked, WebhookServer, webhook_server
from kedge.web.message import Response

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = f"{CRDS}/hosts.example.com"
V1 = "/apis/example.com/v1/namespaces/default/hosts"
V2 = "/apis/example.com/v2/namespaces/default/hosts"


def convert(asked: Asked) -> Asked:
    """Version v1 has a host and a port, v2 has both in one text."""
    wanted = asked["desiredAPIVersion"]
    objects = [_converted(deepcopy(each), wanted) for each in asked["objects"]]
    return {"result": {"status": "Success"}, "convertedObjects": objects}


def _converted(document: Any, wanted: str) -> Any:
    spec = document.get("spec", {})
    if wanted.endswith("/v2"):
        document["spec"] = {"hostPort": f"{spec['host']}:{spec['port']}"}
    else:
        host, _, port = spec["hostPort"].partition(":")
        document["spec"] = {"host": host, "port": port}
    document["apiVersion"] = wanted
    return document


def version(name: str, *fields: str, storage: bool) -> dict[str, Any]:
    spec = {"type": "object", "properties": {field: {"type": "string"} for field in fields}}
    properties = {"spec": spec, "status": {"type": "object", "properties": {}}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": f".spec.{fields[0]}"}],
        "additionalPrinterColumns": [
            {"name": "First", "type": "string", "jsonPath": f".spec.{fields[0]}"}
        ],
    }


def definition(hook: WebhookServer, *, stored: str = "v1") -> dict[str, Any]:
    return {
        "metadata": {"name": "hosts.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "hosts", "kind": "Host"},
            "versions": [
                version("v1", "host", "port", storage=stored == "v1"),
                version("v2", "hostPort", storage=stored == "v2"),
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": f"{hook.url}/convert", "caBundle": hook.ca_bundle},
                    "conversionReviewVersions": ["v1", "v1beta1"],
                },
            },
        },
    }


def first(name: str = "a", host: str = "here", port: str = "80", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Host",
        "metadata": {"name": name, **meta},
        "spec": {"host": host, "port": port},
    }


def second(name: str = "a", text: str = "here:80", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v2",
        "kind": "Host",
        "metadata": {"name": name, **meta},
        "spec": {"hostPort": text},
    }


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def hook(keys: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(keys) as running:
        running.decisions["/convert"] = convert
        yield running


@pytest.fixture
async def hosts(server: LocalServer, hook: WebhookServer) -> AsyncIterator[LocalServer]:
    await server.post(CRDS, definition(hook))
    await server.settle()
    yield server
    await server.app.api.caller.close()


async def test_an_object_is_read_in_each_version_and_converted_once(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    assert hook.asked == []  # it is stored as it was written
    for _ in range(3):
        seen = await hosts.get(f"{V2}/a")
        assert seen["apiVersion"] == "example.com/v2"
        assert seen["spec"] == {"hostPort": "here:80"}
        assert seen["metadata"]["resourceVersion"]
    assert len(hook.requests("/convert")) == 1
    asked = hook.requests("/convert")[0]
    assert asked["desiredAPIVersion"] == "example.com/v2"
    assert hook.queries == ["timeout=30s"]
    table = await hosts.get(f"{V2}/a", accept=TABLE)
    assert table["rows"][0]["cells"] == ["a", "here:80"]


async def test_an_object_is_stored_in_the_storage_version(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    created = await hosts.post(V2, second())
    assert created["spec"] == {"hostPort": "here:80"}
    assert created["apiVersion"] == "example.com/v2"
    assert (await hosts.get(f"{V1}/a"))["spec"] == {"host": "here", "port": "80"}
    seen = await hosts.get(f"{V2}/a")
    seen["spec"]["hostPort"] = "there:81"
    assert (await hosts.put(f"{V2}/a", seen))["spec"] == {"hostPort": "there:81"}
    patched = await hosts.merge(f"{V1}/a", {"spec": {"port": "82"}})
    assert patched["spec"] == {"host": "there", "port": "82"}
    assert (await hosts.merge(f"{V2}/a", {"spec": {"hostPort": "x:1"}}))["metadata"][
        "generation"
    ] == 4
    assert (await hosts.get(f"{V1}/a"))["spec"] == {"host": "x", "port": "1"}
    await hosts.delete(f"{V2}/a")
    assert (await hosts.call("GET", f"{V1}/a")).status == 404


async def test_a_list_is_converted_by_one_call_for_many_objects(
    hosts: LocalServer, hook: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(7):
        await hosts.post(V1, first(f"h{i}"))
    listed = await hosts.get(V2)
    assert listed["apiVersion"] == "example.com/v2"
    assert [each["spec"]["hostPort"] for each in listed["items"]] == ["here:80"] * 7
    assert [len(each["objects"]) for each in hook.requests("/convert")] == [7]
    await hosts.post(V1, first("h7"))
    await hosts.get(V2)
    assert [len(each["objects"]) for each in hook.requests("/convert")] == [7, 1]
    page = await hosts.get(f"{V2}?limit=3")
    assert [each["metadata"]["name"] for each in page["items"]] == ["h0", "h1", "h2"]
    monkeypatch.setattr(webhook_converter, "BATCH_OBJECTS", 3)
    for i in range(7):
        await hosts.merge(f"{V1}/h{i}", {"spec": {"port": "1"}})
    hook.asked.clear()
    await hosts.get(V2)
    assert [len(each["objects"]) for each in hook.requests("/convert")] == [3, 3, 1]


async def test_selectors_are_asked_about_converted_objects(hosts: LocalServer) -> None:
    await hosts.post(V1, first("a", "here"))
    await hosts.post(V1, first("b", "there"))
    found = await hosts.get(f"{V2}?fieldSelector=spec.hostPort%3Dthere%3A80")
    assert [each["metadata"]["name"] for each in found["items"]] == ["b"]
    found = await hosts.get(f"{V1}?fieldSelector=spec.host%3Dhere")
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]


async def test_watches_send_converted_objects_and_share_conversions(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    watches = [await hosts.watch(f"{V2}?watch=1") for _ in range(3)]
    selected = await hosts.watch(f"{V2}?watch=1&fieldSelector=spec.hostPort%3Dhere%3A81")
    for port in ("81", "82"):
        await hosts.merge(f"{V1}/a", {"spec": {"port": port}})
        await eventually(hosts, partial(_line, watches, port))
    await hosts.delete(f"{V1}/a")
    await eventually(hosts, lambda: all(len(each.sink.lines) == 4 for each in watches))
    await eventually(hosts, lambda: len(selected.sink.lines) == 2)
    for each in watches:
        events = await each.events()
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        shown = [event["object"]["spec"]["hostPort"] for event in events]
        assert shown == ["here:80", "here:81", "here:82", "here:82"]
    assert [event["type"] for event in await selected.events()] == ["ADDED", "DELETED"]
    # The three states of the object, and the last one under the version of the deletion.
    assert len(hook.requests("/convert")) == 4


def _line(watches: Any, port: str) -> bool:
    return all(f"here:{port}".encode() in each.sink.data for each in watches)


async def eventually(server: LocalServer, condition: Any) -> None:
    """Let the server and the webhook act until a condition holds."""
    clock = SystemClock()
    deadline = clock.monotonic() + 120
    while clock.monotonic() < deadline:
        await server.settle()
        if condition():
            return
        await _moment()
    raise AssertionError("the condition does not come true")


async def _moment() -> None:
    await asyncio.to_thread(lambda: None)


async def test_a_write_without_a_change_migrates_an_object_to_another_storage_version(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    live = await hosts.get(CRD)
    await hosts.put(CRD, definition(hook, stored="v2") | {"metadata": live["metadata"]})
    await hosts.settle()
    assert (await hosts.get(CRD))["status"]["storedVersions"] == ["v1", "v2"]
    before = await hosts.get(f"{V1}/a")
    assert before["spec"] == {"host": "here", "port": "80"}
    assert (await hosts.get(f"{V2}/a"))["spec"] == {"hostPort": "here:80"}
    after = await hosts.put(f"{V1}/a", before)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert after["spec"] == before["spec"]
    again = await hosts.put(f"{V1}/a", after)
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    entry = await hosts.store.get("/registry/example.com/hosts/default/a")
    assert entry is not None
    assert b'"hostPort":"here:80"' in entry.value


async def test_objects_keep_their_versions_when_a_webhook_comes_later(
    server: LocalServer, hook: WebhookServer
) -> None:
    """With strategy None, objects of v1 are shown as v2 without being converted; the webhook must
    not take them for such."""
    body = definition(hook)
    webhook = body["spec"].pop("conversion")
    await server.post(CRDS, body)
    await server.settle()
    await server.post(V1, first())
    live = await server.get(CRD)
    live["spec"]["versions"] = definition(hook, stored="v2")["spec"]["versions"]
    live = await server.put(CRD, live)
    await server.settle()
    await server.post(V2, second("b"))
    assert (await server.get(f"{V2}/a"))["spec"] == {}
    live = await server.get(CRD)
    live["spec"]["conversion"] = webhook
    await server.put(CRD, live)
    await server.settle()
    assert (await server.get(f"{V2}/a"))["spec"] == {"hostPort": "here:80"}
    assert (await server.get(f"{V1}/b"))["spec"] == {"host": "here", "port": "80"}
    await server.app.api.caller.close()


async def test_another_server_finds_objects_in_the_versions_they_were_stored_in(
    hook: WebhookServer,
) -> None:
    store = MemoryStore(FakeClock())
    async with LocalServer.running(store) as server:
        await server.post(CRDS, definition(hook))
        await server.settle()
        await server.post(V1, first())
        live = await server.get(CRD)
        await server.put(CRD, definition(hook, stored="v2") | {"metadata": live["metadata"]})
        await server.settle()
        await server.app.api.caller.close()
    async with LocalServer.running(store) as server:
        assert (await server.get(f"{V2}/a"))["spec"] == {"hostPort": "here:80"}
        assert (await server.get(f"{V1}/a"))["spec"] == {"host": "here", "port": "80"}
        await server.app.api.caller.close()


async def test_a_definition_goes_with_its_objects_although_its_webhook_fails(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    live = await hosts.get(CRD)
    await hosts.put(CRD, definition(hook, stored="v2") | {"metadata": live["metadata"]})
    await hosts.settle()
    hook.decisions["/convert"] = lambda asked: Response(500, b"broken")
    await hosts.delete(CRD)
    await hosts.settle()
    assert (await hosts.call("GET", CRD)).status == 404


FAILED = "conversion webhook for example.com/v1, Kind=Host "
FAILURES: list[tuple[Any, str]] = [
    (
        lambda asked: {"result": {"status": "Failed", "message": "no such host"}},
        "failed: no such host",
    ),
    (
        lambda asked: {"result": {"status": "Failed"}},
        "failed: response.result.status was 'Failed', not 'Success'",
    ),
    (lambda asked: convert(asked) | {"convertedObjects": []}, "returned 0 objects, expected 1"),
    (
        lambda asked: convert(asked) | {"uid": "another"},
        'failed: expected response.uid="UID", got "another"',
    ),
    (lambda asked: Response(404, b""), "failed: the server could not find the requested resource"),
    (
        lambda asked: convert(asked) | {"convertedObjects": asked["objects"]},
        "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, "
        "received example.com/v1)",
    ),
    (
        lambda asked: changed(asked, kind="Other"),
        "returned invalid object at index 0: invalid kind (expected Host, received Other)",
    ),
    (
        lambda asked: renamed(asked, name="c"),
        "returned invalid object: must have the same name: a != c",
    ),
    (
        lambda asked: renamed(asked, namespace="other"),
        "returned invalid object: must have the same namespace: default != other",
    ),
    (
        lambda asked: renamed(asked, labels=["x"]),
        "returned invalid metadata: invalid metadata.labels of type []interface {} in converted "
        "object",
    ),
    (
        lambda asked: renamed(asked, annotations={"a": 1}),
        "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in "
        "converted object",
    ),
]


def changed(asked: Asked, **fields: Any) -> Asked:
    answer = convert(asked)
    answer["convertedObjects"][0] |= fields
    return answer


def renamed(asked: Asked, **fields: Any) -> Asked:
    answer = convert(asked)
    answer["convertedObjects"][0]["metadata"] |= fields
    return answer


async def test_an_answer_with_another_uid_fails_the_request(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    made = await hosts.post(V1, first())
    hook.decisions["/convert"] = lambda asked: renamed(asked, uid="zzz")
    answer = await hosts.call("GET", f"{V2}/a")
    assert answer.status == 500
    why = f"must have the same UID: {made['metadata']['uid']} != zzz"
    assert answer.message == f"{FAILED}returned invalid object: {why}"


@pytest.mark.parametrize(("decide", "message"), FAILURES)
async def test_an_answer_that_breaks_the_rules_fails_the_request(
    hosts: LocalServer, hook: WebhookServer, decide: Any, message: str
) -> None:
    await hosts.post(V1, first())
    hook.decisions["/convert"] = decide
    answer = await hosts.call("GET", f"{V2}/a")
    assert answer.status == 500
    uid = hook.requests("/convert")[0]["uid"]
    assert answer.message == FAILED + message.replace("UID", uid)
    assert (await hosts.call("GET", V2)).status == 500
    refused = await hosts.call("POST", V2, second("b"))
    assert refused.status == 500
    assert (await hosts.call("GET", f"{V1}/b")).status == 404
    hook.decisions["/convert"] = convert
    assert (await hosts.get(f"{V2}/a"))["spec"] == {"hostPort": "here:80"}


async def test_a_webhook_changes_labels_and_nothing_else_of_the_metadata(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    created = await hosts.post(V1, first(labels={"a": "b"}))
    hook.decisions["/convert"] = lambda asked: renamed(
        asked, labels={"c": "d"}, generation=99, finalizers=["x/y"]
    )
    seen = await hosts.get(f"{V2}/a")
    assert seen["metadata"] == created["metadata"] | {"labels": {"c": "d"}}
    hook.decisions["/convert"] = lambda asked: renamed(asked, labels={"c": "not valid"})
    await hosts.merge(f"{V1}/a", {"spec": {"port": "1"}})
    answer = await hosts.call("GET", f"{V2}/a")
    assert "returned invalid metadata: metadata.labels: Invalid value" in answer.message


async def test_a_watch_ends_with_the_error_of_its_webhook(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    hook.decisions["/convert"] = lambda asked: {"result": {"status": "Failed", "message": "no"}}
    watch = await hosts.watch(f"{V2}?watch=1")
    await eventually(hosts, lambda: watch.ended)
    events = await watch.events()
    assert [event["type"] for event in events] == ["ERROR"]
    assert events[0]["object"]["message"] == f"{FAILED}failed: no"


async def test_requests_that_wait_ask_again_if_the_first_one_is_cancelled(
    hosts: LocalServer, hook: WebhookServer
) -> None:
    await hosts.post(V1, first())
    arrived, released = asyncio.Event(), asyncio.Event()

    async def slow(asked: Asked) -> Asked:
        arrived.set()
        await released.wait()
        return convert(asked)

    hook.decisions["/convert"] = slow
    loop = asyncio.get_running_loop()
    leader = loop.create_task(hosts.call("GET", f"{V2}/a"))
    await asyncio.wait_for(arrived.wait(), 30)
    follower = loop.create_task(hosts.call("GET", f"{V2}/a"))
    await _moment()
    leader.cancel()
    released.set()
    answer = await asyncio.wait_for(follower, 30)
    assert answer.status == 200
    assert leader.cancelled() or leader.done()


async def test_apply_works_in_each_version(hosts: LocalServer) -> None:
    applied = await hosts.apply(f"{V2}/a?fieldManager=m", second())
    assert applied.status == 201
    assert applied.document["metadata"]["managedFields"][0]["apiVersion"] == "example.com/v2"
    changed_by = await hosts.apply(f"{V2}/a?fieldManager=m", second(text="there:80"))
    assert changed_by.status == 200
    assert (await hosts.get(f"{V1}/a"))["spec"] == {"host": "there", "port": "80"}


async def test_conversion_settings_are_validated(server: LocalServer, hook: WebhookServer) -> None:
    body = definition(hook)
    body["spec"]["conversion"]["webhook"]["clientConfig"] = {"url": "http://example.com"}
    body["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = ["v7", "v7"]
    answer = await server.call("POST", CRDS, body)
    causes = [(each["field"], each["message"]) for each in answer.document["details"]["causes"]]
    fields = [field for field, _ in causes]
    assert answer.status == 422
    assert fields == [
        "spec.conversion.webhookClientConfig.url",
        "spec.conversion.conversionReviewVersions[1]",
        "spec.conversion.conversionReviewVersions",
    ]
    body["spec"]["conversion"] = {"strategy": "Webhook"}
    answer = await server.call("POST", CRDS, body)
    assert "required when strategy is set to Webhook" in answer.message


async def test_the_port_of_a_service_has_a_default_and_a_placeholder_bundle_is_kept(
    server: LocalServer, hook: WebhookServer
) -> None:
    body = definition(hook)
    service = {"name": "hook", "namespace": "default", "path": "/convert"}
    client = {"service": service, "caBundle": "Cg=="}
    body["spec"]["conversion"]["webhook"]["clientConfig"] = client
    created = await server.post(CRDS, body)
    kept = created["spec"]["conversion"]["webhook"]["clientConfig"]
    assert kept["service"]["port"] == 443
    assert kept["caBundle"] == "Cg=="
    await server.settle()
    await server.post(V1, first())
    answer = await server.call("GET", f"{V2}/a")
    assert answer.message.startswith(f"{FAILED}failed: Post ")
    assert 'service "hook" not found' in answer.message
