"""Metrics of webhooks and policies."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.webhooks.admission_metrics import AdmissionMetrics, error_type
from kedge.testing.local_server import LocalServer
from kedge.testing.webhook_server import WebhookServer, configured, webhook, webhook_server
from kedge.web.message import text_response

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"metadata": {"name": "m"}}
LABELS = 'name="hook.kedge.test",type="validating",operation="CREATE"'


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    sorts = ("MutatingAdmission", "ValidatingAdmission")
    plugins = [f"{sort}{kind}" for sort in sorts for kind in ("Policy", "Webhook")]
    async with LocalServer.running(admission=("NamespaceLifecycle", *plugins)) as running:
        yield running


@pytest.fixture
async def hook(keys: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(keys) as running:
        yield running


async def text(server: LocalServer) -> str:
    return (await server.call("GET", "/metrics")).text


async def configure(server: LocalServer, hook: WebhookServer, **fields: Any) -> None:
    body = configured("conf", webhook(hook, **fields), sort="Validating")
    await server.post(f"{ADMISSION}/validatingwebhookconfigurations", body)


async def test_calls_of_webhooks(server: LocalServer, hook: WebhookServer) -> None:
    await configure(server, hook)
    assert (await server.call("POST", MAPS, MAP)).status == 201
    metrics = await text(server)
    total = "apiserver_admission_webhook_request_total"
    assert f'{total}{{{LABELS},code="200",rejected="false"}} 1' in metrics
    duration = "apiserver_admission_webhook_admission_duration_seconds"
    assert f'{duration}_count{{{LABELS},rejected="false"}} 1' in metrics


async def test_refusals_of_webhooks(server: LocalServer, hook: WebhookServer) -> None:
    hook.decisions["/"] = lambda request: {"allowed": False, "status": {"code": 403}}
    await configure(server, hook)
    assert (await server.call("POST", MAPS, MAP)).status == 403
    metrics = await text(server)
    count = "apiserver_admission_webhook_rejection_count"
    assert f'{count}{{{LABELS},error_type="no_error",rejection_code="403"}} 1' in metrics


async def test_failures_of_webhooks(server: LocalServer, hook: WebhookServer) -> None:
    hook.decisions["/"] = lambda request: text_response("broken", 500)
    await configure(server, hook, failurePolicy="Ignore")
    assert (await server.call("POST", MAPS, MAP)).status == 201
    name = 'name="hook.kedge.test",type="validating"'
    assert f"apiserver_admission_webhook_fail_open_count{{{name}}} 1" in await text(server)
    await server.delete(f"{ADMISSION}/validatingwebhookconfigurations/conf")
    await configure(server, hook, failurePolicy="Fail")
    assert (await server.call("POST", MAPS, {"metadata": {"name": "n"}})).status == 500
    count = "apiserver_admission_webhook_rejection_count"
    error = 'error_type="calling_webhook_error",rejection_code="500"'
    assert f"{count}{{{LABELS},{error}}} 1" in await text(server)


async def test_match_conditions(server: LocalServer, hook: WebhookServer) -> None:
    conditions = [{"name": "never", "expression": "object.metadata.name == 'other'"}]
    await configure(server, hook, matchConditions=conditions)
    await server.post(MAPS, MAP)
    metrics = await text(server)
    labels = 'name="hook.kedge.test",kind="webhook",type="validating",operation="CREATE"'
    assert f"apiserver_admission_match_condition_exclusions_total{{{labels}}} 1" in metrics
    seconds = "apiserver_admission_match_condition_evaluation_seconds"
    assert f"{seconds}_count{{{labels}}} 1" in metrics


def policy(**spec: Any) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    constraints = {"resourceRules": [rule]}
    return {"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, **spec}}


async def test_decisions_of_policies(server: LocalServer) -> None:
    body = policy(validations=[{"expression": "false"}])
    await server.post(f"{ADMISSION}/validatingadmissionpolicies", body)
    spec = {"policyName": "p", "validationActions": ["Warn", "Audit"]}
    bound = {"metadata": {"name": "b"}, "spec": spec}
    await server.post(f"{ADMISSION}/validatingadmissionpolicybindings", bound)
    await server.post(MAPS, MAP)
    metrics = await text(server)
    for action in ("warn", "audit"):
        labels = 'policy="p",policy_binding="b",error_type="invalid_error"'
        labels = f'{labels},enforcement_action="{action}"'
        name = "apiserver_validating_admission_policy_check"
        assert f"{name}_total{{{labels}}} 1" in metrics
        assert f"{name}_duration_seconds_count{{{labels}}} 1" in metrics


async def test_mutations_of_policies(server: LocalServer) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    body = policy(mutations=[mutation], reinvocationPolicy="Never")
    await server.post(f"{ADMISSION}/mutatingadmissionpolicies", body)
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await server.post(f"{ADMISSION}/mutatingadmissionpolicybindings", bound)
    await server.post(MAPS, MAP)
    labels = 'policy="p",policy_binding="b",error_type="no_error"'
    assert f"apiserver_mutating_admission_policy_check_total{{{labels}}} 1" in await text(server)


def test_conversions() -> None:
    metrics, telemetry = AdmissionMetrics(), Telemetry()
    metrics.add_to(telemetry)
    metrics.conversion("a.b", ("v1", "v2"), failure="", seconds=0.01)
    metrics.conversion("a.b", ("v1", "v2"), failure="why", seconds=0.01)
    shown = telemetry.text()
    name = "apiserver_conversion_webhook_request_total"
    assert f'{name}{{result="success",failure_type=""}} 1' in shown
    assert f'{name}{{result="failure",failure_type="why"}} 1' in shown
    labels = 'crd_name="a.b",from_version="v1",to_version="v2",succeeded="true"'
    assert f"apiserver_crd_conversion_webhook_duration_seconds_count{{{labels}}} 1" in shown


@pytest.mark.parametrize(
    ("message", "label"),
    [
        ("", "no_error"),
        ("compilation failed: x", "compile_error"),
        ("validation failed due to running out of cost budget, no", "out_of_budget"),
        ("failed expression: false", "invalid_error"),
    ],
)
def test_types_of_errors(message: str, label: str) -> None:
    assert error_type(message) == label
