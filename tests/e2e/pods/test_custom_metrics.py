"""Replicas that follow metrics of an adapter, through the aggregated APIs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

ADAPTER = Path(__file__).parent / "metrics_adapter.py"
SLOW = 60.0
"""Seconds: an autoscaler is looked at every quarter of a minute."""


def metric(kind: str, name: str, target: str, **more: Any) -> Json:
    """A metric with a target per pod."""
    goal = {"type": "AverageValue", "averageValue": target}
    return {"type": kind, kind.lower(): {"metric": {"name": name}, "target": goal, **more}}


class Scaled:
    """A ReplicaSet of one pod that sleeps, and an autoscaler for it."""

    def __init__(self, api: Api, namespace: str, eventually: Callable[..., Any]) -> None:
        self._api = api
        self._eventually = eventually
        self.sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
        self.scalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        container = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container]}
        template = {"metadata": {"labels": {"app": "worker"}}, "spec": pod}
        selector = {"matchLabels": {"app": "worker"}}
        spec = {"replicas": 1, "selector": selector, "template": template}
        api.create(self.sets, {"metadata": {"name": "worker"}, "spec": spec})
        self.replicas(1)

    def follow(self, *metrics: Json) -> None:
        """Let an autoscaler, or the one that there is, follow these metrics."""
        if self._api.exists(f"{self.scalers}/worker"):
            self._api.merge(f"{self.scalers}/worker", {"spec": {"metrics": list(metrics)}})
            return
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "worker"},
            "maxReplicas": 9,
            "metrics": list(metrics),
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        }
        self._api.create(self.scalers, {"metadata": {"name": "worker"}, "spec": spec})

    def replicas(self, count: int) -> None:
        """Return when so many pods are ready."""
        path = f"{self.sets}/worker"
        ready = lambda: self._api.get(path)["status"].get("readyReplicas", 0)  # noqa: E731
        self._eventually(lambda: ready() == count, SLOW)

    def active(self, status: str, reason: str) -> str:
        """Return the message of the condition once it has this status and reason."""
        found: list[Json] = []

        def is_so() -> bool:
            conditions = self._api.get(f"{self.scalers}/worker")["status"].get("conditions", [])
            found[:] = [each for each in conditions if each["type"] == "ScalingActive"]
            return [(each["status"], each["reason"]) for each in found] == [(status, reason)]

        self._eventually(is_so, SLOW)
        message: str = found[0]["message"]
        return message


def test_replicas_follow_metrics_of_pods_objects_and_other_systems(
    api: Api, namespace: str, extension_pod: Any, eventually: Callable[..., Any]
) -> None:
    scaled = Scaled(api, namespace, eventually)
    service = {"apiVersion": "v1", "kind": "Service", "name": "sample"}
    scaled.follow(metric("External", "queue-30", "10"))
    message = scaled.active("False", "FailedGetExternalMetric")
    assert message.endswith("(get queue-30.external.metrics.k8s.io)")
    scaled.follow(metric("Pods", "queue-30", "10"))
    message = scaled.active("False", "FailedGetPodsMetric")
    assert message.endswith("no custom metrics API (custom.metrics.k8s.io) registered")
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app=worker")["items"]
    extension_pod.run(ADAPTER, PODS=pods[0]["metadata"]["name"])
    extension_pod.expose()
    for group, version in (("custom", "v1beta2"), ("external", "v1beta1")):
        extension_pod.register(f"{group}.metrics.k8s.io", version)
        extension_pod.wait(f"{version}.{group}.metrics.k8s.io")
    scaled.follow(metric("External", "queue-30", "10"))
    scaled.replicas(3)
    assert scaled.active("True", "ValidMetricFound").endswith("external metric queue-30(nil)")
    scaled.follow(metric("Object", "queue-20", "10", describedObject=service))
    scaled.replicas(2)
    scaled.follow(metric("Pods", "queue-30", "10"))
    # One of the two pods has no value, and counts as idle when replicas are added.
    scaled.replicas(3)
