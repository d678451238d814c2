"""The Python clients that people use: each creates, reads, lists, watches, patches and deletes."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.e2e.conftest import Api, Cluster

# What other people's libraries warn of is not for this suite to judge.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _swept() -> Iterator[None]:
    """Connections that a library forgot are found here, not in the middle of another test."""
    yield
    gc.collect()


LACKS = "this environment lacks it: pip install 'kedge[clients]'"


def config_map(name: str = "one", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"of": "test"}},
        "data": data,
    }


def path_of(namespace: str, name: str = "one") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}".rstrip("/")


# kubernetes


@pytest.fixture
def official(cluster: Cluster) -> Iterator[Any]:
    kubernetes = pytest.importorskip("kubernetes", reason=LACKS)
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as api_client:
        yield kubernetes, api_client


def test_kubernetes_reads_and_writes(official: Any, api: Api, namespace: str) -> None:
    kubernetes, api_client = official
    core = kubernetes.client.CoreV1Api(api_client)
    created = core.create_namespaced_config_map(namespace, config_map(a="1"))
    assert created.metadata.uid
    created.data["b"] = "2"
    core.replace_namespaced_config_map("one", namespace, created)
    with pytest.raises(kubernetes.client.ApiException) as conflict:
        core.replace_namespaced_config_map("one", namespace, created)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    core.patch_namespaced_config_map("one", namespace, {"data": {"a": None, "c": "3"}})
    assert core.read_namespaced_config_map("one", namespace).data == {"b": "2", "c": "3"}
    core.patch_namespaced_config_map("one", namespace, [{"op": "remove", "path": "/data/c"}])
    listed = core.list_namespaced_config_map(namespace, label_selector="of=test")
    assert [item.data for item in listed.items] == [{"b": "2"}]
    core.delete_namespaced_config_map("one", namespace)
    with pytest.raises(kubernetes.client.ApiException) as missing:
        core.read_namespaced_config_map("one", namespace)
    assert missing.value.status == 404
    assert not api.exists(path_of(namespace))


def test_kubernetes_models_fit_what_the_server_says(official: Any, namespace: str) -> None:
    """The models refuse answers that lack what the schema requires."""
    kubernetes, api_client = official
    v1 = kubernetes.client
    template = v1.V1PodTemplateSpec(
        metadata=v1.V1ObjectMeta(labels={"app": "web"}),
        spec=v1.V1PodSpec(containers=[v1.V1Container(name="main", image="nginx")]),
    )
    spec = v1.V1DeploymentSpec(
        replicas=0, selector=v1.V1LabelSelector(match_labels={"app": "web"}), template=template
    )
    apps = v1.AppsV1Api(api_client)
    deployment = v1.V1Deployment(metadata=v1.V1ObjectMeta(name="web"), spec=spec)
    created = apps.create_namespaced_deployment(namespace, deployment)
    assert created.spec.strategy.rolling_update.max_surge == "25%"
    scale = apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 0}})
    assert scale.spec.replicas in (0, None)
    core = v1.CoreV1Api(api_client)
    pod = v1.V1Pod(metadata=v1.V1ObjectMeta(name="web"), spec=template.spec)
    assert core.create_namespaced_pod(namespace, pod).status.phase == "Pending"
    assert v1.VersionApi(api_client).get_code().major == "1"
    assert "default" in [item.metadata.name for item in core.list_namespace().items]


def test_kubernetes_watches(official: Any, api: Api, namespace: str) -> None:
    kubernetes, api_client = official
    core = kubernetes.client.CoreV1Api(api_client)
    core.create_namespaced_config_map(namespace, config_map(a="1"))
    seen = []
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        core.list_namespaced_config_map, namespace, label_selector="of=test", timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].data))
        if event["type"] == "ADDED":
            api.merge(path_of(namespace), {"data": {"a": "2"}})
        elif event["type"] == "MODIFIED":
            api.delete(path_of(namespace))
        else:
            watch.stop()
    assert seen == [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"}), ("DELETED", {"a": "2"})]


def test_kubernetes_dynamic_client_applies(official: Any, namespace: str) -> None:
    _, api_client = official
    dynamic = pytest.importorskip("kubernetes.dynamic", reason=LACKS)
    config_maps = dynamic.DynamicClient(api_client).resources.get(
        api_version="v1", kind="ConfigMap"
    )

    def apply(manager: str, **data: str) -> Any:
        return config_maps.server_side_apply(
            body=config_map(**data), name="one", namespace=namespace, field_manager=manager
        )

    apply("one", a="1")
    with pytest.raises(dynamic.exceptions.ConflictError):
        apply("two", a="2")
    assert apply("one", b="2").data.to_dict() == {"b": "2"}
    assert [
        item.metadata.name
        for item in config_maps.get(namespace=namespace, label_selector="of=test").items
    ] == ["one"]


# kubernetes_asyncio


@pytest.fixture
async def asynchronous(cluster: Cluster) -> AsyncIterator[Any]:
    kubernetes_asyncio = pytest.importorskip("kubernetes_asyncio", reason=LACKS)
    configuration = kubernetes_asyncio.client.Configuration()
    await kubernetes_asyncio.config.load_kube_config(
        str(cluster.kubeconfig), client_configuration=configuration
    )
    async with kubernetes_asyncio.client.ApiClient(configuration) as api_client:
        yield kubernetes_asyncio, api_client


async def test_kubernetes_asyncio_reads_and_writes(asynchronous: Any, namespace: str) -> None:
    kubernetes, api_client = asynchronous
    core = kubernetes.client.CoreV1Api(api_client)
    await core.create_namespaced_config_map(namespace, config_map(a="1"))
    patched = await core.patch_namespaced_config_map("one", namespace, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}
    listed = await core.list_namespaced_config_map(namespace, field_selector="metadata.name=one")
    assert len(listed.items) == 1
    await core.delete_namespaced_config_map("one", namespace)
    with pytest.raises(kubernetes.client.ApiException) as missing:
        await core.read_namespaced_config_map("one", namespace)
    assert missing.value.status == 404


async def test_kubernetes_asyncio_watches(asynchronous: Any, namespace: str) -> None:
    kubernetes, api_client = asynchronous
    core = kubernetes.client.CoreV1Api(api_client)
    seen = []
    async with kubernetes.watch.Watch() as watch, asyncio.TaskGroup() as tasks:
        tasks.create_task(core.create_namespaced_config_map(namespace, config_map(a="1")))
        async for event in watch.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector="of=test",
            timeout_seconds=20,
        ):
            seen.append((event["type"], event["object"].data))
            if event["type"] == "DELETED":
                break
            await core.delete_namespaced_config_map("one", namespace)
    assert seen == [("ADDED", {"a": "1"}), ("DELETED", {"a": "1"})]


async def test_kubernetes_asyncio_applies(asynchronous: Any, namespace: str) -> None:
    kubernetes, api_client = asynchronous
    core = kubernetes.client.CoreV1Api(api_client)

    async def apply(manager: str, **data: str) -> Any:
        return await core.patch_namespaced_config_map(
            "one",
            namespace,
            config_map(**data),
            field_manager=manager,
            _content_type="application/apply-patch+yaml",
        )

    await apply("one", a="1")
    with pytest.raises(kubernetes.client.ApiException) as conflict:
        await apply("two", a="2")
    assert conflict.value.status == 409
    assert (await apply("one", b="2")).data == {"b": "2"}


# kr8s


@pytest.fixture
async def kr8s(cluster: Cluster, namespace: str) -> AsyncIterator[Any]:
    kr8s = pytest.importorskip("kr8s.asyncio", reason=LACKS)
    api = await kr8s.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    yield api
    # There is no other way to have it close its connections.
    await api._session.aclose()


async def test_kr8s_reads_and_writes(kr8s: Any, namespace: str) -> None:
    objects = pytest.importorskip("kr8s.asyncio.objects", reason=LACKS)
    errors = pytest.importorskip("kr8s", reason=LACKS)
    one = await objects.ConfigMap(
        config_map(a="1")
        | {"metadata": {"name": "one", "namespace": namespace, "labels": {"of": "test"}}},
        api=kr8s,
    )
    await one.create()
    await one.patch({"data": {"b": "2"}})
    await one.patch([{"op": "remove", "path": "/data/a"}], type="json")
    await one.label(touched="yes")
    again = await objects.ConfigMap.get("one", namespace=namespace, api=kr8s)
    assert again.raw["data"].to_dict() == {"b": "2"}
    assert again.labels["touched"] == "yes"
    found = [item.name async for item in kr8s.get("configmaps", label_selector="of=test")]
    assert found == ["one"]
    await one.delete()
    await one.wait("delete", timeout=10)
    assert not await one.exists()
    with pytest.raises(errors.NotFoundError):
        await objects.ConfigMap.get("one", namespace=namespace, api=kr8s)
    with pytest.raises(errors.ServerError):
        await (
            await objects.ConfigMap(
                {"metadata": {"name": "Bad_Name", "namespace": namespace}}, api=kr8s
            )
        ).create()


async def test_kr8s_watches(kr8s: Any, api: Api, namespace: str) -> None:
    api.create(path_of(namespace, ""), config_map(a="1"))
    seen = []
    async for event, item in kr8s.watch(
        "configmaps", namespace=namespace, label_selector="of=test"
    ):
        seen.append((event, item.name))
        if event == "DELETED":
            break
        api.delete(path_of(namespace))
    assert seen == [("ADDED", "one"), ("DELETED", "one")]


async def test_kr8s_scales(kr8s: Any, namespace: str) -> None:
    objects = pytest.importorskip("kr8s.asyncio.objects", reason=LACKS)
    containers = [{"name": "main", "image": "nginx"}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    web = await objects.Deployment(
        {
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": 0,
                "paused": True,
                "selector": {"matchLabels": {"app": "web"}},
                "template": template,
            },
        },
        api=kr8s,
    )
    await web.create()
    await web.patch({"spec": {"replicas": 2}}, subresource="scale")
    await web.refresh()
    assert web.replicas == 2


# lightkube


@pytest.fixture
def light(cluster: Cluster, namespace: str) -> Any:
    lightkube = pytest.importorskip("lightkube", reason=LACKS)
    config = lightkube.KubeConfig.from_file(str(cluster.kubeconfig))
    return lightkube.Client(config=config, namespace=namespace, field_manager="light")


def test_lightkube_reads_and_writes(light: Any) -> None:
    core = pytest.importorskip("lightkube.resources.core_v1", reason=LACKS)
    errors = pytest.importorskip("lightkube.core.exceptions", reason=LACKS)
    one = core.ConfigMap.from_dict(config_map(a="1"))
    created = light.create(one)
    created.data = {"a": "2"}
    replaced = light.replace(created)
    assert replaced.data == {"a": "2"}
    with pytest.raises(errors.ApiError) as conflict:
        light.replace(created)
    assert conflict.value.status.reason == "Conflict"
    light.patch(core.ConfigMap, "one", {"data": {"b": "3"}})
    assert light.get(core.ConfigMap, "one").data == {"a": "2", "b": "3"}
    listed = light.list(core.ConfigMap, labels={"of": "test"})
    assert [item.metadata.name for item in listed] == ["one"]
    light.delete(core.ConfigMap, "one")
    with pytest.raises(errors.ApiError) as missing:
        light.get(core.ConfigMap, "one")
    assert missing.value.status.code == 404


def test_lightkube_applies(light: Any) -> None:
    core = pytest.importorskip("lightkube.resources.core_v1", reason=LACKS)
    errors = pytest.importorskip("lightkube.core.exceptions", reason=LACKS)
    light.apply(core.ConfigMap.from_dict(config_map(a="1")))
    with pytest.raises(
        errors.ConflictError if hasattr(errors, "ConflictError") else errors.ApiError
    ):
        light.apply(core.ConfigMap.from_dict(config_map(a="2")), field_manager="other")
    forced = light.apply(
        core.ConfigMap.from_dict(config_map(a="2")), field_manager="other", force=True
    )
    assert forced.data == {"a": "2"}


def test_lightkube_watches(light: Any, api: Api, namespace: str) -> None:
    core = pytest.importorskip("lightkube.resources.core_v1", reason=LACKS)
    api.create(path_of(namespace, ""), config_map(a="1"))
    seen = []
    for event, item in light.watch(core.ConfigMap, labels={"of": "test"}, server_timeout=20):
        seen.append((event, item.metadata.name))
        if event == "DELETED":
            break
        api.delete(path_of(namespace))
    assert seen == [("ADDED", "one"), ("DELETED", "one")]
