"""Downward APIs for resource limits and requests: the rules in the types of the proposal, and its
tables as they are printed."""

from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext
from kedge.node.pod.environment.environment import EnvironmentVariables
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"
ADDRESS = "10.1.1.1"
AROUND = DownwardContext(pod_ips=(ADDRESS,))
RESOURCES = {
    "limits": {"cpu": "500m", "memory": "128Mi", "storage": "2Gi"},
    "requests": {"cpu": "250m", "memory": "64Mi", "storage": "1Gi"},
}
FULL = '.spec.containers[?(@.name=="container-name")].resources.'
FIELD_PATH = {"fieldPath": "resources.limits.cpu"}


def pod(env: Any = (), items: Any = ()) -> dict[str, Any]:
    mount = {"name": "podinfo", "mountPath": "/etc/podinfo"}
    container = {
        "name": "container-name",
        "image": "busybox",
        "resources": RESOURCES,
        "env": list(env),
        "volumeMounts": [mount] if items else [],
    }
    volume = {"name": "podinfo", "downwardAPI": {"items": list(items)}}
    meta = {"name": "p", "labels": {"app": "web"}, "annotations": {"note": "n"}}
    spec = {"containers": [container], "volumes": [volume] if items else []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def variable(**source: Any) -> dict[str, Any]:
    return {"name": "A", "valueFrom": source}


def contents(document: dict[str, Any]) -> dict[str, str]:
    """The files of the volume of a stored pod."""
    stored: Pod = RESOURCE.from_document(document)
    source = stored.spec.volumes[0].downwardAPI
    assert source is not None
    return {item.path: downward.file(stored, item, AROUND) or "" for item in source.items}


# Background: the fields that the downward API had before.


async def test_name_namespace_annotations_labels_and_ip_are_exposed(server: LocalServer) -> None:
    paths = {
        "metadata.name": "p",
        "metadata.namespace": "default",
        "metadata.annotations['note']": "n",
        "metadata.labels['app']": "web",
        "status.podIP": ADDRESS,
    }
    env = [
        {"name": f"V{number}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for number, path in enumerate(paths)
    ]
    fields = ("name", "namespace", "annotations", "labels")
    items = [{"path": each, "fieldRef": {"fieldPath": f"metadata.{each}"}} for each in fields]
    made = await server.post(PODS, pod(env, items))
    stored: Pod = RESOURCE.from_document(made)
    own = stored.spec.containers[0]
    values = [
        downward.variable(stored, own, each.valueFrom, AROUND) for each in own.env if each.valueFrom
    ]
    assert values == list(paths.values())
    assert contents(made) == {
        "name": "p",
        "namespace": "default",
        "annotations": 'note="n"',
        "labels": 'app="web"',
    }


# The tables of the volume plugin, with the selectors that are printed there.

NAMES = [f"{what}_{bound}" for bound in ("limit", "request") for what in RESOURCES["limits"]]


@pytest.mark.parametrize("name", NAMES)
async def test_row_of_the_first_volume_table_as_printed(server: LocalServer, name: str) -> None:
    item = {"path": name, "fieldRef": {"fieldPath": f"{FULL}limits.cpu"}}
    assert contents(await server.post(PODS, pod(items=[item]))) == {name: "512"}


async def test_last_row_of_the_second_volume_table_as_printed(server: LocalServer) -> None:
    ref = {"fieldPath": "resources.requests.memory"}
    item = {"path": "container-name/storage_request", "containerFieldRef": ref}
    assert contents(await server.post(PODS, pod(items=[item]))) == {item["path"]: "67108864"}


async def test_a_selector_of_a_volume_names_a_particular_container(server: LocalServer) -> None:
    other = FULL.replace("container-name", "other") + "limits.cpu"
    items = [
        {"path": "mine", "fieldRef": {"fieldPath": f"{FULL}limits.cpu"}},
        {"path": "its", "fieldRef": {"fieldPath": other}},
    ]
    document = pod(items=items)
    limits = {"limits": {"cpu": "2"}}
    document["spec"]["containers"].append({"name": "other", "image": "i", "resources": limits})
    assert contents(await server.post(PODS, document)) == {"mine": "512", "its": "2048"}


# ObjectFieldSelector.


@pytest.mark.parametrize("field", ["fieldRef", "containerFieldRef"])
async def test_the_path_of_a_selector_is_required(server: LocalServer, field: str) -> None:
    answer = await server.call("POST", PODS, pod([variable(**{field: {"apiVersion": "v1"}})]))
    assert answer.status == 422
    at = f"spec.containers[0].env[0].valueFrom.{field}.fieldPath"
    assert f"{at}: Required value" in answer.message


async def test_a_version_without_that_path_is_refused(server: LocalServer) -> None:
    ref = {"apiVersion": "v2", "fieldPath": "metadata.name"}
    answer = await server.call("POST", PODS, pod([variable(fieldRef=ref)]))
    assert answer.status == 422
    assert "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value" in answer.message


# DownwardAPIVolumeFile.


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "Required value"),
        ("/absolute", "must be a relative path"),
        ("a/../b", "must not contain '..'"),
        ("..", "must not contain '..'"),
        ("..data", "must not start with '..'"),
    ],
)
async def test_the_path_of_a_file_is_relative_and_without_dot_dot(
    server: LocalServer, path: str, why: str
) -> None:
    item = {"path": path, "fieldRef": {"fieldPath": "metadata.name"}}
    answer = await server.call("POST", PODS, pod(items=[item]))
    assert answer.status == 422
    assert "spec.volumes[0].downwardAPI.path: " in answer.message
    assert why in answer.message


