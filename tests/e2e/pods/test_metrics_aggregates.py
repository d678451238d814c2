"""The usage of a Deployment, its Service, its namespace and its QoS class, with stock kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

ROOT = "/apis/metrics/v1alpha1"
FIRST = 40.0
"""Seconds until new pods must have been reported, on a busy machine."""


def workload(namespace: str) -> list[tuple[str, dict[str, Any]]]:
    labels = {"app": "web"}
    container = {"name": "main", "image": "host", "command": ["sleep", "600"]}
    container["resources"] = {"requests": {"cpu": "10m"}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    port = {"selector": labels, "ports": [{"port": 80}]}
    return [
        (
            f"/apis/apps/v1/namespaces/{namespace}/deployments",
            {"metadata": {"name": "web"}, "spec": spec},
        ),
        (
            f"/api/v1/namespaces/{namespace}/services",
            {"metadata": {"name": "web"}, "spec": port},
        ),
    ]


def test_kubectl_reads_the_sum_of_two_pods(
    kubectl: Kubectl, api: Api, pods: Any, eventually: Callable[..., Any]
) -> None:
    where = pods.namespace
    for path, body in workload(where):
        api.create(path, body)
    path = f"{ROOT}/namespaces/{where}/deployments/web"
    eventually(lambda: api.exists(path) and api.get(path)["pods"] == 2, FIRST)
    told = kubectl.says(f"get deployments.metrics -n {where}").splitlines()
    assert told[0].split() == ["NAME", "PODS", "CPU", "MEM"]
    assert told[1].split()[:2] == ["web", "2"]
    for plural, name in (
        ("services", "web"),
        ("namespaceusages", where),
        ("qosclasses", "Burstable"),
    ):
        told = kubectl.says(f"get {plural}.metrics {name} -n {where} -o json")
        assert json.loads(told)["pods"] == 2
    # The kinds of the same name in other groups are what kubectl means without a group.
    assert "READY" in kubectl.says(f"get deployments -n {where}").splitlines()[0]
    assert "AVAILABLE" in kubectl.says(f"get deploy web -n {where}").splitlines()[0]
    text = kubectl.says("explain deployments.total --api-version=metrics/v1alpha1")
    assert "max and 95th are upper bounds" in " ".join(text.split())
    assert "error" not in kubectl.says(f"rollout status deployment/web -n {where}").lower()


def test_rights_on_the_pods_are_rights_on_their_aggregates(kubectl: Kubectl, pods: Any) -> None:
    where = pods.namespace
    kubectl.says(f"create role reader --verb=list --resource=pods.metrics -n {where}")
    kubectl.says(f"create rolebinding reader --role=reader --user=anna -n {where}")
    asked = f"auth can-i list deployments.metrics --as=anna -n {where}"
    assert kubectl.says(asked).strip() == "yes"
    kubectl.says(f"get deployments.metrics --as=anna -n {where}")
    kubectl.says(f"create role other --verb=get,list --resource=deployments.metrics -n {where}")
    kubectl.says(f"create rolebinding other --role=other --user=bert -n {where}")
    refused = kubectl.fails(f"get deployments.metrics --as=bert -n {where}")
    assert 'cannot list resource "pods" in API group "metrics"' in refused
