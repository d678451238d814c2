"""What is used, as kubectl and the Python client read it: from a node's real reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

Json = dict[str, Any]
ROOT = "/apis/metrics/v1alpha1"
FIRST = 30.0
"""Seconds until a new pod must have been reported, on a busy machine."""


@pytest.fixture
def measured(api: Api, pods: Any, eventually: Callable[..., Any]) -> Callable[[str], Json]:
    """The metrics of a new pod, as soon as there are any."""

    def found(name: str) -> Json:
        pods.create(name)
        path = f"{ROOT}/namespaces/{pods.namespace}/pods/{name}"
        eventually(lambda: api.exists(path), FIRST)
        document: Json = api.get(path)
        return document

    return found


def test_stock_kubectl_tops_pods_and_nodes(kubectl: Kubectl, pods: Any, measured: Any) -> None:
    measured("one")
    where = f"-n {pods.namespace}"
    told = kubectl.says(f"top pod {where} --containers --sort-by=cpu").splitlines()
    assert told[0].split() == ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert told[1].split()[:2] == ["one", "main"]
    assert kubectl.says("top node").splitlines()[1].split()[2].endswith("%")


def test_kubectl_gets_and_explains_metrics(kubectl: Kubectl, pods: Any, measured: Any) -> None:
    document = measured("one")
    assert document["metadata"]["uid"] == pods.get("one")["metadata"]["uid"]
    told = kubectl.says(f"get pods.metrics -n {pods.namespace}").splitlines()
    assert told[0].split() == ["NAME", "CPU", "MEM"]
    assert told[1].split()[0] == "one"
    raw = json.loads(kubectl.says(f"get --raw {ROOT}/namespaces/{pods.namespace}/pods"))
    assert [item["metadata"]["name"] for item in raw["items"]] == ["one"]
    path = "pods.containers.metrics.95th"
    assert "95th percentile" in kubectl.says(f"explain {path} --api-version=metrics/v1alpha1")


def test_deleting_a_pod_drops_its_metrics_at_once(api: Api, pods: Any, measured: Any) -> None:
    measured("short")
    pods.delete("short", gracePeriodSeconds=0)
    pods.gone("short")
    assert not api.exists(f"{ROOT}/namespaces/{pods.namespace}/pods/short")


def test_the_python_client_watches_them(cluster: Any, pods: Any, measured: Any) -> None:
    client = pytest.importorskip("kubernetes.client")
    config = pytest.importorskip("kubernetes.config")
    watch = pytest.importorskip("kubernetes.watch")
    measured("one")
    config.load_kube_config(str(cluster.kubeconfig))
    stream = watch.Watch().stream(
        client.CustomObjectsApi().list_namespaced_custom_object,
        "metrics",
        "v1alpha1",
        pods.namespace,
        "pods",
        timeout_seconds=30,
    )
    seen = [next(stream)["type"] for _ in range(2)]
    assert seen == ["ADDED", "MODIFIED"]


def test_kubectl_watches_them(kubectl: Kubectl, pods: Any, measured: Any) -> None:
    measured("one")
    with kubectl.start(f"get pods.metrics one -n {pods.namespace} --watch") as lines:
        assert lines.next().split() == ["NAME", "CPU", "MEM"]
        for _ in range(3):
            name, amount, unit, size, suffix = lines.next(FIRST).split()
            assert (name, unit, suffix) == ("one", "cores", "MB")
            assert (float(amount) >= 0, int(size) >= 0) == (True, True)


def test_kubectl_reads_them_raw_and_selected(kubectl: Kubectl, pods: Any, measured: Any) -> None:
    measured("one")
    here = f"{ROOT}/namespaces/{pods.namespace}/pods"

    def listed(query: str) -> list[str]:
        found = json.loads(kubectl.says(f"get --raw {here}?{query}"))
        return [item["metadata"]["name"] for item in found["items"]]

    node = pods.get("one")["spec"]["nodeName"]
    assert listed(f"fieldSelector=spec.nodeName={node}") == ["one"]
    assert listed("fieldSelector=spec.nodeName=elsewhere") == []
    assert kubectl.says(f"get --raw {here}/one?pretty=true").startswith('{\n  "kind": "Pod",\n')
