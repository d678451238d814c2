"""Exposing annotations via environment downward API: syntax, escapes and examples."""

from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.controllers.workloads.stateful_set import StatefulSetController
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext
from kedge.testing.controllers import workshop
from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"
COMPLICATED = "foo.bar/more'complicated]example[with'characters\"to-escape"
EXAMPLES = [
    (
        "metadata.annotations['spec.pod.beta.kubernetes.io/statefulset-index']",
        "spec.pod.beta.kubernetes.io/statefulset-index",
    ),
    ("metadata.annotations['foo.bar/example-annotation']", "foo.bar/example-annotation"),
    (
        "metadata.annotations"
        r"""['foo.bar/more\'complicated\]example\[with\'characters"to-escape']""",
        COMPLICATED,
    ),
]
IDS = ["statefulset-index", "example-annotation", "characters-to-escape"]
QUALIFIED = "name part must consist of alphanumeric characters, '-', '_' or '.'"


def extension(path: str) -> str:
    return f'299 - "{path}: kedge extension, not portable to other clusters"'


def pod(path: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    ref = {"fieldRef": {"fieldPath": path}}
    container = {
        "name": "c",
        "image": "busybox",
        "env": [{"name": "STATEFULSET_INDEX", "valueFrom": ref}],
        "volumeMounts": [{"name": "podinfo", "mountPath": "/info"}],
    }
    volume = {"name": "podinfo", "downwardAPI": {"items": [{"path": "index", **ref}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {"containers": [container], "volumes": [volume]},
    }


def told(document: dict[str, Any]) -> list[str | None]:
    """What the variable and the file of a stored pod say."""
    stored: Pod = RESOURCE.from_document(document)
    (own,), (volume,) = stored.spec.containers, stored.spec.volumes
    assert own.env[0].valueFrom is not None
    assert volume.downwardAPI is not None
    around = DownwardContext()
    return [
        downward.variable(stored, own, own.env[0].valueFrom, around),
        downward.file(stored, volume.downwardAPI.items[0], around),
    ]


@pytest.mark.parametrize(("path", "key"), EXAMPLES, ids=IDS)
async def test_example_shows_the_annotation(server: LocalServer, path: str, key: str) -> None:
    made = await server.post(PODS, pod(path, {key: "7"}))
    assert told(made) == ["7", "7"]


async def test_the_key_is_inside_brackets_and_single_quotation_marks(server: LocalServer) -> None:
    key = {"annotationKey": "7"}
    made = await server.post(PODS, pod("metadata.annotations['annotationKey']", key))
    assert told(made) == ["7", "7"]
    for wrong in ("['annotationKey'", "[annotationKey]", '["annotationKey"]', "('annotationKey')"):
        answer = await server.call("POST", PODS, pod(f"metadata.annotations{wrong}", key))
        assert answer.status == 422, wrong


@pytest.mark.parametrize(("path", "key"), EXAMPLES, ids=IDS)
async def test_annotation_that_is_not_there_is_empty(
    server: LocalServer, path: str, key: str
) -> None:
    assert told(await server.post(PODS, pod(path))) == ["", ""]


@pytest.mark.parametrize("special", ["[", "]", "'"])
async def test_special_characters_are_escaped(server: LocalServer, special: str) -> None:
    path = f"metadata.annotations['a\\{special}b']"
    made = await server.post(PODS, pod(path, {f"a{special}b": "x"}))
    assert told(made) == ["x", "x"]


@pytest.mark.parametrize("special", ["[", "]", "'"])
async def test_unescaped_ones_result_in_a_validation_error(
    server: LocalServer, special: str
) -> None:
    answer = await server.call("POST", PODS, pod(f"metadata.annotations['a{special}b']"))
    assert answer.status == 422
    at = "spec.containers[0].env[0].valueFrom.fieldRef"
    assert f'{at}: Invalid value: "a{special}b": {QUALIFIED}' in answer.message


async def test_one_unescaped_character_spoils_the_others(server: LocalServer) -> None:
    answer = await server.call("POST", PODS, pod(r"metadata.annotations['a\[b]c']"))
    assert answer.status == 422


async def test_escapes_and_such_keys_draw_warnings(server: LocalServer) -> None:
    path, key = EXAMPLES[2]
    answer = await server.call("POST", PODS, pod(path, {key: "7"}))
    assert answer.warnings == [
        extension("metadata.annotations"),
        extension("spec.volumes[0].downwardAPI.fieldRef"),
        extension("spec.containers[0].env[0].valueFrom.fieldRef"),
    ]


@pytest.mark.parametrize(("path", "key"), EXAMPLES[:2], ids=IDS[:2])
async def test_keys_of_kubernetes_draw_none(server: LocalServer, path: str, key: str) -> None:
    assert (await server.call("POST", PODS, pod(path, {key: "7"}))).warnings == []


async def test_upstream_has_no_such_keys_and_no_escapes(strict: LocalServer) -> None:
    path, key = EXAMPLES[2]
    kept = await strict.call("POST", PODS, pod("metadata.name", {key: "7"}))
    assert (kept.status, kept.warnings) == (422, [])
    shown = key.replace('"', '\\"')
    assert f'metadata.annotations: Invalid value: "{shown}": {QUALIFIED}' in kept.message
    shown_as = path.removeprefix("metadata.annotations['").removesuffix("']")
    raw = shown_as.replace("\\", "\\\\").replace('"', '\\"')
    asked = await strict.call("POST", PODS, pod(path))
    at = "spec.containers[0].env[0].valueFrom.fieldRef"
    assert f'{at}: Invalid value: "{raw}": {QUALIFIED}' in asked.message


async def test_annotation_of_a_template_reaches_its_pods(server: LocalServer) -> None:
    path, key = EXAMPLES[2]
    template = pod(path, {key: "7"})
    template["metadata"] = {"labels": {"a": "b"}, "annotations": {key: "7"}}
    document = {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {k: template[k] for k in ("metadata", "spec")},
        },
    }
    answer = await server.call("POST", "/apis/apps/v1/namespaces/default/deployments", document)
    assert answer.status == 201, answer.text
    assert answer.warnings == [
        extension("spec.template.annotations"),
        extension("spec.template.spec.volumes[0].downwardAPI.fieldRef"),
        extension("spec.template.spec.containers[0].env[0].valueFrom.fieldRef"),
    ]
    assert answer.document["spec"]["template"]["metadata"]["annotations"] == {key: "7"}


@pytest.mark.parametrize("prefix", ["", "spec."], ids=["of the sentence", "of the example"])
async def test_a_stateful_set_passes_its_index_to_the_application(prefix: str) -> None:
    """The document calls the annotation `pod.beta...` once and `spec.pod.beta...` twice."""
    path = f"metadata.annotations['{prefix}pod.beta.kubernetes.io/statefulset-index']"
    spec = pod(path)["spec"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    document = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"a": "b"}},
            "template": template,
        },
    }
    async with workshop(StatefulSetController) as place:
        await place.create("/apis/apps/v1/namespaces/default/statefulsets", document)
        made = await place.pods()
    assert [each["metadata"]["name"] for each in made] == ["web-0", "web-1", "web-2"]
    assert [told(each) for each in made] == [["0", "0"], ["1", "1"], ["2", "2"]]


def test_such_a_key_is_looked_up_as_it_is_meant() -> None:
    document = pod(EXAMPLES[2][0], {COMPLICATED: "7", EXAMPLES[2][0]: "wrong"})
    assert told(document) == ["7", "7"]
