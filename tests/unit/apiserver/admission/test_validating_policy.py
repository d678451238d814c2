"""ValidatingAdmissionPolicies, one case per line of validating_policies.yaml."""

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1 import config_map
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.policies import policy_params
from kedge.apiserver.policies.policy_set import PolicySet
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import Item
from kedge.apiserver.webhooks import review
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

CASES = yaml.safe_load(Path(__file__).with_name("validating_policies.yaml").read_text())
PLUGIN = "ValidatingAdmissionPolicy"
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
RULES = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["configmaps"],
        }
    ]
}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    plugins = ("NamespaceLifecycle", "ValidatingAdmissionPolicy")
    async with LocalServer.running(admission=plugins) as running:
        for name, labels in (("wanted", {"set": "one"}), ("other", {})):
            param = {"metadata": {"name": name, "labels": labels}, "data": {"name": "x"}}
            await running.post(MAPS, param)
        yield running


async def bind(
    server: LocalServer, policy: dict[str, Any], binding: dict[str, Any] | None = None
) -> None:
    spec = {"matchConstraints": RULES, **policy}
    await server.post(POLICIES, {"metadata": {"name": "p1"}, "spec": spec})
    bound = {"policyName": "p1", "validationActions": ["Deny"], **(binding or {})}
    await server.post(BINDINGS, {"metadata": {"name": "b1"}, "spec": bound})
    await server.settle()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_decisions(case: dict[str, Any], server: LocalServer) -> None:
    await bind(server, case["policy"], case.get("binding"))
    answer = await server.call("POST", MAPS, {"metadata": {"name": "c"}})
    assert answer.status == case.get("code", 201), answer.text
    by = "ValidatingAdmissionPolicy 'p1' with binding 'b1' denied request: "
    if "message" in case:
        assert answer.message == f'configmaps "c" is forbidden: {by}{case["message"]}'
        assert answer.document["details"] == {
            "name": "c",
            "kind": "configmaps",
            "causes": [{"message": f"{by}{case['message']}"}],
        }
    if "whole" in case:
        assert answer.message == case["whole"]
    warnings = [f'299 - "{each}"' for each in case.get("warnings", ())]
    assert answer.warnings == warnings


async def test_a_deletion_shows_the_old_object(server: LocalServer) -> None:
    say = "'keep ' + oldObject.metadata.name"
    check = {"expression": "object != null || oldObject.metadata.name != 'wanted'"}
    await bind(server, {"validations": [{**check, "messageExpression": say}]})
    answer = await server.call("DELETE", f"{MAPS}/wanted")
    assert answer.status == 422
    assert answer.message.endswith("denied request: keep wanted")
    assert (await server.call("DELETE", f"{MAPS}/other")).status == 200


async def test_policies_are_not_about_policies(server: LocalServer) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    everything = {"matchConstraints": {"resourceRules": [rule]}}
    await bind(server, {**everything, "validations": [{"expression": "false"}]})
    assert (await server.call("POST", MAPS, {"metadata": {"name": "c"}})).status == 422
    assert (await server.call("DELETE", f"{BINDINGS}/b1")).status == 200
    await server.settle()
    assert (await server.call("POST", MAPS, {"metadata": {"name": "c"}})).status == 201


async def test_an_update_of_a_policy_takes_effect(server: LocalServer) -> None:
    await bind(server, {"validations": [{"expression": "false"}]})
    await server.merge(f"{POLICIES}/p1", {"spec": {"validations": [{"expression": "true"}]}})
    await server.settle()
    assert (await server.call("POST", MAPS, {"metadata": {"name": "c"}})).status == 201


async def test_a_long_validation_runs_beside_other_requests(server: LocalServer) -> None:
    loop = "object.data.all(a, object.data.all(b, object.data.all(c, a != 'x')))"
    await bind(server, {"validations": [{"expression": loop}]})
    data = {f"key{i}": "v" for i in range(50)}
    answer = await server.call("POST", MAPS, {"metadata": {"name": "c"}, "data": data})
    assert answer.status == 201


async def test_audit_annotations(server: LocalServer) -> None:
    spec = {
        "matchConstraints": RULES,
        "validations": [{"expression": "object.metadata.name != 'c'", "message": "m"}],
        "auditAnnotations": [
            {"key": "k1", "valueExpression": "'name is ' + object.metadata.name"},
            {"key": "k2", "valueExpression": "null"},
        ],
    }
    await bind(server, spec, {"validationActions": ["Warn", "Audit"]})
    noted = await annotations(server)
    assert noted["p1/k1"] == "name is c"
    assert "p1/k2" not in noted
    assert json.loads(noted["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "m",
            "policy": "p1",
            "binding": "b1",
            "expressionIndex": 0,
            "validationActions": ["Warn", "Audit"],
        }
    ]


