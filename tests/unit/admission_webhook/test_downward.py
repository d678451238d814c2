"""Selectors of the downward API in words of a stock kubelet."""

from typing import Any

import pytest
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook.decisions import mutate
from kedge.api.core_v1.pod import pod as pods
from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod.environment.downward import DownwardContext, file, variable

OWN: dict[str, Any] = {
    "resources": {
        "requests": {"cpu": "250m", "memory": "32Mi"},
        "limits": {"cpu": "1250m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
    }
}
FULL = 'spec.containers[?(@.name=="main")].resources.'


def changed(document: dict[str, Any]) -> dict[str, Any]:
    verdict = mutate(reviews.of_pod(document), None)
    assert verdict.refusal is None, verdict.refusal
    return dict(verdict.changed or document)


def refused(document: dict[str, Any]) -> str:
    verdict = mutate(reviews.of_pod(document), None)
    assert verdict.refusal is not None
    assert verdict.refusal.code == 422
    return verdict.refusal.message


def source(path: str, **more: Any) -> dict[str, Any]:
    """What the variable of a pod is made of in the end."""
    document = changed(reviews.pod(reviews.container(env=[reviews.variable(path)], **OWN), **more))
    found: dict[str, Any] = document["spec"]["containers"][0]["env"][0]["valueFrom"]
    return found


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (FULL + "limits.memory", "limits.memory"),
        ("." + FULL + "requests.memory", "requests.memory"),
        ("resources.limits.memory", "limits.memory"),
        (".resources.limits.ephemeral-storage", "limits.ephemeral-storage"),
        ("resources.limits.storage", "limits.ephemeral-storage"),
        ("resources.limits.hugepages-2Mi", "limits.hugepages-2Mi"),
    ],
)
def test_bytes_become_a_resource_field_ref(path: str, resource: str) -> None:
    assert source(path) == {"resourceFieldRef": {"resource": resource}}


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (FULL + "limits.cpu", "main.downward.kedge.dev/limits.cpu", "1280"),
        ("resources.requests.cpu", "main.downward.kedge.dev/requests.cpu", "256"),
        (
            "metadata.ownerReferences[?(@.controller==true)].name",
            "downward.kedge.dev/owner.name",
            "",
        ),
    ],
)
def test_other_values_become_an_annotation_of_the_pod(path: str, key: str, value: str) -> None:
    document = changed(reviews.pod(reviews.container(env=[reviews.variable(path)], **OWN)))
    env = document["spec"]["containers"][0]["env"]
    assert env[0]["valueFrom"] == reviews.field(f"metadata.annotations['{key}']")
    assert document["metadata"]["annotations"] == {key: value}


def test_the_number_is_the_one_that_a_kedge_node_prints() -> None:
    paths = ["limits.cpu", "requests.cpu", "limits.memory", "limits.ephemeral-storage"]
    env = [reviews.variable(f"resources.{path}", f"V{i}") for i, path in enumerate(paths)]
    before = [reviews.variable(f"{FULL}{path}", f"V{i}") for i, path in enumerate(paths)]
    there = typed(changed(reviews.pod(reviews.container(env=env, **OWN))))
    here = typed(reviews.pod(reviews.container(env=before, **OWN)))
    assert printed(there) == printed(here) == ["1280", "256", "67108864", "1073741824"]


def typed(document: dict[str, Any]) -> Pod:
    return pods.RESOURCE.from_document(document)


def printed(pod: Pod) -> list[str | None]:
    own = pod.spec.containers[0]
    context = DownwardContext()
    return [variable(pod, own, each.valueFrom, context) for each in own.env if each.valueFrom]


def test_a_file_names_its_container() -> None:
    document = changed(in_volume("main/memory", "resources.limits.memory"))
    assert item(document) == {
        "path": "main/memory",
        "resourceFieldRef": {"resource": "limits.memory", "containerName": "main"},
    }


def test_a_file_shows_the_limit_of_the_whole_pod_as_kedge_does() -> None:
    """A kubelet would show the memory of the node instead."""
    document = in_volume("main/memory", "resources.limits.memory", own={})
    document["spec"]["resources"] = {"limits": {"memory": "1Gi"}}
    made = changed(document)
    key = "main.downward.kedge.dev/limits.memory"
    assert made["metadata"]["annotations"] == {key: "1073741824"}
    shown = typed(made)
    volume = shown.spec.volumes[0].downwardAPI
    assert volume is not None
    assert file(shown, volume.items[0], DownwardContext()) == "1073741824"


def test_projected_volumes_are_translated() -> None:
    document = reviews.pod(reviews.container(**OWN))
    items = [{"path": "main/cpu", **reviews.field("resources.limits.cpu")}]
    sources = [{"downwardAPI": {"items": items}}]
    document["spec"]["volumes"] = [{"name": "v", "projected": {"sources": sources}}]
    made = changed(document)
    key = "main.downward.kedge.dev/limits.cpu"
    shown = made["spec"]["volumes"][0]["projected"]["sources"][0]["downwardAPI"]["items"][0]
    assert shown["fieldRef"]["fieldPath"] == f"metadata.annotations['{key}']"


def in_volume(path: str, field: str, own: dict[str, Any] | None = None) -> dict[str, Any]:
    document = reviews.pod(reviews.container(**(OWN if own is None else own)))
    items = [{"path": path, **reviews.field(field)}]
    document["spec"]["volumes"] = [{"name": "v", "downwardAPI": {"items": items}}]
    return document


