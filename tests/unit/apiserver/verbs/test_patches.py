"""The four patch types, seen from outside."""

from typing import Any

import pytest

from kedge.testing.local_server import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    LocalAnswer,
    LocalServer,
)

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config_map(**data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": data}


def deployment() -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {"name": "c", "image": "nginx:1", "env": [{"name": "A", "value": "1"}]}
                    ]
                },
            },
        },
    }


def nested(depth: int) -> dict[str, Any]:
    return {"x": nested(depth - 1)} if depth else {}


async def patch(server: LocalServer, url: str, body: object, sort: str) -> LocalAnswer:
    return await server.call("PATCH", url, body, content_type=sort)


@pytest.mark.parametrize("sort", [JSON, "text/plain", "application/yaml", ""])
async def test_a_patch_of_no_patch_type_is_415(server: LocalServer, sort: str) -> None:
    await server.post(MAPS, config_map())
    answer = await patch(server, f"{MAPS}/a", {}, sort)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert answer.message == "415: Unsupported Media Type"


async def test_a_missing_object_cannot_be_patched(server: LocalServer) -> None:
    for body, sort in (([], JSON_PATCH), ({}, MERGE), ({}, STRATEGIC)):
        assert (await patch(server, f"{MAPS}/a", body, sort)).status == 404


async def test_force_is_for_apply_alone(server: LocalServer) -> None:
    await server.post(MAPS, config_map())
    answer = await patch(server, f"{MAPS}/a?force=true", {}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('PatchOptions.meta.k8s.io "" is invalid: force: Forbidden')


# JSON patch.


async def test_a_json_patch_is_carried_out(server: LocalServer) -> None:
    await server.post(MAPS, config_map(x="1"))
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/data/y", "value": "2"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1z", "value": "3"},
        {"op": "remove", "path": "/data/x"},
    ]
    answer = await patch(server, f"{MAPS}/a", operations, JSON_PATCH)
    assert answer.status == 200
    assert answer.document["data"] == {"y": "2"}
    assert answer.document["metadata"]["annotations"] == {"example.com/z": "3"}


async def test_a_test_of_the_version_fails_with_422(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    version = made["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    add = {"op": "add", "path": "/data", "value": {"x": "1"}}
    answer = await patch(server, f"{MAPS}/a", [test, add], JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert await server.get(f"{MAPS}/a") == made
    answer = await patch(server, f"{MAPS}/a", [test | {"value": version}, add], JSON_PATCH)
    assert answer.status == 200


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "remove", "path": "/data/none"}], 422),
        ([{"op": "replace", "path": "/nowhere/x", "value": 1}], 422),
        ({"op": "add"}, 400),
        (b"[", 400),
        ([1], 400),
        ([{"op": "add", "path": "/data", "value": 5}], 422),
        ([{"op": "replace", "path": "", "value": []}], 400),
        ([{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10001, 413),
        ([{"op": "copy", "from": "/metadata", "path": f"/metadata/x{n}"} for n in range(40)], 413),
        (
            [
                {"op": "add", "path": "/metadata/x", "value": nested(90)},
                {"op": "add", "path": "/metadata" + "/x" * 60, "value": nested(90)},
            ],
            400,
        ),
    ],
)
async def test_json_patches_that_cannot_be_done(
    server: LocalServer, operations: Any, code: int
) -> None:
    made = await server.post(MAPS, config_map(x="1"))
    answer = await patch(server, f"{MAPS}/a", operations, JSON_PATCH)
    assert answer.status == code
    assert await server.get(f"{MAPS}/a") == made


# Merge patches.


async def test_a_merge_patch_adds_changes_and_removes(server: LocalServer) -> None:
    await server.post(MAPS, config_map(x="1", y="2"))
    answer = await patch(server, f"{MAPS}/a", {"data": {"x": None, "y": "3", "z": "4"}}, MERGE)
    assert answer.document["data"] == {"y": "3", "z": "4"}
    everything = await patch(server, f"{MAPS}/a", {"data": None}, MERGE)
    assert "data" not in everything.document


@pytest.mark.parametrize("sort", [MERGE, STRATEGIC])
async def test_a_patch_that_nests_too_deeply_is_refused(server: LocalServer, sort: str) -> None:
    made = await server.post(MAPS, config_map(x="1"))
    answer = await patch(server, f"{MAPS}/a", {"metadata": {"x": nested(120)}}, sort)
    assert answer.status == 400
    assert await server.get(f"{MAPS}/a") == made


