"""Warnings come in the order of kube-apiserver: unread fields, mutating webhooks, the kind's own
rules, PodSecurity, policies, validating webhooks."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.testing.local_server import MERGE, LocalAnswer, LocalServer
from kedge.testing.webhook_server import Asked, configured, webhook, webhook_server, webhooks_on

GROUP = "/apis/admissionregistration.k8s.io/v1"
PODS = "/api/v1/namespaces/w/pods"
RULE = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}
POD = {
    "metadata": {"name": "x"},
    "spec": {
        "nodeSelector": {"beta.kubernetes.io/arch": "a"},
        "unknown": 1,
        "serviceAccountName": "default",
        "containers": [{"name": "a", "image": "i", "securityContext": {"privileged": True}}],
    },
}
DEPRECATED = (
    "spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; "
    'use "kubernetes.io/arch" instead'
)
POLICIES = [
    f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}{end}': {why}"
    for name in ("p0", "p1")
    for end in ("-b0", "-b1")
    for why in (f"{name} says no", f"{name} says it again")
]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with (
        LocalServer.running(admission=UPSTREAM_ADMISSION) as running,
        webhook_server(tmp_path) as hook,
        webhooks_on(running),
    ):
        for sort in ("Mutating", "Validating"):
            hook.decisions[f"/{sort}"] = partial(_warned, f"{sort} webhook")
            asked = configured("c", webhook(hook, f"/{sort}", rules=[RULE]), sort=sort)
            await running.post(f"{GROUP}/{sort.lower()}webhookconfigurations", asked)
        await _prepare(running)
        yield running


def _warned(text: str, request: Asked) -> Asked:
    return {"allowed": True, "warnings": [text]}


async def _prepare(server: LocalServer) -> None:
    labels = {"pod-security.kubernetes.io/warn": "baseline"}
    await server.post("/api/v1/namespaces", {"metadata": {"name": "w", "labels": labels}})
    account = {"metadata": {"name": "default"}}
    await server.post("/api/v1/namespaces/w/serviceaccounts", account)
    for name in ("p0", "p1"):
        said = (f"{name} says no", f"{name} says it again")
        validations = [{"expression": "false", "message": each} for each in said]
        spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": validations}
        await server.post(
            f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}
        )
        for end in ("-b0", "-b1"):
            bound = {"policyName": name, "validationActions": ["Warn"]}
            body = {"metadata": {"name": f"{name}{end}"}, "spec": bound}
            await server.post(f"{GROUP}/validatingadmissionpolicybindings", body)
    await server.settle()


def _warnings(answer: LocalAnswer) -> list[str]:
    texts = [text.removeprefix('299 - "').removesuffix('"') for text in answer.warnings]
    return [text.replace('\\"', '"').partition(": privileged (")[0] for text in texts]


async def test_warnings_of_a_create(server: LocalServer) -> None:
    answer = await server.call("POST", f"{PODS}?fieldValidation=Warn", POD)
    assert (answer.status, _warnings(answer)) == (
        201,
        [
            'unknown field "spec.unknown"',
            "Mutating webhook",
            DEPRECATED,
            'would violate PodSecurity "baseline:latest"',
            *POLICIES,
            "Validating webhook",
        ],
    )


async def test_warnings_of_an_update(server: LocalServer) -> None:
    assert (await server.call("POST", f"{PODS}?fieldValidation=Warn", POD)).status == 201
    patch: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"foo": 1}}
    answer = await server.call("PATCH", f"{PODS}/x", patch, content_type=MERGE)
    assert (answer.status, _warnings(answer)) == (
        200,
        ['unknown field "spec.foo"', "Mutating webhook", *POLICIES, "Validating webhook"],
    )


async def test_a_refused_create_has_the_warnings_until_then(server: LocalServer) -> None:
    binding = {"policyName": "p0", "validationActions": ["Deny"]}
    body = {"metadata": {"name": "p0-a"}, "spec": binding}
    await server.post(f"{GROUP}/validatingadmissionpolicybindings", body)
    await server.settle()
    answer = await server.call("POST", f"{PODS}?fieldValidation=Ignore", POD)
    assert answer.status == 422
    assert _warnings(answer)[:2] == ["Mutating webhook", DEPRECATED]
    assert _warnings(answer)[3:] == POLICIES


async def test_metadata_of_a_workload_draws_no_warnings_about_its_template(
    server: LocalServer,
) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "nodeSelector": {"beta.kubernetes.io/arch": "a"},
            "containers": [{"name": "a", "image": "i"}],
        },
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    url = "/apis/apps/v1/namespaces/w/deployments"
    made = await server.call("POST", url, {"metadata": {"name": "d"}, "spec": spec})
    warning = f"spec.template.{DEPRECATED}"
    assert (made.status, _warnings(made)) == (201, [warning])
    labelled: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    answer = await server.call("PATCH", f"{url}/d", labelled, content_type=MERGE)
    assert (answer.status, _warnings(answer)) == (200, [])
    scaled: dict[str, Any] = {"spec": {"replicas": 2}}
    answer = await server.call("PATCH", f"{url}/d", scaled, content_type=MERGE)
    assert (answer.status, _warnings(answer)) == (200, [warning])