def item(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["spec"]["volumes"][0]["downwardAPI"]["items"][0]
    return found


def test_zone_and_region_are_labels_that_the_api_server_copies_to_pods() -> None:
    zone = "topology.kubernetes.io/zone"
    assert source(f"node.metadata.labels['{zone}']") == reviews.field(f"metadata.labels['{zone}']")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (
            'spec.containers[?(@.name=="other")].resources.limits.cpu',
            'container "other" not found in spec.containers',
        ),
        ("spec.containers[0].resources.limits.cpu", "selector must have the form"),
        ("resources.limit.cpu", "selector must have the form"),
        ("resources.limits.gpu", "Unsupported value"),
        ("metadata.annotations['a\\'b']", "rename the annotation"),
        ("node.metadata.labels['disk']", "only these labels of the node reach pods here"),
        ("node.metadata.labels", "a variable shows one label"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(path: str, why: str) -> None:
    message = refused(reviews.pod(reviews.container(env=[reviews.variable(path)], **OWN)))
    assert why in message
    assert "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath" in message


def test_a_limit_that_only_the_node_knows_is_refused_as_it_was_written() -> None:
    env = [reviews.variable("resources.limits.cpu")]
    message = refused(reviews.pod(reviews.container(env=env)))
    assert 'Invalid value: "resources.limits.cpu": set the cpu limit of container "main"' in message


def test_a_source_that_the_api_server_dropped_is_refused() -> None:
    env = [{"name": "A", "valueFrom": {}}]
    message = refused(reviews.pod(reviews.container(env=env)))
    assert "drops containerFieldRef" in message
    document = in_volume("main/x", "metadata.name")
    del item(document)["fieldRef"]
    assert "spec.volumes[0].downwardAPI.items[0]: Required value" in refused(document)


def test_a_file_outside_of_a_container_s_directory_is_refused() -> None:
    assert "CONTAINER/FILE" in refused(in_volume("cpu", "resources.limits.cpu"))
    assert "CONTAINER/FILE" in refused(in_volume("nope/cpu", "resources.limits.cpu"))


def test_an_annotation_of_the_webhook_cannot_be_forged() -> None:
    document = reviews.pod(reviews.container(env=[reviews.variable("resources.limits.cpu")], **OWN))
    document["metadata"]["annotations"] = {"main.downward.kedge.dev/limits.cpu": "9", "a": "b"}
    expected = {"main.downward.kedge.dev/limits.cpu": "1280", "a": "b"}
    assert changed(document)["metadata"]["annotations"] == expected


def test_kubernetes_own_fields_stay_as_they_are() -> None:
    env = [
        reviews.variable("metadata.name"),
        reviews.variable("metadata.annotations['x']", "B"),
        reviews.variable("metadata.whoops", "C"),
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    document = reviews.pod(reviews.container(env=env))
    assert changed(document) == document


def test_pods_of_a_template_get_the_annotations() -> None:
    """The template is translated, and each pod made from it gets its values."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": reviews.pod(reviews.container(env=[reviews.variable("resources.limits.cpu")]))[
            "spec"
        ],
    }
    deployment = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    verdict = mutate(reviews.of("apps", "deployments", deployment, "UPDATE"), None)
    assert verdict.changed is not None
    spec = verdict.changed["spec"]["template"]["spec"]
    key = "main.downward.kedge.dev/limits.cpu"
    assert spec["containers"][0]["env"] == [reviews.variable(f"metadata.annotations['{key}']")]
    assert "annotations" not in verdict.changed["spec"]["template"]["metadata"]

    bounds = reviews.limits({"type": "Container", "default": {"cpu": "2"}})
    made = mutate(reviews.of_pod({"metadata": {"name": "web-1"}, "spec": spec}), bounds)
    assert made.changed is not None
    assert made.changed["metadata"]["annotations"][key] == "2048"


def test_cron_jobs_are_translated_two_levels_down() -> None:
    inner = reviews.pod(reviews.container(env=[reviews.variable("resources.limits.gpu")]))["spec"]
    job = {"spec": {"jobTemplate": {"spec": {"template": {"spec": inner}}}}}
    verdict = mutate(reviews.of("batch", "cronjobs", job), None)
    assert verdict.refusal is not None
    path = "spec.jobTemplate.spec.template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"
    assert path in verdict.refusal.message


def test_the_name_of_a_container_is_not_copied_into_thousands_of_selectors() -> None:
    env = [reviews.variable("resources.limits.cpu", f"V{i}") for i in range(2000)]
    document = reviews.pod(reviews.container("c" * 100_000, env=env))
    verdict = mutate(reviews.of_pod(document), None)
    assert len(str(verdict)) < 2_000_000


def test_the_errors_of_a_pod_are_bounded() -> None:
    env = [{"name": f"V{i}", "valueFrom": {}} for i in range(5000)]
    files = [{"path": f"f{i}", **reviews.field("resources.limits.cpu")} for i in range(5000)]
    volumes = [{"name": "v", "downwardAPI": {"items": files}}]
    for document in (
        reviews.pod(reviews.container(env=env)),
        reviews.pod(reviews.container(), volumes=volumes),
    ):
        assert len(refused(document)) < 500_000