async def test_a_strategic_patch_merges_lists_by_their_keys(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    change = {
        "spec": {
            "template": {
                "spec": {
                    "$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
                    "containers": [
                        {"name": "d", "image": "redis:1"},
                        {"name": "c", "env": [{"name": "B", "value": "2"}]},
                    ],
                }
            }
        }
    }
    answer = await patch(server, f"{DEPLOYMENTS}/web", change, STRATEGIC)
    containers = answer.document["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["d", "c"]
    assert {e["name"]: e["value"] for e in containers[1]["env"]} == {"A": "1", "B": "2"}
    removal = {"spec": {"template": {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}}}}
    answer = await patch(server, f"{DEPLOYMENTS}/web", removal, STRATEGIC)
    assert [c["name"] for c in answer.document["spec"]["template"]["spec"]["containers"]] == ["c"]


async def test_a_patch_cannot_rename_or_move(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    for meta in ({"name": "b"}, {"namespace": "kube-system"}):
        assert (await patch(server, f"{MAPS}/a", {"metadata": meta}, MERGE)).status == 400
    assert (await patch(server, f"{MAPS}/a", {"kind": "Secret"}, MERGE)).status == 422
    assert await server.get(f"{MAPS}/a") == made
    assert (await patch(server, f"{MAPS}/a", {"kind": "Secret"}, STRATEGIC)).document == made


async def test_a_patch_to_a_wrong_type_is_invalid(server: LocalServer) -> None:
    await server.post(MAPS, config_map(x="1"))
    answer = await patch(server, f"{MAPS}/a", {"data": {"x": 5}}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith(' "" is invalid: patch: Invalid value: "{\\"apiVersion\\":')
    why = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert answer.message.endswith(why)
    assert [cause["field"] for cause in answer.document["details"]["causes"]] == ["patch"]
    answer = await patch(server, f"{MAPS}/a", {"data": {"x": 5}}, STRATEGIC)
    assert answer.message.startswith(' "" is invalid: patch: Invalid value: "map[data:map[x:5]]": ')


async def test_a_missing_object_comes_before_a_broken_patch(server: LocalServer) -> None:
    for sort in (MERGE, JSON_PATCH, STRATEGIC):
        assert (await patch(server, f"{MAPS}/a", b"[", sort)).status == 404
    assert (await patch(server, f"{MAPS}/a", b"{}", "text/plain")).status == 415
    assert (await patch(server, f"{MAPS}/a?dryRun=Some", b"[", MERGE)).status == 422
    assert (await patch(server, f"{MAPS}/a?fieldManager=m", b"[", APPLY)).status == 400


async def test_a_patch_may_name_what_it_patches(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    assert (await patch(server, f"{MAPS}/a", made, MERGE)).document == made


# Apply.


async def test_apply_creates_what_is_missing(server: LocalServer) -> None:
    answer = await server.apply(f"{MAPS}/a?fieldManager=me", config_map(x="1"))
    assert answer.status == 201
    [entry] = answer.document["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:x": {}}}
    assert (await server.get(f"{MAPS}/a"))["data"] == {"x": "1"}


async def test_apply_takes_yaml(server: LocalServer) -> None:
    body = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {x: '1'}\n"
    assert (await server.apply(f"{MAPS}/a?fieldManager=me", body)).status == 201
    flow = b"{kind: ConfigMap, apiVersion: v1, metadata: {name: a}, data: {x: '2'}}"
    answer = await server.apply(f"{MAPS}/a?fieldManager=me", flow)
    assert answer.document["data"] == {"x": "2"}


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ("", config_map(), 422),
        ("fieldManager=me", {"metadata": {"name": "a"}}, 400),
        ("fieldManager=me", config_map() | {"kind": "Secret"}, 400),
        ("fieldManager=me", config_map() | {"metadata": {"name": "b"}}, 400),
        ("fieldManager=me", config_map() | {"metadata": {"managedFields": [{}]}}, 400),
        ("fieldManager=me", config_map() | {"metadata": "a"}, 500),
        ("fieldManager=me", config_map() | {"data": "x"}, 500),
        ("fieldManager=me", b"[1]", 400),
        ("fieldManager=me", b"{", 400),
        ("fieldManager=me", config_map() | {"foo": 1}, 500),
    ],
)
async def test_configurations_that_cannot_be_applied(
    server: LocalServer, query: str, body: Any, code: int
) -> None:
    answer = await server.apply(f"{MAPS}/a?{query}", body)
    assert answer.status == code, answer.text
    assert (await server.call("GET", f"{MAPS}/a")).status == 404
    if code == 500:
        assert "failed to create typed patch object" in answer.message


async def test_apply_says_so_when_a_key_is_repeated(server: LocalServer) -> None:
    body = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  x: '1'\n  x: '2'\n"
    strict = await server.apply(f"{MAPS}/a?fieldManager=me&fieldValidation=Strict", body)
    assert strict.status == 400
    assert 'line 6: key "x" already set in map' in strict.message
    warned = await server.apply(f"{MAPS}/a?fieldManager=me", body)
    assert warned.status == 201
    assert warned.warnings == ['299 - "line 6: key \\"x\\" already set in map"']


async def test_two_appliers_conflict_unless_one_forces(server: LocalServer) -> None:
    await server.apply(f"{MAPS}/a?fieldManager=m1", config_map(a="1", b="1"))
    answer = await server.apply(f"{MAPS}/a?fieldManager=m2", config_map(a="2"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "m1": .data.a'
    assert answer.document["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "m1"',
            "field": ".data.a",
        }
    ]
    forced = await server.apply(f"{MAPS}/a?fieldManager=m2&force=true", config_map(a="2"))
    assert forced.status == 200
    assert forced.document["data"] == {"a": "2", "b": "1"}
    owners = {e["manager"]: e["fieldsV1"] for e in forced.document["metadata"]["managedFields"]}
    assert owners == {"m1": {"f:data": {"f:b": {}}}, "m2": {"f:data": {"f:a": {}}}}


async def test_what_is_no_longer_applied_goes_unless_shared(server: LocalServer) -> None:
    await server.apply(f"{MAPS}/a?fieldManager=m1", config_map(a="1", b="1"))
    await server.apply(f"{MAPS}/a?fieldManager=m2", config_map(b="1"))
    answer = await server.apply(f"{MAPS}/a?fieldManager=m1", config_map())
    assert answer.document["data"] == {"b": "1"}


async def test_plain_updates_take_ownership(server: LocalServer) -> None:
    await server.apply(f"{MAPS}/a?fieldManager=m1", config_map(a="1"))
    await server.merge(f"{MAPS}/a?fieldManager=editor", {"data": {"a": "2"}})
    answer = await server.apply(f"{MAPS}/a?fieldManager=m1", config_map(a="1"))
    assert answer.status == 409
    assert 'conflict with "editor" using v1: .data.a' in answer.message


async def test_a_dry_run_changes_nothing(server: LocalServer) -> None:
    await server.apply(f"{MAPS}/a?fieldManager=m1", config_map(a="1"))
    before = await server.get(f"{MAPS}/a")
    answer = await server.apply(f"{MAPS}/a?fieldManager=m1&dryRun=All", config_map(a="2"))
    assert answer.document["data"] == {"a": "2"}
    assert await server.get(f"{MAPS}/a") == before


async def test_defaults_do_not_look_like_changes(server: LocalServer) -> None:
    url = f"{DEPLOYMENTS}/web?fieldManager=me"
    first = await server.apply(url, deployment())
    assert first.status == 201
    second = await server.apply(url, deployment())
    assert second.document == first.document


async def test_ownership_can_be_rewritten(server: LocalServer) -> None:
    """As `kubectl apply --server-side` does with what it once applied itself."""
    made = await server.post(f"{MAPS}?fieldManager=old", config_map(a="1"))
    entry = made["metadata"]["managedFields"][0] | {"manager": "new", "operation": "Apply"}
    operations = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": made["metadata"]["resourceVersion"],
        },
    ]
    answer = await patch(server, f"{MAPS}/a", operations, JSON_PATCH)
    assert answer.status == 200
    [left] = answer.document["metadata"]["managedFields"]
    assert (left["manager"], left["operation"]) == ("new", "Apply")


