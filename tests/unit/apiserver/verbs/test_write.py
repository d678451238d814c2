"""Create, update and patch, seen from outside."""

import threading
import uuid
from typing import Any

import pytest
import yaml

from kedge.api.apiextensions_v1 import formats
from kedge.api.model import LARGEST_OBJECT
from kedge.testing.local_server import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config_map(name: str = "settings", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data or {"a": "1"}}


def deployment(name: str = "web", replicas: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
            },
        },
    }


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}], **spec},
    }


async def test_create_sets_what_only_the_server_may_set(server: LocalServer) -> None:
    posted = deployment()
    posted["metadata"] |= {
        "uid": "mine",
        "generation": 7,
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "selfLink": "/x",
    }
    posted["status"] = {"replicas": 5}
    answer = await server.call("POST", DEPLOYMENTS, posted)
    assert answer.status == 201
    made = answer.document
    meta = made["metadata"]
    assert uuid.UUID(meta["uid"]).version == 4
    assert meta["creationTimestamp"] == "2030-01-01T00:00:00Z"
    assert meta["generation"] == 1
    assert meta["namespace"] == "default"
    assert "deletionTimestamp" not in meta
    assert "selfLink" not in meta
    assert made["status"] == {}
    assert (made["kind"], made["apiVersion"]) == ("Deployment", "apps/v1")
    assert await server.get(f"{DEPLOYMENTS}/web") == made


def owned(made: dict[str, Any]) -> dict[str, Any]:
    (entry,) = made["metadata"]["managedFields"]
    fields: dict[str, Any] = entry["fieldsV1"]
    return fields


async def test_pods_of_one_template_are_owned_alike_whatever_their_labels_say(
    server: LocalServer,
) -> None:
    made = []
    for name in ("p-1", "p-2"):
        posted = pod(name)
        posted["metadata"] |= {"labels": {"pod": name}, "annotations": {"note": name}}
        made.append(await server.post(PODS, posted))
    assert owned(made[0]) == owned(made[1])
    assert owned(made[0])["f:metadata"] == {
        "f:annotations": {".": {}, "f:note": {}},
        "f:labels": {".": {}, "f:pod": {}},
    }


async def test_a_label_more_is_a_field_more(server: LocalServer) -> None:
    plain = await server.post(PODS, pod("plain"))
    posted = pod("labelled")
    posted["metadata"] |= {"labels": {"app": "web"}, "finalizers": ["example.com/stop"]}
    labelled = await server.post(PODS, posted)
    assert "f:metadata" not in owned(plain)
    assert owned(labelled) == owned(plain) | {
        "f:metadata": {
            "f:finalizers": {".": {}, 'v:"example.com/stop"': {}},
            "f:labels": {".": {}, "f:app": {}},
        }
    }


async def test_managed_fields_in_a_new_object_are_kept_besides_its_makers(
    server: LocalServer,
) -> None:
    posted = config_map(a="1", b="2")
    other = {
        "manager": "other",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2029-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:z": {}}},
    }
    posted["metadata"]["managedFields"] = [other]
    made = await server.post(MAPS, posted)
    first, second = made["metadata"]["managedFields"]
    assert first == other
    assert second["fieldsV1"] == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}


async def test_what_a_spec_says_counts_each_time_that_it_is_posted(server: LocalServer) -> None:
    amounts = {"requests": {"cpu": "0.5"}}
    containers = [{"name": "c", "image": "nginx:1", "resources": amounts, "colour": "red"}]
    for name in ("p-1", "p-2"):
        answer = await server.call("POST", PODS, pod(name, containers=containers, tolerations=None))
        (warning,) = answer.warnings
        assert "spec.containers[0].colour" in warning
        spec = answer.document["spec"]
        assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m"}
        assert "colour" not in spec["containers"][0]


async def test_a_misfit_is_named_each_time_that_it_is_posted(server: LocalServer) -> None:
    for name in ("p-1", "p-2"):
        answer = await server.call("POST", PODS, pod(name, terminationGracePeriodSeconds="soon"))
        assert answer.status == 400
        assert "spec.terminationGracePeriodSeconds of type int64" in answer.message


