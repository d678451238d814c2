"""Authors of objects that nothing reads learn which plugin is disabled."""

from typing import Any

import pytest

from kedge.apiserver.admission.disabled_plugins import PARTS, READERS
from kedge.apiserver.config import ADMISSION_PLUGINS, UPSTREAM_ADMISSION
from kedge.testing.local_server import MERGE, LocalServer

GROUP = "admissionregistration.k8s.io"
VALIDATION = {"validations": [{"expression": "true"}]}
MUTATION = {
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{}"},
        }
    ],
    "reinvocationPolicy": "Never",
}
RULES = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
            }
        ]
    }
}
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    (GROUP, "validatingadmissionpolicies"): {"spec": {**RULES, **VALIDATION}},
    (GROUP, "validatingadmissionpolicybindings"): {
        "spec": {"policyName": "x", "validationActions": ["Deny"]}
    },
    (GROUP, "mutatingadmissionpolicies"): {"spec": {**RULES, **MUTATION}},
    (GROUP, "mutatingadmissionpolicybindings"): {"spec": {"policyName": "x"}},
    (GROUP, "validatingwebhookconfigurations"): {},
    (GROUP, "mutatingwebhookconfigurations"): {},
    ("", "limitranges"): {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
    ("", "resourcequotas"): {"spec": {"hard": {"pods": "1"}}},
    ("scheduling.k8s.io", "priorityclasses"): {"value": 5},
    ("", "namespaces"): {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    },
    ("storage.k8s.io", "storageclasses"): {
        "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/p",
    },
    ("networking.k8s.io", "ingressclasses"): {
        "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "example.com/c"},
    },
}
NAMESPACED = ("limitranges", "resourcequotas")


async def warnings(server: LocalServer, kind: tuple[str, str]) -> list[str]:
    group, plural = kind
    root = f"/apis/{group}/v1" if group else "/api/v1"
    place = "/namespaces/default" if plural in NAMESPACED else ""
    body = OBJECTS[kind]
    named = body | {"metadata": {"name": "x", **body.get("metadata", {})}}
    answer = await server.call("POST", f"{root}{place}/{plural}", named)
    assert answer.status == 201
    return answer.warnings


def test_each_kind_that_a_plugin_reads_has_an_example() -> None:
    assert OBJECTS.keys() == READERS.keys() | PARTS.keys()
    plugins = {*READERS.values(), *(plugin for plugin, _ in PARTS.values())}
    assert plugins <= set(ADMISSION_PLUGINS)


@pytest.mark.parametrize("kind", OBJECTS, ids="/".join)
async def test_an_object_that_no_plugin_reads_draws_a_warning(kind: tuple[str, str]) -> None:
    plugin = READERS.get(kind) or PARTS[kind][0]
    async with LocalServer.running() as server:
        (told,) = await warnings(server, kind)
    assert f"because the admission plugin {plugin} is disabled" in told


@pytest.mark.parametrize("kind", OBJECTS, ids="/".join)
async def test_a_plugin_that_is_enabled_draws_none(kind: tuple[str, str]) -> None:
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as server:
        assert await warnings(server, kind) == []


async def test_other_labels_and_subresources_draw_none() -> None:
    async with LocalServer.running() as server:
        body = {"metadata": {"name": "x", "labels": {"a": "b"}}}
        assert (await server.call("POST", "/api/v1/namespaces", body)).warnings == []
        await warnings(server, ("", "resourcequotas"))
        url = "/api/v1/namespaces/default/resourcequotas/x/status"
        status: dict[str, Any] = {"status": {"hard": {"pods": "1"}}}
        answer = await server.call("PATCH", url, status, content_type=MERGE)
        assert (answer.status, answer.warnings) == (200, [])
