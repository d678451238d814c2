"""A server starts although admission refuses its own objects."""

import logging

import pytest

from kedge.apiserver import bootstrap, joining
from kedge.apiserver.authorization import policy
from kedge.testing.local_server import LocalServer

GROUP = "/apis/admissionregistration.k8s.io/v1"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


async def refuse_everything(server: LocalServer) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false"}],
    }
    await server.post(
        f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "no"}, "spec": spec}
    )
    bound = {"policyName": "no", "validationActions": ["Deny"]}
    await server.post(BINDINGS, {"metadata": {"name": "no"}, "spec": bound})
    await server.settle()


async def start(server: LocalServer, address: str) -> None:
    """Write what the start of a server writes."""
    api = server.app.api
    await bootstrap.ensure(api, address, 6443, dns=True)
    await policy.ensure(api)
    await joining.ensure(api, f"https://{address}:6443", b"PEM")


async def test_a_policy_that_refuses_everything_lets_the_server_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugins = ("NamespaceLifecycle", "ValidatingAdmissionPolicy")
    async with LocalServer.running(admission=plugins) as server:
        await start(server, "192.0.2.1")
        await refuse_everything(server)
        with caplog.at_level(logging.ERROR):
            await start(server, "192.0.2.2")
        assert 'configmaps "cluster-info" is forbidden' in caplog.text
        assert (await server.call("DELETE", f"{BINDINGS}/no")).status == 200
        await server.settle()
        await start(server, "192.0.2.2")
        await server.settle()
        assert "192.0.2.2" in (await server.get(INFO))["data"]["kubeconfig"]