async def annotations(server: LocalServer) -> dict[str, str]:
    """Return what the plugin notes about the creation of a ConfigMap."""
    api = server.app.api
    (plugin,) = [each for each in api.admission.plugins if each.name == PLUGIN]
    http = HttpRequest("POST", MAPS)
    request = Request(http, ADMIN, config_map.RESOURCE, "create", "default", "c")
    obj = config_map.RESOURCE.from_document({"metadata": {"name": "c", "namespace": "default"}})
    await plugin.validate(Attempt(request, "CREATE", obj))
    return request.annotations


WRONG = yaml.safe_load(Path(__file__).with_name("policy_expressions.yaml").read_text())


@pytest.mark.parametrize("case", WRONG, ids=lambda case: str(case["written"]))
async def test_expressions_are_compiled_on_write(server: LocalServer, case: dict[str, Any]) -> None:
    field = case["field"]
    checks = [{"expression": "true"}]
    spec = {"matchConstraints": RULES, "validations": checks, field: [case["written"]]}
    answer = await server.call("POST", POLICIES, {"metadata": {"name": "p"}, "spec": spec})
    assert answer.status == 422
    said = 'ValidatingAdmissionPolicy.admissionregistration.k8s.io "p" is invalid: '
    assert answer.message == f"{said}spec.{field}[0].{case['part']}: {case['why']}"


async def test_many_parameters_are_read_one_by_one_and_the_object_once(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        await server.post(MAPS, {"metadata": {"name": f"p{i}", "labels": {"set": "many"}}})
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.metadata.name != object.metadata.name"}],
    }
    reference = {"selector": {"matchLabels": {"set": "many"}}, "parameterNotFoundAction": "Deny"}
    await bind(server, policy, {"paramRef": reference})
    seen: list[str] = []
    turn, decode, shown = server.app.api.clock.give_way, Item.document, review.document_of

    async def give_way() -> None:
        seen.append("turn")
        await turn()

    def document(item: Item) -> dict[str, Any]:
        if item.labels.get("set") == "many":
            seen.append("param")
        return decode(item)

    def document_of(resource: Any, obj: Any) -> dict[str, Any] | None:
        if obj is not None:
            seen.append("object")
        return shown(resource, obj)

    monkeypatch.setattr(server.app.api.clock, "give_way", give_way)
    monkeypatch.setattr(Item, "document", document)
    monkeypatch.setattr(review, "document_of", document_of)
    await annotations(server)
    # The binding and the policy are read first.
    assert seen == ["turn", "turn", "param", "turn", "object", *["param", "turn"] * 19]


async def test_a_deletion_of_many_tells_the_warnings_of_each(server: LocalServer) -> None:
    say = "'keep ' + oldObject.metadata.name"
    check = {"expression": "oldObject == null", "messageExpression": say}
    await bind(server, {"validations": [check]}, {"validationActions": ["Warn"]})
    answer = await server.call("DELETE", MAPS)
    assert answer.status == 200
    by = "Validation failed for ValidatingAdmissionPolicy 'p1' with binding 'b1'"
    assert answer.warnings == [f'299 - "{by}: keep {name}"' for name in ("other", "wanted")]


async def test_a_policy_that_cannot_be_read_can_be_deleted(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bind(server, {"validations": [{"expression": "true"}]})

    def bound(policies: Any) -> Any:
        raise ValueError("not a policy")

    monkeypatch.setattr(PolicySet, "bound", bound)
    assert (await server.call("POST", MAPS, {"metadata": {"name": "c"}})).status == 500
    assert (await server.call("DELETE", f"{POLICIES}/p1")).status == 200
    body = {"metadata": {"name": "new"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    assert (await server.call("POST", BINDINGS, body)).status == 201


async def test_values_of_large_objects_and_parameters_are_made_in_threads(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = threading.get_ident()
    on_loop: list[str] = []

    def noted(what: str, make: Any) -> Any:
        def made(*arguments: Any) -> Any:
            if threading.get_ident() == loop:
                on_loop.append(what)
            return make(*arguments)

        return made

    large = {"data": {f"k{number}": "" for number in range(2000)}}
    await server.post(MAPS, {"metadata": {"name": "param"}, **large})
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.data.k1 == ''"}],
    }
    await bind(server, policy, {"paramRef": {"name": "param", "parameterNotFoundAction": "Deny"}})
    monkeypatch.setattr(review, "document_of", noted("object", review.document_of))
    monkeypatch.setattr(policy_params, "_decoded", noted("param", policy_params._decoded))
    url = f"{MAPS}/large"
    await server.post(MAPS, {"metadata": {"name": "large"}, **large})
    await server.merge(url, {"data": {"more": ""}})
    await server.delete(url)
    assert on_loop == []
    await server.post(MAPS, {"metadata": {"name": "small"}})
    assert on_loop == ["object", "object"], "the new object and the absent old one"