async def test_kinds_without_a_spec_count_no_generation(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    assert "generation" not in made["metadata"]


async def test_resource_versions_rise_across_kinds(server: LocalServer) -> None:
    first = await server.post(MAPS, config_map())
    second = await server.post(DEPLOYMENTS, deployment())
    third = await server.merge(f"{MAPS}/settings", {"data": {"b": "2"}})
    versions = [int(each["metadata"]["resourceVersion"]) for each in (first, second, third)]
    assert versions == sorted(set(versions))


async def test_a_resource_version_on_create_is_refused(server: LocalServer) -> None:
    posted = config_map()
    posted["metadata"]["resourceVersion"] = "5"
    answer = await server.call("POST", MAPS, posted)
    assert answer.status == 400
    assert (await server.call("GET", f"{MAPS}/settings")).status == 404
    # The store finds it, as upstream: a dry run passes, and an error of validation comes first.
    assert (await server.call("POST", f"{MAPS}?dryRun=All", posted)).status == 201
    posted["metadata"]["labels"] = {"not a key": ""}
    assert (await server.call("POST", MAPS, posted)).status == 422


async def test_a_name_is_generated_from_a_prefix_that_is_cut(server: LocalServer) -> None:
    made = await server.post(MAPS, {"metadata": {"generateName": "x" * 70}})
    name = made["metadata"]["name"]
    assert len(name) == 63
    assert name.startswith("x" * 58)
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert made["metadata"]["generateName"] == "x" * 70


class Dice:
    """Gives the same names again and again, then others."""

    def __init__(self, repeats: int) -> None:
        self._left = repeats

    def choice(self, letters: Any) -> Any:
        self._left -= 1
        return letters[0] if self._left >= 0 else letters[1]

    def choices(self, letters: Any, *, k: int) -> list[Any]:
        return [self.choice(letters) for _ in range(k)]

    def getrandbits(self, bits: int) -> int:
        return 1


async def test_a_generated_name_that_is_taken_is_tried_again(
    server: LocalServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(server.app.api, "random", Dice(10))
    posted = {"metadata": {"generateName": "x-"}}
    first = await server.post(MAPS, posted)
    second = await server.post(MAPS, posted)
    assert first["metadata"]["name"] == "x-bbbbb"
    assert second["metadata"]["name"] == "x-ccccc"


async def test_generating_a_name_gives_up_after_eight_tries(
    server: LocalServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(server.app.api, "random", Dice(5 * 9))
    posted = {"metadata": {"generateName": "x-"}}
    await server.post(MAPS, posted)
    answer = await server.call("POST", MAPS, posted)
    assert (answer.status, answer.reason) == (409, "AlreadyExists")


async def test_neither_name_nor_prefix_is_invalid(server: LocalServer) -> None:
    answer = await server.call("POST", MAPS, {"data": {"a": "1"}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    [cause] = answer.document["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueRequired", "metadata.name")


async def test_a_taken_name_is_refused(server: LocalServer) -> None:
    await server.post(MAPS, config_map())
    answer = await server.call("POST", MAPS, config_map())
    assert answer.document == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "settings" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "settings", "kind": "configmaps"},
        "code": 409,
    }


async def test_a_body_that_contradicts_the_url_is_refused(server: LocalServer) -> None:
    elsewhere = config_map()
    elsewhere["metadata"]["namespace"] = "other"
    assert (await server.call("POST", MAPS, elsewhere)).status == 400
    wrong_kind = config_map() | {"kind": "Secret", "apiVersion": "v1"}
    assert (await server.call("POST", MAPS, wrong_kind)).status == 400
    wrong_version = config_map() | {"kind": "ConfigMap", "apiVersion": "apps/v1"}
    assert (await server.call("POST", MAPS, wrong_version)).status == 400
    await server.post(MAPS, config_map())
    assert (await server.call("PUT", f"{MAPS}/settings", config_map("other"))).status == 400


async def test_a_namespace_in_a_cluster_wide_object_is_dropped(server: LocalServer) -> None:
    body = {"metadata": {"name": "n1", "namespace": "default"}}
    made = await server.post("/api/v1/nodes", body)
    assert "namespace" not in made["metadata"]


async def test_creating_in_a_missing_namespace_is_not_found(server: LocalServer) -> None:
    answer = await server.call("POST", "/api/v1/namespaces/nowhere/configmaps", config_map())
    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


async def test_creating_in_a_terminating_namespace_is_forbidden(server: LocalServer) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    await server.delete("/api/v1/namespaces/going")
    answer = await server.call("POST", "/api/v1/namespaces/going/configmaps", config_map())
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.document["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_a_new_namespace_is_labelled_active_and_held(server: LocalServer) -> None:
    made = await server.post("/api/v1/namespaces", {"metadata": {"name": "ns1"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "ns1"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}


# Update.


async def test_generation_rises_with_the_spec_alone(server: LocalServer) -> None:
    made = await server.post(DEPLOYMENTS, deployment())
    made["metadata"]["labels"] = {"x": "y"}
    labelled = await server.put(f"{DEPLOYMENTS}/web", made)
    assert labelled["metadata"]["generation"] == 1
    labelled["spec"]["replicas"] = 3
    scaled = await server.put(f"{DEPLOYMENTS}/web", labelled)
    assert scaled["metadata"]["generation"] == 2


async def test_an_update_leaves_the_status_alone(server: LocalServer) -> None:
    made = await server.post(DEPLOYMENTS, deployment())
    made["status"] = {"replicas": 9}
    assert (await server.put(f"{DEPLOYMENTS}/web", made))["status"] == {}


async def test_an_update_that_changes_nothing_keeps_the_version(server: LocalServer) -> None:
    for path, posted in ((MAPS, config_map()), (DEPLOYMENTS, deployment()), (PODS, pod())):
        made = await server.post(path, posted)
        url = f"{path}/{made['metadata']['name']}"
        await server.clock.advance(5)
        assert await server.put(url, made) == made
        assert await server.merge(url, {}) == made
        answer = await server.call("PATCH", url, {}, content_type=STRATEGIC)
        assert answer.document == made
        assert (await server.call("PATCH", url, [], content_type=JSON_PATCH)).document == made


async def test_an_applied_configuration_that_changes_nothing_keeps_the_version(
    server: LocalServer,
) -> None:
    url = f"{MAPS}/settings?fieldManager=me"
    body = config_map() | {"kind": "ConfigMap", "apiVersion": "v1"}
    first = await server.call("PATCH", url, body, content_type=APPLY)
    await server.clock.advance(5)
    second = await server.call("PATCH", url, body, content_type=APPLY)
    assert (first.status, second.status) == (201, 200)
    assert first.document == second.document


async def test_a_stale_version_conflicts(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    await server.merge(f"{MAPS}/settings", {"data": {"b": "2"}})
    answer = await server.call("PUT", f"{MAPS}/settings", made)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message.startswith(
        'Operation cannot be fulfilled on configmaps "settings": the object has been modified'
    )
    assert answer.document["details"] == {"name": "settings", "kind": "configmaps"}
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    patched = await server.call("PATCH", f"{MAPS}/settings", stale, content_type=MERGE)
    assert (patched.status, patched.reason) == (409, "Conflict")


async def test_most_kinds_are_replaced_without_a_version(server: LocalServer) -> None:
    await server.post(MAPS, config_map())
    replaced = await server.put(f"{MAPS}/settings", config_map(b="2"))
    assert replaced["data"] == {"b": "2"}


async def test_some_kinds_need_a_version_to_be_replaced(server: LocalServer) -> None:
    url = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}
    await server.post(url, body)
    answer = await server.call("PUT", f"{url}/b", body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.document["details"]["causes"][0]["field"] == "metadata.resourceVersion"
    missing = await server.call("PUT", f"{url}/none", {"metadata": {"name": "none"}})
    assert missing.status == 404


async def test_another_uid_is_another_object(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    made["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    answer = await server.call("PUT", f"{MAPS}/settings", made)
    assert (answer.status, answer.reason) == (409, "Conflict")
    body = {"metadata": {"uid": "11111111-1111-4111-8111-111111111111"}}
    patched = await server.call("PATCH", f"{MAPS}/settings", body, content_type=MERGE)
    assert (patched.status, patched.reason) == (422, "Invalid")


async def test_only_some_kinds_are_created_by_a_put(server: LocalServer) -> None:
    assert (await server.call("PUT", f"{MAPS}/settings", config_map())).status == 404
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    answer = await server.call("PUT", f"{leases}/l", lease)
    assert answer.status == 201
    assert answer.document["metadata"]["name"] == "l"


async def test_a_put_does_not_bring_a_deleted_object_back(server: LocalServer) -> None:
    endpoints = "/api/v1/namespaces/default/endpoints"
    read = await server.post(endpoints, {"metadata": {"name": "web"}})
    await server.call("DELETE", f"{endpoints}/web")
    answer = await server.call("PUT", f"{endpoints}/web", read)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (await server.call("GET", f"{endpoints}/web")).status == 404


async def test_the_server_keeps_what_an_update_cannot_change(server: LocalServer) -> None:
    made = await server.post(MAPS, config_map())
    changed = config_map(z="1")
    changed["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    changed["metadata"]["generation"] = 9
    put = await server.put(f"{MAPS}/settings", changed)
    for name in ("uid", "creationTimestamp"):
        assert put["metadata"][name] == made["metadata"][name]
    assert "generation" not in put["metadata"]


# Dry run.


async def test_a_dry_run_answers_and_stores_nothing(server: LocalServer) -> None:
    answer = await server.call("POST", f"{MAPS}?dryRun=All", config_map())
    assert answer.status == 201
    assert "uid" in answer.document["metadata"]
    assert "resourceVersion" not in answer.document["metadata"]
    assert (await server.call("GET", f"{MAPS}/settings")).status == 404
    made = await server.post(MAPS, config_map())
    patched = await server.merge(f"{MAPS}/settings?dryRun=All", {"data": {"b": "2"}})
    assert patched["data"] == {"a": "1", "b": "2"}
    put = await server.put(f"{MAPS}/settings?dryRun=All", config_map(c="3"))
    assert put["data"] == {"c": "3"}
    assert await server.get(f"{MAPS}/settings") == made


async def test_dry_run_takes_no_other_value(server: LocalServer) -> None:
    answer = await server.call("POST", f"{MAPS}?dryRun=Some", config_map())
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('CreateOptions.meta.k8s.io "" is invalid: dryRun:')


async def test_a_dry_run_of_apply_creates_nothing(server: LocalServer) -> None:
    body = config_map() | {"kind": "ConfigMap", "apiVersion": "v1"}
    url = f"{MAPS}/settings?fieldManager=me&dryRun=All"
    answer = await server.call("PATCH", url, body, content_type=APPLY)
    assert answer.status == 201
    assert (await server.call("GET", f"{MAPS}/settings")).status == 404


# Field validation.


async def test_strict_validation_refuses_unknown_and_repeated_fields(server: LocalServer) -> None:
    body = b'{"metadata":{"name":"x"},"data":{"a":"1","a":"2"},"bar":{"b":1}}'
    answer = await server.call("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'unknown field "bar", duplicate field "data.a"'
    )
    assert (await server.call("GET", f"{MAPS}/x")).status == 404


async def test_paths_of_unknown_fields_have_indexes(server: LocalServer) -> None:
    body = pod()
    body["spec"]["containers"][0]["imagee"] = "x"
    answer = await server.call("POST", f"{PODS}?fieldValidation=Strict", body)
    assert 'unknown field "spec.containers[0].imagee"' in answer.message


async def test_by_default_unknown_fields_are_dropped_with_a_warning(server: LocalServer) -> None:
    answer = await server.call("POST", MAPS, config_map() | {"bar": 1})
    assert answer.status == 201
    assert answer.warnings == ['299 - "unknown field \\"bar\\""']
    assert "bar" not in answer.document


async def test_unknown_fields_are_ignored_when_asked(server: LocalServer) -> None:
    answer = await server.call("POST", f"{MAPS}?fieldValidation=Ignore", config_map() | {"bar": 1})
    assert (answer.status, answer.warnings) == (201, [])


async def test_field_validation_takes_no_other_value(server: LocalServer) -> None:
    answer = await server.call("POST", f"{MAPS}?fieldValidation=Loose", config_map())
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_patch_may_not_bring_unknown_fields_in(server: LocalServer) -> None:
    await server.post(MAPS, config_map())
    url = f"{MAPS}/settings?fieldValidation=Strict"
    answer = await server.call("PATCH", url, {"bar": 1}, content_type=MERGE)
    assert answer.status == 422
    assert 'unknown field "bar"' in answer.message
    doubled = b'{"data":{"a":"1","a":"2"}}'
    answer = await server.call("PATCH", url, doubled, content_type=STRATEGIC)
    assert answer.status == 422
    assert 'duplicate field "data.a"' in answer.message


async def test_warnings_do_not_outgrow_what_clients_take_in_headers(server: LocalServer) -> None:
    body = config_map() | {f"field{i}": 1 for i in range(5000)}
    answer = await server.call("POST", MAPS, body)
    assert answer.status == 201
    assert 0 < sum(map(len, answer.warnings)) < 16384


async def test_a_wrong_type_is_a_bad_request(server: LocalServer) -> None:
    body = deployment()
    body["spec"]["replicas"] = "two"
    answer = await server.call("POST", DEPLOYMENTS, body)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(
        'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal '
        "string into Go struct field"
    )


def with_mapping(value: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "env": value}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container]}}


async def test_variables_written_as_a_mapping_are_stored_as_a_list(server: LocalServer) -> None:
    warned = [
        '299 - "spec.containers[0].env: kedge extension, not portable to other clusters"',
    ]
    created = await server.call("POST", PODS, with_mapping({"B": "1", "A": "2"}))
    assert (created.status, created.warnings) == (201, warned)
    assert created.document["spec"]["containers"][0]["env"] == [
        {"name": "B", "value": "1"},
        {"name": "A", "value": "2"},
    ]
    body = {"apiVersion": "v1", "kind": "Pod", **with_mapping({"B": "1", "A": "2"})}
    path = f"{PODS}/p?fieldManager=me&force=true"
    applied = await server.call("PATCH", path, body, content_type=APPLY)
    assert (applied.status, applied.warnings) == (200, warned)


async def test_a_variable_in_a_mapping_must_be_a_string(server: LocalServer) -> None:
    answer = await server.call("POST", PODS, with_mapping({"A": 1}))
    assert (answer.status, answer.message) == (
        400,
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go '
        "struct field EnvVar.spec.containers.env.value of type string",
    )


async def test_upstream_knows_no_variables_as_a_mapping() -> None:
    async with LocalServer.running(upstream_only=True) as server:
        answer = await server.call("POST", PODS, with_mapping({"A": "1"}))
    assert (answer.status, answer.message) == (
        400,
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal object into Go '
        "struct field Container.spec.containers.env of type []v1.EnvVar",
    )


async def test_every_broken_rule_is_listed(server: LocalServer) -> None:
    body = {"metadata": {"name": "Bad"}, "spec": {"containers": []}}
    answer = await server.call("POST", PODS, body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.document["details"]["kind"] == "Pod"
    fields = {cause["field"] for cause in answer.document["details"]["causes"]}
    assert {"metadata.name", "spec.containers"} <= fields
    assert answer.message.startswith('Pod "Bad" is invalid: [')


# managedFields of plain writes.


async def test_fields_belong_to_the_named_manager_or_the_user_agent(server: LocalServer) -> None:
    made = await server.post(f"{MAPS}?fieldManager=me", config_map())
    [entry] = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}
    patched = await server.merge(f"{MAPS}/settings", {"data": {"b": "2"}})
    assert [e["manager"] for e in patched["metadata"]["managedFields"]] == ["me", "test"]


async def test_a_manager_with_a_bad_name_is_refused(server: LocalServer) -> None:
    answer = await server.call("POST", f"{MAPS}?fieldManager={'x' * 129}", config_map())
    assert (answer.status, answer.reason) == (422, "Invalid")
    answer = await server.call("POST", f"{MAPS}?fieldManager=a%0Ab", config_map())
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_concurrent_patches_are_all_applied(server: LocalServer) -> None:
    await server.post(MAPS, config_map())
    tasks = [server.start(_set(server, f"{MAPS}/settings", f"k{number}")) for number in range(20)]
    for task in tasks:
        await task
    found = await server.get(f"{MAPS}/settings")
    assert len(found["data"]) == 21


async def _set(server: LocalServer, url: str, key: str) -> None:
    await server.merge(url, {"data": {key: "x"}})


def with_variables(count: int, name: str = "web") -> dict[str, Any]:
    made = deployment(name)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": f"E{i}", "value": "v" * 20} for i in range(count)]
    return made


async def test_an_object_that_is_too_large_is_refused(server: LocalServer) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["a" * 200]}]
    role = {"metadata": {"name": "r"}, "rules": rules * 5_000}
    assert (await server.call("POST", path, role)).status == 201
    kept = await server.get(f"{path}/r")
    role["rules"] = rules * 9_000
    answer = await server.call("PUT", f"{path}/r", role)
    assert (answer.status, answer.document["reason"]) == (413, "RequestEntityTooLarge")
    assert answer.document["message"] == f"Request entity too large: limit is {LARGEST_OBJECT}"
    assert await server.get(f"{path}/r") == kept
    role["metadata"] = {"name": "other"}
    assert (await server.call("POST", path, role)).status == 413


async def test_a_large_object_loses_its_managed_fields(server: LocalServer) -> None:
    assert (await server.call("POST", DEPLOYMENTS, with_variables(18_000))).status == 201
    made = await server.get(f"{DEPLOYMENTS}/web")
    assert "managedFields" not in made["metadata"]
    assert (await server.call("POST", DEPLOYMENTS, with_variables(5, "small"))).status == 201
    path, patch = f"{DEPLOYMENTS}/small", with_variables(18_000, "small")
    assert "managedFields" in (await server.get(path))["metadata"]
    assert (await server.call("PATCH", path, patch, content_type=MERGE)).status == 200
    assert "managedFields" not in (await server.get(path))["metadata"]


UNNAMED = "the name of the object (w based on URL) was undeterminable: name must be provided"


@pytest.mark.parametrize(
    ("method", "path", "body", "sort"),
    [
        ("PUT", f"{MAPS}/w", {}, JSON),
        ("PUT", f"{MAPS}/w", {"metadata": {"labels": {"a": "b"}}}, JSON),
        ("PATCH", f"{MAPS}/w", {"metadata": None}, MERGE),
        ("PATCH", f"{MAPS}/w", {"metadata": {"name": None}}, MERGE),
        ("PATCH", f"{MAPS}/w", {"$patch": "delete"}, STRATEGIC),
        ("PATCH", f"{MAPS}/w", [{"op": "remove", "path": "/metadata"}], JSON_PATCH),
        ("PUT", f"{DEPLOYMENTS}/w", {"spec": {"replicas": 0}}, JSON),
        ("PUT", f"{DEPLOYMENTS}/w/status", {}, JSON),
        ("PUT", f"{DEPLOYMENTS}/w/scale", {}, JSON),
        ("PUT", "/api/v1/namespaces/w/finalize", {}, JSON),
    ],
)
async def test_an_update_without_a_name_changes_nothing(
    server: LocalServer, method: str, path: str, body: Any, sort: str
) -> None:
    made = config_map("w") | {"metadata": {"name": "w", "finalizers": ["example.com/x"]}}
    await server.post(MAPS, made)
    await server.post(DEPLOYMENTS, deployment("w"))
    await server.post("/api/v1/namespaces", {"metadata": {"name": "w"}})
    whole = path.removesuffix("/finalize")
    before = await server.get(whole)
    answer = await server.call(method, path, body, content_type=sort)
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")
    assert answer.message == UNNAMED
    assert await server.get(whole) == before


async def test_an_unnamed_object_is_refused_before_it_is_looked_for(server: LocalServer) -> None:
    answer = await server.call("PUT", f"{MAPS}/w", {})
    assert (answer.status, answer.message) == (400, UNNAMED)


async def test_an_apply_needs_a_name_to_create_an_object(server: LocalServer) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    path = f"{MAPS}/w?fieldManager=m"
    answer = await server.call("PATCH", path, config, content_type=APPLY)
    assert (answer.status, answer.message) == (400, UNNAMED)
    await server.post(MAPS, config_map("w", b="2"))
    answer = await server.call("PATCH", path, config, content_type=APPLY)
    assert answer.document["data"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("deletionTimestamp", "2031-01-01T00:00:00Z", '"2031-01-01T00:00:00Z"'),
        ("deletionGracePeriodSeconds", 7, "7"),
    ],
)
async def test_an_update_cannot_mark_an_object_for_deletion(
    server: LocalServer, field: str, value: Any, shown: str
) -> None:
    await server.post(MAPS, config_map("w"))
    answer = await server.call(
        "PATCH", f"{MAPS}/w", {"metadata": {field: value}}, content_type=MERGE
    )
    assert answer.status == 422
    assert answer.message == (
        f'ConfigMap "w" is invalid: metadata.{field}: Invalid value: {shown}: field is immutable'
    )


INGRESS = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/n"


@pytest.mark.parametrize("empty", [[], None])
async def test_applying_an_empty_value_takes_it_from_its_owner(
    server: LocalServer, empty: Any
) -> None:
    def policy(**spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "n"},
            "spec": {"podSelector": {}, **spec},
        }

    one = policy(ingress=[{"ports": [{"port": 80}]}])
    await server.call("PATCH", f"{INGRESS}?fieldManager=one", one, content_type=APPLY)
    other = policy(ingress=empty)
    path = f"{INGRESS}?fieldManager=two"
    answer = await server.call("PATCH", path, other, content_type=APPLY)
    assert (answer.status, answer.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "one": .spec.ingress',
    )
    answer = await server.call("PATCH", f"{path}&force=true", other, content_type=APPLY)
    assert "ingress" not in answer.document["spec"]
    owners = {e["manager"]: e["fieldsV1"] for e in answer.document["metadata"]["managedFields"]}
    assert owners["two"]["f:spec"]["f:ingress"] == {}
    assert "f:ingress" not in owners["one"].get("f:spec", {})
    again = await server.call("PATCH", path, other, content_type=APPLY)
    assert again.document == answer.document, "nothing is left to change"


async def test_the_creator_does_not_own_a_status(server: LocalServer) -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    made = await server.post(path, claim)
    assert made["status"] == {"phase": "Pending"}
    assert "f:status" not in made["metadata"]["managedFields"][0]["fieldsV1"]
    status = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "status": {"phase": "Bound"},
    }
    answer = await server.call(
        "PATCH", f"{path}/c/status?fieldManager=binder", status, content_type=APPLY
    )
    assert answer.status == 200


@pytest.mark.parametrize("name", [{}, {"name": None}])
async def test_a_list_item_without_its_key_is_invalid(
    server: LocalServer, name: dict[str, Any]
) -> None:
    config = pod("p") | {"apiVersion": "v1", "kind": "Pod"}
    config["spec"]["containers"] = [{"image": "i"} | name]
    answer = await server.call("PATCH", f"{PODS}/p?fieldManager=m", config, content_type=APPLY)
    assert answer.status == 422
    assert "spec.containers[0].name: Required value" in answer.message


async def test_a_whole_number_with_a_point_is_an_integer_only_where_go_reads_it_so(
    server: LocalServer,
) -> None:
    url = f"{DEPLOYMENTS}/web"
    posted = deployment()
    posted["spec"]["replicas"] = 2.0
    assert (await server.call("POST", DEPLOYMENTS, posted)).status == 400
    text = yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment"} | posted).encode()
    made = await server.call("POST", DEPLOYMENTS, text, content_type="application/yaml")
    assert (made.status, made.document["spec"]["replicas"]) == (201, 2)
    change = {"spec": {"replicas": 3.0}}
    assert (await server.call("PATCH", url, change, content_type=MERGE)).status == 422
    answer = await server.call("PATCH", url, change, content_type=STRATEGIC)
    assert answer.document["spec"]["replicas"] == 3


async def test_a_resource_version_of_zero_fits_any(server: LocalServer) -> None:
    await server.post(MAPS, config_map("w"))
    wanted = config_map("w", b="2")
    wanted["metadata"]["resourceVersion"] = "0"
    answer = await server.call("PUT", f"{MAPS}/w", wanted)
    assert answer.document["data"] == {"b": "2"}


async def test_an_apply_with_a_resource_version_creates_a_missing_object(
    server: LocalServer,
) -> None:
    config = config_map("w") | {"apiVersion": "v1", "kind": "ConfigMap"}
    config["metadata"]["resourceVersion"] = "7"
    answer = await server.apply(f"{MAPS}/w?fieldManager=m", config)
    assert answer.status == 201
    assert answer.document["metadata"]["resourceVersion"] != "7"


async def test_annotations_of_a_deployment_raise_its_generation(server: LocalServer) -> None:
    made = await server.post(DEPLOYMENTS, deployment())
    assert made["metadata"]["generation"] == 1
    meta = {"metadata": {"annotations": {"a": "b"}}}
    assert (await server.merge(f"{DEPLOYMENTS}/web", meta))["metadata"]["generation"] == 2
    meta = {"metadata": {"labels": {"a": "b"}}}
    assert (await server.merge(f"{DEPLOYMENTS}/web", meta))["metadata"]["generation"] == 2
    # As the controller does, which writes the revision with the status.
    meta = {"metadata": {"annotations": {"c": "d"}}}
    changed = await server.merge(f"{DEPLOYMENTS}/web/status", meta)
    assert changed["metadata"]["annotations"] == {"a": "b", "c": "d"}
    assert changed["metadata"]["generation"] == 2


async def test_the_generation_of_a_priority_class_stays(server: LocalServer) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await server.post(classes, {"metadata": {"name": "p"}, "value": 1})
    changed = await server.merge(f"{classes}/p", {"description": "x"})
    assert changed["metadata"]["generation"] == 1


async def test_autoscalers_have_no_generation(server: LocalServer) -> None:
    url = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target}
    made = await server.post(url, {"metadata": {"name": "h"}, "spec": spec})
    assert "generation" not in made["metadata"]


async def test_a_negative_limit_is_none(server: LocalServer) -> None:
    for name in ("a", "b"):
        await server.post(MAPS, config_map(name))
    assert len((await server.get(f"{MAPS}?limit=-1"))["items"]) == 2


async def test_fields_behind_gates_that_are_off_are_dropped(server: LocalServer) -> None:
    hook = {"sleep": {"seconds": 1}}
    trust = {"clusterTrustBundle": {"name": "b", "path": "ca"}}
    volume = {"name": "v", "projected": {"sources": [trust]}}
    posted = pod(schedulingGroup={"podGroupName": "g"}, volumes=[volume])
    posted["spec"]["containers"] = [
        {"name": "a", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1", "preStop": hook}},
        {"name": "b", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}},
    ]
    spec = (await server.post(PODS, posted))["spec"]
    assert [each.get("lifecycle") for each in spec["containers"]] == [{"preStop": hook}, None]
    assert "schedulingGroup" not in spec
    assert spec["volumes"][0]["projected"]["sources"] == [{}]


async def test_warnings_about_a_large_object_are_made_in_a_thread(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[bool] = set()
    recognized = formats.recognized

    def noted(*given: Any) -> bool:
        threads.add(threading.current_thread() is threading.main_thread())
        return recognized(*given)

    properties = {f"p{i}": {"type": "string", "format": "nope"} for i in range(2_000)}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "x.io", "names": names, "scope": "Namespaced", "versions": [version]}
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await server.post(url, {"metadata": {"name": "things.x.io"}, "spec": spec})
    monkeypatch.setattr(formats, "recognized", noted)
    await server.merge(f"{url}/things.x.io", {"metadata": {"labels": {"a": "b"}}})
    assert threads == {False}
