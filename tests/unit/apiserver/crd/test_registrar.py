"""The life of a custom kind, seen from outside."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import msgspec
import pytest

from kedge.api.apiextensions_v1.definition import CustomResourceDefinition
from kedge.api.resource import Resource
from kedge.apiserver.crd import registrar, resources
from kedge.apiserver.crd.resources import Converters, resources_of
from kedge.apiserver.crd.rule_cache import RuleCache
from kedge.apiserver.crd.schema import from_openapi
from kedge.apiserver.long_work import LongWork
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import write
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.errors import forbidden
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import JSON_PATCH, MERGE, STRATEGIC, TABLE, LocalServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
COUNT = "count/widgets.example.com"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "replicas": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "ready": {"type": "boolean"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}


def version(name: str = "v1", *, storage: bool = True, served: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }


def definition(
    *versions: dict[str, Any], plural: str = "widgets", kind: str = "Widget"
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]]},
            "versions": list(versions) or [version()],
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Widget",
        "apiVersion": "example.com/v1",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


def conditions(crd: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in crd["status"]["conditions"]}


@pytest.fixture
async def widgets(server: LocalServer) -> LocalServer:
    await server.post(CRDS, definition())
    await server.settle()
    return server


async def test_a_definition_is_accepted_and_established(server: LocalServer) -> None:
    assert (await server.call("GET", WIDGETS)).status == 404
    await server.post(CRDS, definition())
    await server.settle()
    crd = await server.get(f"{CRDS}/widgets.example.com")
    assert conditions(crd) == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"]["singular"] == "widget"
    listed = await server.get(WIDGETS)
    assert (listed["kind"], listed["items"]) == ("WidgetList", [])
    assert listed["apiVersion"] == "example.com/v1"


async def test_a_kind_is_served_when_its_definition_says_that_it_is_established(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    modify = write.modify
    statuses: list[int] = []

    async def modify_and_look(api: Any, request: Request, *rest: Any) -> Any:
        if request.subresource == "status":
            statuses.append((await server.call("GET", WIDGETS)).status)
        return await modify(api, request, *rest)

    monkeypatch.setattr(write, "modify", modify_and_look)
    await server.post(CRDS, definition())
    await server.settle()
    assert statuses == [200]


async def test_a_refused_status_is_written_again(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 2
    modify = write.modify

    async def refuse(api: Any, request: Request, *rest: Any) -> Any:
        nonlocal refusals
        if request.subresource == "status" and refusals:
            refusals -= 1
            raise forbidden("apiextensions.k8s.io", "customresourcedefinitions", "x", "not now")
        return await modify(api, request, *rest)

    monkeypatch.setattr(write, "modify", refuse)
    await server.post(CRDS, definition())
    await server.settle()
    assert (await server.call("GET", WIDGETS)).status == 404
    await server.clock.advance(registrar.FIRST_DELAY_SECONDS)
    assert (await server.call("GET", WIDGETS)).status == 404
    await server.clock.advance(2 * registrar.FIRST_DELAY_SECONDS)
    await server.settle()
    crd = await server.get(f"{CRDS}/widgets.example.com")
    assert conditions(crd) == {"NamesAccepted": "True", "Established": "True"}
    assert (await server.call("GET", WIDGETS)).status == 200


async def test_discovery_and_openapi_follow(server: LocalServer) -> None:
    before = await server.call("GET", "/apis")
    await server.post(CRDS, definition())
    await server.settle()
    after = await server.call("GET", "/apis", headers={"if-none-match": before.headers["ETag"]})
    assert after.status == 200
    assert "example.com" in [group["name"] for group in after.document["groups"]]
    resources = (await server.get("/apis/example.com/v1"))["resources"]
    names = [each["name"] for each in resources]
    assert sorted(names) == ["widgets", "widgets/scale", "widgets/status"]
    assert "apis/example.com/v1" in (await server.get("/openapi/v3"))["paths"]
    await server.delete(f"{CRDS}/widgets.example.com")
    await server.settle()
    assert (await server.call("GET", "/apis/example.com/v1")).status == 404
    assert "apis/example.com/v1" not in (await server.get("/openapi/v3"))["paths"]


async def test_objects_are_defaulted_pruned_and_validated(widgets: LocalServer) -> None:
    answer = await widgets.call("POST", WIDGETS, widget(shape="round"))
    assert answer.status == 201
    assert answer.document["spec"] == {"size": 1, "colour": "red"}
    assert answer.warnings == ['299 - "unknown field \\"spec.shape\\""']
    strict = await widgets.call("POST", f"{WIDGETS}?fieldValidation=Strict", widget("x", y=1))
    assert strict.status == 400
    assert 'unknown field "spec.y"' in strict.message
    bad = await widgets.call("POST", WIDGETS, widget("b", size=0, colour="green"))
    assert (bad.status, bad.reason) == (422, "Invalid")
    fields = [cause["field"] for cause in bad.document["details"]["causes"]]
    assert sorted(fields) == ["spec.colour", "spec.size"]
    mistyped = await widgets.call("POST", WIDGETS, widget("b", size="large"))
    assert mistyped.status == 422
    without = widget("b")
    del without["spec"]["size"]
    assert (await widgets.call("POST", WIDGETS, without)).status == 422


async def test_metadata_of_custom_objects_is_like_any_other(widgets: LocalServer) -> None:
    body = widget()
    body["metadata"] |= {"creationTimestamp": None, "labels": {}, "colour": "red"}
    answer = await widgets.call("POST", WIDGETS, body)
    assert answer.status == 201
    assert "labels" not in answer.document["metadata"]
    assert answer.warnings == ['299 - "unknown field \\"metadata.colour\\""']
    for metadata in ([1], "x", {"name": 5}, {"name": "y", "labels": {"a": 1}}):
        answer = await widgets.call("POST", WIDGETS, widget() | {"metadata": metadata})
        assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_custom_objects_live_like_others(widgets: LocalServer) -> None:
    made = await widgets.post(WIDGETS, widget())
    assert made["metadata"]["generation"] == 1
    assert (await widgets.call("PUT", f"{WIDGETS}/w", widget(size=2))).status == 422
    made["spec"]["size"] = 2
    put = await widgets.put(f"{WIDGETS}/w", made)
    assert put["metadata"]["generation"] == 2
    assert await widgets.put(f"{WIDGETS}/w", put) == put
    answer = await widgets.call("PATCH", f"{WIDGETS}/w", {}, content_type=STRATEGIC)
    assert answer.status == 415
    assert STRATEGIC not in answer.message
    applied = await widgets.apply(f"{WIDGETS}/w?fieldManager=me", widget(size=2, tags=["a"]))
    assert applied.document["spec"]["tags"] == ["a"]
    table = await widgets.get(WIDGETS, accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Age"]
    assert table["rows"][0]["cells"] == ["w", 2, "0s"]
    deleted = await widgets.delete(f"{WIDGETS}/w")
    assert deleted["details"]["group"] == "example.com"


async def test_status_and_scale(widgets: LocalServer) -> None:
    made = await widgets.post(WIDGETS, widget(replicas=2) | {"status": {"ready": True}})
    assert "status" not in made
    status = {"ready": True, "replicas": 1, "selector": "app=w"}
    patched = await widgets.merge(f"{WIDGETS}/w/status", {"status": status, "spec": {"size": 9}})
    assert patched["status"] == status
    assert patched["spec"]["size"] == 1
    assert patched["metadata"]["generation"] == 1
    scale = await widgets.get(f"{WIDGETS}/w/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=w"}
    await widgets.merge(f"{WIDGETS}/w/scale", {"spec": {"replicas": 5}})
    assert (await widgets.get(f"{WIDGETS}/w"))["spec"]["replicas"] == 5
    bad = await widgets.call(
        "PATCH", f"{WIDGETS}/w/status", {"status": {"ready": "yes"}}, content_type=MERGE
    )
    assert bad.status == 422


async def test_several_versions_show_the_same_objects(server: LocalServer) -> None:
    await server.post(CRDS, definition(version("v1"), version("v2", storage=False)))
    await server.settle()
    v2 = WIDGETS.replace("/v1/", "/v2/")
    watching = await server.watch(f"{v2}?watch=true")
    made = await server.post(WIDGETS, widget())
    other = await server.get(f"{v2}/w")
    assert other == made | {"apiVersion": "example.com/v2"} | {"metadata": other["metadata"]}
    assert other["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    [event] = await watching.events()
    assert event["object"]["apiVersion"] == "example.com/v2"
    other["spec"]["size"] = 4
    await server.put(f"{v2}/w", other)
    assert (await server.get(f"{WIDGETS}/w"))["spec"]["size"] == 4


async def test_the_storage_version_may_change_under_the_objects(server: LocalServer) -> None:
    crd = await server.post(CRDS, definition(version("v1"), version("v2", storage=False)))
    await server.settle()
    made = await server.post(WIDGETS, widget())
    watching = await server.watch(f"{WIDGETS}?watch=true")
    crd = await server.get(f"{CRDS}/widgets.example.com")
    crd["spec"]["versions"] = [version("v1", storage=False), version("v2")]
    await server.put(f"{CRDS}/widgets.example.com", crd)
    await server.settle()
    assert (await server.get(f"{CRDS}/widgets.example.com"))["status"]["storedVersions"] == [
        "v1",
        "v2",
    ]
    assert watching.ended
    assert await server.get(f"{WIDGETS}/w") == made
    again = await server.watch(f"{WIDGETS}?watch=true&resourceVersion=1")
    late = await server.post(WIDGETS, widget("late"))
    assert [event["object"]["apiVersion"] for event in await again.events()] == [
        "example.com/v1",
        "example.com/v1",
    ]
    assert late["apiVersion"] == "example.com/v1"
    assert (await server.get(f"{WIDGETS.replace('v1', 'v2')}/w"))["apiVersion"] == "example.com/v2"


async def test_a_version_that_is_no_longer_served_goes(server: LocalServer) -> None:
    await server.post(CRDS, definition(version("v1"), version("v2", storage=False)))
    await server.settle()
    crd = await server.get(f"{CRDS}/widgets.example.com")
    crd["spec"]["versions"][1]["served"] = False
    await server.put(f"{CRDS}/widgets.example.com", crd)
    await server.settle()
    assert (await server.call("GET", WIDGETS.replace("/v1/", "/v2/"))).status == 404
    assert (await server.call("GET", WIDGETS)).status == 200


async def test_deleting_a_definition_deletes_its_objects_and_ends_watches(
    widgets: LocalServer,
) -> None:
    await widgets.post(WIDGETS, widget())
    watching = await widgets.watch(f"{WIDGETS}?watch=true")
    crds = await widgets.watch(f"{CRDS}?watch=true&resourceVersion={widgets.store.revision}")
    answer = await widgets.call("DELETE", f"{CRDS}/widgets.example.com")
    assert answer.document["kind"] == "CustomResourceDefinition"
    await widgets.settle()
    assert [kind for kind, _ in await watching.seen()] == ["ADDED", "DELETED"]
    assert watching.ended
    assert (await crds.seen())[-1] == ("DELETED", "widgets.example.com")
    assert (await widgets.call("GET", WIDGETS)).status == 404
    await widgets.post(CRDS, definition())
    await widgets.settle()
    assert (await widgets.get(WIDGETS))["items"] == []


async def test_what_was_kept_of_a_deleted_kind_is_no_garbage(widgets: LocalServer) -> None:
    await widgets.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {COUNT: "5"}}})
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/x"]
    await widgets.post(WIDGETS, body)
    gc.collect()
    gc.disable()
    try:
        kept = caches_of("widgets")
        await widgets.delete(f"{CRDS}/widgets.example.com")
        await widgets.settle()
        await widgets.merge(f"{WIDGETS}/w", {"metadata": {"finalizers": None}})
        await widgets.settle()
        assert (await widgets.call("GET", WIDGETS)).status == 404
        assert len(kept) == 1
        assert kept[0]() is None
    finally:
        gc.enable()


def caches_of(plural: str) -> list[weakref.ref[ResourceCache]]:
    return [
        weakref.ref(each)
        for each in gc.get_objects()
        if type(each) is ResourceCache and each.resource.plural == plural
    ]


async def test_finalizers_of_objects_hold_the_definition(widgets: LocalServer) -> None:
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/x"]
    await widgets.post(WIDGETS, body)
    await widgets.post(WIDGETS, widget("free"))
    await widgets.delete(f"{CRDS}/widgets.example.com")
    await widgets.settle()
    assert (await widgets.call("GET", f"{WIDGETS}/free")).status == 404
    held = await widgets.get(f"{WIDGETS}/w")
    assert "deletionTimestamp" in held["metadata"]
    refused = await widgets.call("POST", WIDGETS, widget("new"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message.endswith(
        "create not allowed while custom resource definition is terminating"
    )
    applied = await widgets.apply(f"{WIDGETS}/new?fieldManager=me", widget("new"))
    assert applied.status == 403
    await widgets.merge(f"{WIDGETS}/w", {"metadata": {"finalizers": None}})
    await widgets.settle()
    assert (await widgets.call("GET", f"{CRDS}/widgets.example.com")).status == 404
    assert (await widgets.call("GET", WIDGETS)).status == 404


async def test_a_kind_that_is_not_served_is_emptied_all_the_same(server: LocalServer) -> None:
    await server.post(CRDS, definition())
    await server.settle()
    await server.post(WIDGETS, widget())
    crd = await server.get(f"{CRDS}/widgets.example.com")
    crd["spec"]["versions"][0]["served"] = False
    await server.put(f"{CRDS}/widgets.example.com", crd)
    await server.settle()
    await server.delete(f"{CRDS}/widgets.example.com")
    await server.settle()
    assert (await server.call("GET", f"{CRDS}/widgets.example.com")).status == 404
    page = await server.store.list("/registry/example.com/")
    assert page.entries == []


async def test_a_name_that_is_taken_is_not_served_until_it_is_free(server: LocalServer) -> None:
    await server.post(CRDS, definition())
    await server.settle()
    await server.post(CRDS, definition(plural="gadgets", kind="Widget"))
    await server.settle()
    crd = await server.get(f"{CRDS}/gadgets.example.com")
    assert conditions(crd)["NamesAccepted"] == "False"
    assert (await server.call("GET", WIDGETS.replace("widgets", "gadgets"))).status == 404
    await server.delete(f"{CRDS}/widgets.example.com")
    await server.settle()
    crd = await server.get(f"{CRDS}/gadgets.example.com")
    assert conditions(crd)["Established"] == "True"
    assert (await server.call("GET", WIDGETS.replace("widgets", "gadgets"))).status == 200


async def test_custom_kinds_survive_a_restart() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with LocalServer.running(store, clock) as first:
        await first.post(CRDS, definition())
        await first.settle()
        made = await first.post(WIDGETS, widget())
    async with LocalServer.running(store, clock) as second:
        assert await second.get(f"{WIDGETS}/w") == made
        await second.delete(f"{CRDS}/widgets.example.com")
        await second.settle()
        assert (await second.call("GET", WIDGETS)).status == 404


async def test_a_namespaced_kind_needs_its_namespace(widgets: LocalServer) -> None:
    answer = await widgets.call("POST", "/apis/example.com/v1/namespaces/nowhere/widgets", widget())
    assert answer.status == 404
    assert (await widgets.call("POST", "/apis/example.com/v1/widgets", widget())).status == 405
    assert (await widgets.get("/apis/example.com/v1/widgets"))["items"] == []


async def test_unknown_fields_are_kept_where_the_schema_says_so(server: LocalServer) -> None:
    free = version()
    free["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    await server.post(CRDS, definition(free))
    await server.settle()
    body = widget() | {"anything": {"goes": [1, {"x": None}]}, "spec": "text"}
    made = await server.post(f"{WIDGETS}?fieldValidation=Strict", body)
    assert made["anything"] == {"goes": [1, {"x": None}]}
    scaled = await server.call(
        "PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 2}}, content_type=MERGE
    )
    assert scaled.status in (200, 422)
    deep: Any = 1
    for _ in range(150):
        deep = {"x": deep}
    answer = await server.call("POST", WIDGETS, widget("deep") | {"anything": deep})
    assert answer.status == 400


async def test_definitions_are_read_and_served_once_for_each_change(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten definitions of a megabyte each, ten times ten readings stopped the server."""
    made: list[str] = []

    def counted(
        crd: CustomResourceDefinition, rules: RuleCache, converters: Converters
    ) -> list[Resource[Any]]:
        made.append(crd.metadata.name)
        return resources_of(crd, rules, converters)

    monkeypatch.setattr(registrar, "resources_of", counted)
    names = [f"{letter}s" for letter in "abcdef"]
    for name in names:
        body = definition()
        body["metadata"]["name"] = f"{name}.example.com"
        body["spec"]["names"] = {"plural": name, "kind": name.capitalize()}
        await server.post(CRDS, body)
    await server.settle()
    assert sorted(made) == sorted(f"{name}.example.com" for name in names)
    await server.delete(f"{CRDS}/as.example.com")
    await server.settle()
    assert made.count("bs.example.com") == 1
    assert (await server.call("GET", WIDGETS.replace("widgets", "bs"))).status == 200


