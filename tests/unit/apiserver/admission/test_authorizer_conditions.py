"""Match conditions of policies and webhooks that ask the authorizer: answers of kube-apiserver for
two users, of whom only Alice may `breakglass`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.testing.local_server import LocalServer
from kedge.testing.webhook_server import configured, webhook_server

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps?dryRun=All"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
ROBOT = "authorizer.serviceAccount('default', 'robot').group('').resource('configmaps')"
CONFIGMAPS = "authorizer.group('').resource('configmaps')"
PODS = "authorizer.group('').resource('pods')"
ACCOUNT = "authorizer.serviceAccount('default', 'myserviceaccount')"
BREAK_GLASS = (
    'authorizer.group("admissionregistration.k8s.io").resource("validatingwebhookconfigurations")'
    '.name("my-webhook.example.com").check("breakglass").allowed()'
)
CASES = [
    # expression, whether it holds for Alice, and for Bob
    (f"!{CONFIGMAPS}.namespace('default').check('breakglass').allowed()", False, True),
    ("!authorizer.requestResource.check('breakglass').allowed()", False, True),
    ("!authorizer.path('/break').check('get').allowed()", False, True),
    (f"{ROBOT}.check('breakglass').allowed()", True, True),
    (f"{ROBOT.replace('robot', 'nobody')}.check('breakglass').allowed()", False, False),
    (f"{CONFIGMAPS}.subresource('status').name('x').check('special').allowed()", True, False),
    (f"{CONFIGMAPS}.check('breakglass').errored()", False, False),
    (f"{CONFIGMAPS}.check('breakglass').reason() == ''", False, True),
    (f"{CONFIGMAPS}.fieldSelector('metadata.name=x').check('list').allowed()", False, False),
    (f"{CONFIGMAPS}.fieldSelector('a=,,').check('list').errored()", False, False),
    # The published examples; the page leaves out group('apps').
    (f"{PODS}.namespace('default').check('create').allowed()", True, False),
    (f"{PODS}.fieldSelector('spec.nodeName=mynode').check('list').allowed()", True, False),
    (f"{PODS}.labelSelector('example.com/mylabel=myvalue').check('list').allowed()", True, False),
    ("authorizer.path('/healthz').check('get').allowed()", True, True),
    (f"{ACCOUNT}.group('apps').resource('deployments').check('delete').allowed()", True, True),
    (f"!{BREAK_GLASS}", False, True),
]


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as running:
        await _allow(running, "write", ["alice", "bob"], [_verbs("configmaps", "create")])
        special = _verbs("configmaps/status", "special") | {"resourceNames": ["x"]}
        paths = {"nonResourceURLs": ["/break"], "verbs": ["get"]}
        hooks = _verbs("validatingwebhookconfigurations", "breakglass")
        hooks |= {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resourceNames": ["my-webhook.example.com"],
        }
        pods = _verbs("pods", "create") | {"verbs": ["create", "list"]}
        rules = [_verbs("configmaps", "breakglass"), special, paths, hooks, pods]
        await _allow(running, "break", ["alice", "system:serviceaccount:default:robot"], rules)
        deployments = _verbs("deployments", "delete") | {"apiGroups": ["apps"]}
        account = "system:serviceaccount:default:myserviceaccount"
        await _allow(running, "delete", [account], [deployments])
        yield running


def _verbs(resource: str, verb: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": [verb]}


async def _allow(server: LocalServer, name: str, users: list[str], rules: list[Any]) -> None:
    await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": group, "kind": "User", "name": user} for user in users]
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
    await server.post(f"{RBAC}/clusterrolebindings", binding)


async def _refused(server: LocalServer) -> tuple[bool, bool]:
    """Whether Alice and Bob are refused."""
    body = {"metadata": {"name": "x"}}
    codes = [
        (await server.call("POST", MAPS, body, headers={"impersonate-user": user})).status
        for user in ("alice", "bob")
    ]
    return codes[0] != 201, codes[1] != 201


async def test_policies_ask_the_authorizer(server: LocalServer) -> None:
    for expression, *wanted in CASES:
        await server.post(
            f"{ADMISSION}/validatingadmissionpolicies",
            {
                "metadata": {"name": "p"},
                "spec": {
                    "matchConstraints": {"resourceRules": [RULE]},
                    "matchConditions": [{"name": "c", "expression": expression}],
                    "validations": [{"expression": "false"}],
                },
            },
        )
        spec = {"policyName": "p", "validationActions": ["Deny"]}
        binding = {"metadata": {"name": "p"}, "spec": spec}
        await server.post(f"{ADMISSION}/validatingadmissionpolicybindings", binding)
        assert list(await _refused(server)) == wanted, expression
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await server.delete(f"{ADMISSION}/{plural}/p")


async def test_webhooks_ask_the_authorizer(server: LocalServer, tmp_path: Path) -> None:
    url = f"{ADMISSION}/validatingwebhookconfigurations"
    async with webhook_server(tmp_path) as hook:
        hook.decisions["/deny"] = lambda request: {"allowed": False}
        for expression, *wanted in CASES:
            webhook = {
                "name": "w.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [RULE],
                "clientConfig": {"url": f"{hook.url}/deny", "caBundle": hook.ca_bundle},
                "matchConditions": [{"name": "c", "expression": expression}],
            }
            await server.post(url, configured("w", webhook, sort="Validating"))
            assert list(await _refused(server)) == wanted, expression
            await server.delete(f"{url}/w")
        await server.app.api.caller.close()