async def test_apply_of_an_unknown_uid_conflicts(server: LocalServer) -> None:
    body = config_map()
    body["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    answer = await server.apply(f"{MAPS}/a?fieldManager=me", body)
    assert (answer.status, answer.reason) == (409, "Conflict")


FIELD = "Go struct field jsonPatchOp.{} of type string"


@pytest.mark.parametrize(
    ("operation", "code", "why"),
    [
        ({"op": "copy", "from": 5, "path": "/data/b"}, 400, f"number into {FIELD.format('from')}"),
        ({"op": ["x"], "path": "/data/b"}, 400, f"array into {FIELD.format('op')}"),
        ({"op": "remove", "path": {}}, 400, f"object into {FIELD.format('path')}"),
        ("x", 400, "string into Go value of type handlers.jsonPatchOp"),
        (None, 422, ""),
        ({"op": "copy", "path": "/data/b"}, 422, ""),
    ],
)
async def test_an_operation_of_other_types_is_refused_as_go_refuses_it(
    server: LocalServer, operation: object, code: int, why: str
) -> None:
    await server.post(MAPS, config_map(a="1"))
    answer = await patch(server, f"{MAPS}/a", [operation], JSON_PATCH)
    told = f"error decoding patch: json: cannot unmarshal {why}"
    rejected = "the server rejected our request due to an error in our request"
    assert (answer.status, answer.message) == (code, told if why else rejected)


async def test_the_copy_of_a_missing_value_is_null(server: LocalServer) -> None:
    await server.post(MAPS, config_map(a="1"))
    operation = {"op": "copy", "from": "/data/missing", "path": "/data/b"}
    answer = await patch(server, f"{MAPS}/a", [operation], JSON_PATCH)
    assert answer.status == 200
    assert answer.document["data"] == {"a": "1", "b": ""}
