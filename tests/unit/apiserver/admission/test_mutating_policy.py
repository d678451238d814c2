"""MutatingAdmissionPolicies, one case per line of mutating_policies.yaml."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.crd.schema import from_openapi
from kedge.apiserver.policies import mutating_policies
from kedge.apiserver.policies.policy_set import PolicySet
from kedge.testing.local_server import LocalServer

CASES = yaml.safe_load(Path(__file__).with_name("mutating_policies.yaml").read_text())
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/mutatingadmissionpolicies"
BINDINGS = f"{GROUP}/mutatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
RULES = {
    "resourceRules": [
        {
            "apiGroups": ["", "apps"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps", "deployments"],
        }
    ]
}
MAP = {"metadata": {"name": "c"}, "data": {"k": "v"}}
DEPLOYMENT = {
    "metadata": {"name": "c"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "a", "image": "host"}]},
        },
    },
}
SPEC_FIELDS = ("variables", "mutations", "matchConditions", "paramKind", "failurePolicy")


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    plugins = ("NamespaceLifecycle", "MutatingAdmissionPolicy")
    async with LocalServer.running(admission=plugins) as running:
        yield running


async def bind(server: LocalServer, name: str, spec: dict[str, Any], **binding: Any) -> None:
    whole = {"matchConstraints": RULES, "reinvocationPolicy": "Never", **spec}
    await server.post(POLICIES, {"metadata": {"name": name}, "spec": whole})
    bound = {"policyName": name, **binding}
    await server.post(BINDINGS, {"metadata": {"name": name.replace("m", "b")}, "spec": bound})
    await server.settle()


def is_part(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict):
        return all(is_part(value, found.get(name)) for name, value in wanted.items())
    return bool(wanted == found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_mutations(case: dict[str, Any], server: LocalServer) -> None:
    spec = {name: case[name] for name in SPEC_FIELDS if name in case}
    await bind(server, "m1", spec, **case.get("binding", {}))
    is_deployment = case.get("create") == "deployment"
    url, body = (DEPLOYMENTS, DEPLOYMENT) if is_deployment else (MAPS, MAP)
    answer = await server.call("POST", url, body)
    if "message" in case:
        said = f"policy 'm1' with binding 'b1' denied request: {case['message']}"
        assert answer.message == said
        assert (answer.status, answer.reason) == (403, case.get("reason", "Invalid"))
        assert answer.document["details"]["causes"] == [{"message": said}]
        return
    assert answer.status == 201, answer.text
    assert is_part(case.get("gives", {}), answer.document), answer.text
    if "containers" in case:
        containers = answer.document["spec"]["template"]["spec"]["containers"]
        assert [each["name"] for each in containers] == case["containers"]
        assert containers[1]["imagePullPolicy"], "new containers get defaults"


async def test_a_result_of_the_wrong_type(server: LocalServer) -> None:
    patch = "[JSONPatch{op: 'replace', path: '/data', value: 'text'}]"
    await bind(
        server,
        "m1",
        {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]},
    )
    answer = await server.call("POST", MAPS, MAP)
    assert answer.status == 500
    assert answer.message.startswith("Internal error occurred: ")


def labelling(label: str, condition: str = "true") -> dict[str, Any]:
    change = f"Object{{metadata: Object.metadata{{labels: {{'{label}': 'x'}}}}}}"
    expression = f"{condition} ? {change} : Object{{}}"
    return {
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
        ]
    }


async def test_a_policy_runs_again_after_a_later_one(server: LocalServer) -> None:
    seen = "has(object.metadata.labels) && 'second' in object.metadata.labels"
    first = labelling("first", seen) | {"reinvocationPolicy": "IfNeeded"}
    await bind(server, "m1", first)
    await bind(server, "m2", labelling("second"))
    made = await server.post(MAPS, MAP)
    assert made["metadata"]["labels"] == {"first": "x", "second": "x"}


async def test_a_policy_runs_again_after_its_own_change(server: LocalServer) -> None:
    # Seen on kube-apiserver 1.36.
    expression = "[JSONPatch{op: 'add', path: '/data/a', value: object.?data.a.orValue('') + 'x'}]"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    await bind(server, "m1", {"mutations": [mutation], "reinvocationPolicy": "IfNeeded"})
    made = await server.post(MAPS, {"metadata": {"name": "c"}, "data": {"a": "-"}})
    assert made["data"] == {"a": "-xx"}


async def test_no_policy_runs_again_after_one_has_refused(server: LocalServer) -> None:
    expression = "[JSONPatch{op: 'remove', path: '/data/missing'}]"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    await bind(server, "m1", {"mutations": [mutation], "reinvocationPolicy": "IfNeeded"})
    await bind(server, "m2", labelling("second"))
    answer = await server.call("POST", MAPS, MAP)
    assert answer.status == 403
    assert len(answer.document["details"]["causes"]) == 1


async def test_a_policy_runs_once_by_default(server: LocalServer) -> None:
    seen = "has(object.metadata.labels) && 'second' in object.metadata.labels"
    await bind(server, "m1", labelling("first", seen))
    await bind(server, "m2", labelling("second"))
    made = await server.post(MAPS, MAP)
    assert made["metadata"]["labels"] == {"second": "x"}


async def test_values_of_policies_have_no_owner(server: LocalServer) -> None:
    await bind(server, "m1", labelling("first"))
    made = await server.post(MAPS, MAP)
    (entry,) = made["metadata"]["managedFields"]
    assert "f:metadata" not in entry["fieldsV1"]


@pytest.mark.parametrize(
    ("mutation", "why"),
    [
        (
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "{'a': 1}"}},
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"{'a': 1}\": "
            "must evaluate to Object but got map(string, int)",
        ),
        (
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "JSONPatch{op: 'add'}"}},
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"JSONPatch{op: 'add'}\": "
            "must evaluate to list(JSONPatch) but got JSONPatch",
        ),
    ],
)
async def test_mutations_are_compiled_on_write(
    server: LocalServer, mutation: dict[str, Any], why: str
) -> None:
    spec = {"matchConstraints": RULES, "reinvocationPolicy": "Never", "mutations": [mutation]}
    answer = await server.call("POST", POLICIES, {"metadata": {"name": "m"}, "spec": spec})
    assert answer.status == 422
    said = 'MutatingAdmissionPolicy.admissionregistration.k8s.io "m" is invalid: '
    assert answer.message == f"{said}{why}"


async def test_a_policy_that_cannot_be_read_can_be_deleted(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
    await bind(server, "m1", {"mutations": [patch]})

    def bound(policies: Any) -> Any:
        raise ValueError("not a policy")

    monkeypatch.setattr(PolicySet, "bound", bound)
    assert (await server.call("POST", MAPS, {"metadata": {"name": "c"}})).status == 500
    assert (await server.call("DELETE", f"{POLICIES}/m1")).status == 200
    body = {"metadata": {"name": "new"}, "spec": {"policyName": "p"}}
    assert (await server.call("POST", BINDINGS, body)).status == 201


async def test_the_schema_of_another_version_is_made_in_a_thread(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str, *, stored: bool) -> dict[str, Any]:
        spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": stored, "schema": schema}

    kind = {"plural": "cats", "singular": "cat", "kind": "Cat", "listKind": "CatList"}
    versions = [version("v1", stored=True), version("v2", stored=False)]
    spec = {"group": "a.org", "scope": "Namespaced", "names": kind, "versions": versions}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await server.post(crds, {"metadata": {"name": "cats.a.org"}, "spec": spec})
    rule = {"apiGroups": ["a.org"], "apiVersions": ["v1"], "resources": ["cats"]}
    rules = {"resourceRules": [rule | {"operations": ["CREATE"]}], "matchPolicy": "Equivalent"}
    await bind(server, "m1", {"matchConstraints": rules, **labelling("seen")})
    threads: list[int] = []

    def noting(props: Any) -> Any:
        threads.append(threading.get_ident())
        return from_openapi(props)

    monkeypatch.setattr("kedge.apiserver.crd.resources.from_openapi", noting)
    cats = "/apis/a.org/v2/namespaces/default/cats"
    cat = {"apiVersion": "a.org/v2", "kind": "Cat", "metadata": {"name": "c"}}
    answer = await server.call("POST", cats, cat)
    assert answer.document["metadata"]["labels"] == {"seen": "x"}
    assert len(threads) >= 2  # of both versions
    assert threading.get_ident() not in threads


CUSTOM = yaml.safe_load(Path(__file__).with_name("custom_mutations.yaml").read_text())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/x.example.com/v1/namespaces/default/things"
FIELDS = {
    "i": {"type": "integer"},
    "s": {"type": "string"},
    "t": {"type": "string", "format": "date-time"},
    "u": {"type": "string", "format": "duration"},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
}


def thing_definition() -> dict[str, Any]:
    spec = {"type": "object", "properties": FIELDS}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "metadata": {"name": "things.x.example.com"},
        "spec": {
            "group": "x.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.mark.parametrize("case", CUSTOM, ids=lambda case: case["case"])
async def test_mutations_of_custom_objects(case: dict[str, Any], server: LocalServer) -> None:
    await server.post(CRDS, thing_definition())
    rule = RULES["resourceRules"][0] | {"apiGroups": ["x.example.com"], "resources": ["things"]}
    mutations: list[dict[str, Any]] = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
        for each in case.get("patch", ())
    ]
    mutations += [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
        for each in case.get("apply", ())
    ]
    constraints = {"resourceRules": [rule]}
    conditions = [
        {"name": f"c{i}", "expression": each} for i, each in enumerate(case.get("conditions", ()))
    ]
    await bind(
        server,
        "m1",
        {"mutations": mutations, "matchConstraints": constraints, "matchConditions": conditions},
    )
    thing: dict[str, Any] = {
        "apiVersion": "x.example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "c"},
        "spec": {"i": 5, "s": "a"},
    }
    if "denied" in case:
        thing["spec"]["o"] = {"x": 4}
    answer = await server.call("POST", THINGS, thing)
    if "denied" in case:
        assert (answer.status, answer.document["reason"]) == (403, "Invalid")
        assert answer.message == f"policy 'm1' with binding 'b1' denied request: {case['denied']}"
    elif "invalid" in case:
        assert answer.status == 422
        assert answer.document["message"].endswith(case["invalid"])
    elif "refused" in case:
        assert answer.status == 403
        (cause,) = answer.document["details"]["causes"]
        assert cause["message"].endswith(f"denied request: error applying patch: {case['refused']}")
    else:
        assert answer.status == 201
        assert answer.document["spec"] == case["gives"]


@pytest.mark.parametrize(("size", "in_thread"), [(10, False), (50_000, True)])
async def test_a_large_object_is_changed_in_a_thread(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, size: int, in_thread: bool
) -> None:
    threads: list[tuple[str, bool]] = []

    def noted(name: str) -> None:
        function = getattr(mutating_policies, name)

        def noting(*given: Any) -> Any:
            threads.append((name, threading.current_thread() is not threading.main_thread()))
            return function(*given)

        monkeypatch.setattr(mutating_policies, name, noting)

    steps = ("patched", "_shaped", "_completed")
    for name in steps:
        noted(name)
    label = 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
    await bind(server, "m1", {"mutations": [mutation]})
    body = {"metadata": {"name": "c"}, "data": {"k": "v" * size}}
    made = await server.post(MAPS, body)
    assert made["metadata"]["labels"] == {"a": "b"}
    assert threads == [(name, in_thread) for name in steps]