async def test_the_path_of_a_file_is_utf_8(server: LocalServer) -> None:
    item = {"path": "größe", "fieldRef": {"fieldPath": "metadata.name"}}
    assert contents(await server.post(PODS, pod(items=[item]))) == {"größe": "p"}
    head, tail = b'{"metadata":{"name":"q"},"spec":{"volumes":[{"name":"', b'"}]}}'
    answer = await server.call("POST", PODS, head + "größe".encode("latin-1") + tail)
    assert (answer.status, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize("path", ["status.podIP", "spec.nodeName", "metadata.generateName"])
async def test_a_file_selects_only_metadata_of_the_pod(server: LocalServer, path: str) -> None:
    item = {"path": "f", "fieldRef": {"fieldPath": path}}
    answer = await server.call("POST", PODS, pod(items=[item]))
    assert answer.status == 422
    assert f'"{path}"' in answer.message


@pytest.mark.parametrize(
    "path", ["name", "image", "resources", "resources.limits", "resources.claims.cpu", "env.A"]
)
async def test_a_selector_of_a_container_selects_only_limits_and_requests(
    server: LocalServer, path: str
) -> None:
    ref = {"containerFieldRef": {"fieldPath": path}}
    for document in (pod([variable(**ref)]), pod(items=[{"path": "container-name/f", **ref}])):
        answer = await server.call("POST", PODS, document)
        assert answer.status == 422
        assert "selector must have the form resources." in answer.message


# EnvVarSource.

SOURCES: dict[str, Any] = {
    "fieldRef": {"fieldPath": "metadata.name"},
    "configMapKeyRef": {"name": "m", "key": "k"},
    "secretKeyRef": {"name": "s", "key": "k"},
}


@pytest.mark.parametrize("other", SOURCES)
async def test_only_one_source_of_a_variable_may_be_set(server: LocalServer, other: str) -> None:
    both = variable(containerFieldRef=FIELD_PATH, **{other: SOURCES[other]})
    answer = await server.call("POST", PODS, pod([both]))
    assert answer.status == 422
    assert "may not have more than one field specified at a time" in answer.message
    assert (
        await server.call("POST", PODS, pod([variable(**{other: SOURCES[other]})]))
    ).status == 201


class BareNode:
    """A node whose object is empty."""

    exposed = ()
    node = Node()


async def test_a_variable_selects_a_key_of_a_config_map_or_of_a_secret_in_the_pods_namespace(
    server: LocalServer, tmp_path: Path
) -> None:
    objects = ReferencedObjects(server.client, server.clock)
    server.start(objects.run())
    await server.post("/api/v1/namespaces", {"metadata": {"name": "far"}})
    for namespace, plural, name in (
        ("default", "configmaps", "m"),
        ("default", "secrets", "s"),
        ("far", "secrets", "only-far"),
    ):
        data = {"data": {"k": "of the map"}} if name == "m" else {"stringData": {"k": "hush"}}
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        await server.post(path, {"metadata": {"name": name}, **data})
    environment = EnvironmentVariables(objects, BareNode(), lambda pod, volume: tmp_path)

    async def value(source: str, name: str) -> str:
        document = pod([variable(**{source: {"name": name, "key": "k"}})])
        document["metadata"]["namespace"] = "default"
        stored: Pod = RESOURCE.from_document(document)
        found = await environment.environment(stored, stored.spec.containers[0], [])
        return found.own["A"]

    assert await value("configMapKeyRef", "m") == "of the map"
    assert await value("secretKeyRef", "s") == "hush"
    with pytest.raises(ConfigFailure, match='secret "only-far" not found'):
        await value("secretKeyRef", "only-far")
