"""The published examples of mutating policies, on a whole server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.machinery.patch import apply_merge
from kedge.testing.local_server import LocalServer

CASES = yaml.safe_load(Path(__file__).with_name("published_mutations.yaml").read_text())
GROUP = "/apis/admissionregistration.k8s.io/v1"
HERE = "/api/v1/namespaces/default"
URLS = {
    "ConfigMap": f"{HERE}/configmaps",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolumeClaim": f"{HERE}/persistentvolumeclaims",
    "Pod": f"{HERE}/pods",
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
COMPLETE: dict[str, dict[str, Any]] = {
    "PersistentVolumeClaim": {"spec": CLAIM},
    "Pod": {"spec": {"containers": [{"name": "a", "image": "host"}]}},
}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    plugins = ("NamespaceLifecycle", "MutatingAdmissionPolicy")
    async with LocalServer.running(admission=plugins) as running:
        yield running


async def bind(server: LocalServer, case: dict[str, Any]) -> None:
    if "param" in case:
        await server.post(URLS["ConfigMap"], case["param"])
    policy = {"metadata": {"name": "m"}, "spec": case["policy"]}
    await server.post(f"{GROUP}/mutatingadmissionpolicies", policy)
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "m"} | case.get("binding", {})}
    await server.post(f"{GROUP}/mutatingadmissionpolicybindings", binding)
    await server.settle()


def is_part(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict):
        return all(is_part(value, found.get(name)) for name, value in wanted.items())
    return bool(wanted == found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_published_mutations(case: dict[str, Any], server: LocalServer) -> None:
    await bind(server, case)
    for attempt in case["tries"]:
        named = apply_merge({"metadata": {"name": "c"}}, COMPLETE.get(attempt["kind"], {}))
        body = apply_merge(named, attempt.get("object", {}))
        answer = await server.call("POST", URLS[attempt["kind"]], body)
        if "refused" in attempt:
            assert answer.status == 403, answer.text
            assert answer.message.startswith("policy 'm' with binding 'b' denied request: ")
            assert answer.message.endswith(attempt["refused"])
        else:
            assert answer.status == 201, answer.text
            assert is_part(attempt.get("gives", {}), answer.document), answer.text
        if "images" in attempt:
            containers = answer.document["spec"]["initContainers"]
            assert [each["image"] for each in containers] == attempt["images"]