async def test_the_schema_of_a_custom_kind_is_made_beside_the_event_loop(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a definition of a megabyte stopped the server for a tenth of a second."""
    threads: list[int] = []

    def noted(props: Any) -> Any:
        threads.append(threading.get_ident())
        return from_openapi(props)

    monkeypatch.setattr(resources, "from_openapi", noted)
    await server.post(CRDS, definition())
    await server.settle()
    assert not threads
    await server.post(WIDGETS, widget(size=1))
    await server.call("GET", f"{WIDGETS}/w")
    assert threads
    assert threading.get_ident() not in threads


async def test_the_schema_of_a_changed_kind_weighs_more_than_its_bytes(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored objects are converted by it, so it is made before the kind is served."""
    weights: dict[str, int] = {}
    run = LongWork.run

    async def noted(self: LongWork, weight: int, function: Any, *arguments: Any) -> Any:
        weights[getattr(function, "__name__", "")] = weight
        return await run(self, weight, function, *arguments)

    monkeypatch.setattr(LongWork, "run", noted)
    body = definition()
    await server.post(CRDS, body)
    await server.settle()
    assert weights["_home"] == weights["resources_of"] >= 2 * len(msgspec.json.encode(body))


async def widgets_answer(server: LocalServer, status: int) -> None:
    """Wait until the work in threads has led to an answer."""
    async with asyncio.timeout(60):
        while (await server.call("GET", WIDGETS)).status != status:
            await server.settle()


async def test_the_schema_of_a_kind_that_is_deleted_is_made_beside_the_event_loop(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is needed to read the objects that are to be deleted."""
    body = definition()
    fields = {f"p{i}": {"type": "string"} for i in range(2_000)}
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": fields,
    }
    await server.post(CRDS, body)
    await widgets_answer(server, 200)
    # Objects that were stored before a change are read by the schema.
    change = {"spec": {"names": {"shortNames": ["wi"]}}}
    await server.call("PATCH", f"{CRDS}/widgets.example.com", change, content_type=MERGE)
    threads: list[int] = []

    def noted(props: Any) -> Any:
        threads.append(threading.get_ident())
        return from_openapi(props)

    monkeypatch.setattr(resources, "from_openapi", noted)
    await server.delete(f"{CRDS}/widgets.example.com")
    await widgets_answer(server, 404)
    assert threads
    assert threading.get_ident() not in threads


async def test_an_apply_may_not_leave_nulls(widgets: LocalServer) -> None:
    """Upstream removes nulls as it parses bodies and patches; the result of an apply is not
    parsed."""
    url = f"{WIDGETS}/w?fieldManager=me"
    refused = await widgets.apply(url, widget() | {"spec": None})
    assert refused.status == 422
    assert refused.document["message"] == (
        'Widget.example.com "w" is invalid: spec: Invalid value: "null": '
        'spec in body must be of type object: "null"'
    )
    for field, nothing in (("replicas", widget(replicas=None)), ("tags", widget(tags=None))):
        refused = await widgets.apply(url, nothing)
        assert refused.status == 422
        assert f'spec.{field}: Invalid value: "null"' in refused.document["message"]
    applied = await widgets.apply(url, widget(colour=None))
    assert applied.document["spec"] == {"size": 1, "colour": "red"}
    posted = await widgets.post(WIDGETS, widget("v", replicas=None))
    assert posted["spec"] == {"size": 1, "colour": "red"}
    null = [{"op": "add", "path": "/spec/replicas", "value": None}]
    patched = await widgets.call("PATCH", f"{WIDGETS}/v", null, content_type=JSON_PATCH)
    assert patched.document["spec"] == {"size": 1, "colour": "red"}
