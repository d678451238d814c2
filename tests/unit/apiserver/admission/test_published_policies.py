"""The published examples of validating policies, on a whole server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.apps_v1 import deployment
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.request import Request
from kedge.machinery.errors import StatusError
from kedge.machinery.patch import apply_merge
from kedge.testing.local_server import LocalAnswer, LocalServer
from kedge.web.message import HttpRequest

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "published_policies.yaml").read_text())
EXPRESSIONS = yaml.safe_load((HERE / "published_expressions.yaml").read_text())
PLUGIN = "ValidatingAdmissionPolicy"
GROUP = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIMITS = "/apis/rules.example.com/v1/namespaces/default/replicalimits"
CONTAINER = {"name": "a", "image": "host"}
URLS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "Sample": "/apis/rules.example.com/v1/namespaces/{}/samples",
}
COMPLETE: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [CONTAINER]}},
    "Deployment": {
        "metadata": {"labels": {"app": "c"}},
        "spec": {
            "selector": {"matchLabels": {"app": "c"}},
            "template": {"metadata": {"labels": {"app": "c"}}, "spec": {"containers": [CONTAINER]}},
        },
    },
    "Role": {"rules": []},
    "Sample": {"apiVersion": "rules.example.com/v1", "kind": "Sample"},
}


def definition(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "metadata": {"name": f"{plural}.rules.example.com"},
        "spec": {
            "group": "rules.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    plugins = ("NamespaceLifecycle", PLUGIN)
    async with LocalServer.running(admission=plugins) as running:
        integer = {"type": "integer"}
        limits = {"maxReplicas": integer, "optionalNumber": integer}
        await running.post(
            CRDS, definition("ReplicaLimit", {"type": "object", "properties": limits})
        )
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        await running.post(CRDS, definition("Sample", loose))
        await running.merge("/api/v1/namespaces/default", labelled("default", environment="prod"))
        for body in (labelled("test", environment="test"), labelled("demo")):
            await running.post("/api/v1/namespaces", body)
        await running.settle()
        yield running


def labelled(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


async def bind(server: LocalServer, case: dict[str, Any]) -> None:
    for name, fields in case.get("params", {}).items():
        head = {"apiVersion": "rules.example.com/v1", "kind": "ReplicaLimit"}
        await server.post(LIMITS, apply_merge(head | {"metadata": {"name": name}}, fields))
    name = case.get("name", "p")
    policy = {"metadata": {"name": name}, "spec": case["policy"]}
    await server.post(f"{GROUP}/validatingadmissionpolicies", policy)
    for binding, fields in case["bindings"].items():
        spec = {"policyName": name, "validationActions": ["Deny"]} | fields
        body = {"metadata": {"name": binding}, "spec": spec}
        await server.post(f"{GROUP}/validatingadmissionpolicybindings", body)
    await server.settle()


async def tried(server: LocalServer, attempt: dict[str, Any]) -> LocalAnswer:
    kind = attempt["kind"]
    named = apply_merge({"metadata": {"name": "c"}}, COMPLETE.get(kind, {}))
    body = apply_merge(named, attempt.get("object", {}))
    if "image" in attempt:
        body["spec"]["template"]["spec"]["containers"] = [CONTAINER | {"image": attempt["image"]}]
    url = URLS[kind].format(attempt.get("namespace", "default"))
    headers: dict[str, str] = {}
    if "groups" in attempt:
        headers = {"impersonate-user": "a", "impersonate-group": "\n".join(attempt["groups"])}
    return await server.call("POST", url, body, headers=headers)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_published_policies(case: dict[str, Any], server: LocalServer) -> None:
    await bind(server, case)
    for attempt in case["tries"]:
        answer = await tried(server, attempt)
        if "refused" in attempt:
            assert answer.status == 422, answer.text
            assert answer.message.endswith(f" is forbidden: {attempt['refused']}")
        else:
            assert answer.status == 201, answer.text


@pytest.mark.parametrize(("expression", "good", "bad"), EXPRESSIONS)
async def test_published_expressions(
    expression: str, good: dict[str, Any], bad: dict[str, Any], server: LocalServer
) -> None:
    rule = {"apiGroups": ["rules.example.com"], "apiVersions": ["v1"], "resources": ["samples"]}
    constraints = {"resourceRules": [rule | {"operations": ["CREATE"]}]}
    policy = {"matchConstraints": constraints, "validations": [{"expression": expression}]}
    await bind(server, {"policy": policy, "bindings": {"b": {}}})
    passed = await tried(server, {"kind": "Sample", "object": good})
    assert passed.status == 201, passed.text
    refused = await tried(server, {"kind": "Sample", "object": bad})
    assert refused.status == 422
    said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: "
    assert refused.message == f'samples.rules.example.com "c" is forbidden: {said}{expression}'


@pytest.mark.parametrize("replicas", [128, 50])
async def test_the_published_audit_annotation(replicas: int, server: LocalServer) -> None:
    """The page's validation asks for more than 50 replicas; the annotation is there either way."""
    text = "'Deployment spec.replicas set to ' + string(object.spec.replicas)"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule | {"operations": ["CREATE", "UPDATE"]}]},
        "validations": [{"expression": "object.spec.replicas > 50", "messageExpression": text}],
        "auditAnnotations": [{"key": "high-replica-count", "valueExpression": text}],
    }
    case = {"name": "demo-policy.example.com", "policy": policy, "bindings": {"b": {}}}
    await bind(server, case)
    resource = deployment.RESOURCE
    metadata = {"name": "c", "namespace": "default"}
    body = apply_merge(
        COMPLETE["Deployment"], {"metadata": metadata, "spec": {"replicas": replicas}}
    )
    http = HttpRequest("POST", URLS["Deployment"].format("default"))
    request = Request(http, ADMIN, resource, "create", "default", "c")
    (plugin,) = [each for each in server.app.api.admission.plugins if each.name == PLUGIN]
    attempt = Attempt(request, "CREATE", resource.from_document(body))
    said = f"Deployment spec.replicas set to {replicas}"
    if replicas > 50:
        await plugin.validate(attempt)
    else:
        with pytest.raises(StatusError, match=f"denied request: {said}"):
            await plugin.validate(attempt)
    assert request.annotations["demo-policy.example.com/high-replica-count"] == said
