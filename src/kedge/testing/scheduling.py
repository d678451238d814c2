"""Nodes, pods and clusters for tests of the scheduler."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod as pods
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.snapshot import NamespaceMeta, PartialNamespace, Snapshot
from kedge.scheduler.usage import (
    ContainerReport,
    PodReport,
    ReportedAmounts,
    ReportedWindow,
    ReportedWindows,
    ReportMeta,
)
from kedge.testing.pods import new_pod

_uids = count()


def new_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    **amounts: str,
) -> Node:
    """A node of 4 cpus and 8Gi for 110 pods, labelled with its name; `amounts` change that."""
    offered = {"cpu": "4", "memory": "8Gi", "pods": "110"} | {
        resource.replace("_", "-"): amount for resource, amount in amounts.items()
    }
    document = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels or {})},
        "spec": {"taints": [*taints], "unschedulable": unschedulable},
        "status": {"allocatable": offered, "capacity": offered},
    }
    return node.RESOURCE.strategy.default(node.RESOURCE.from_document(document))


def demand(
    name: str = "pod",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PodDemand:
    """Return the requests of a pod with one container."""
    meta = {"name": name, "namespace": namespace, "uid": f"{name}-{next(_uids)}"}
    pod = new_pod(
        metadata={**meta, "labels": dict(labels or {}), **(metadata or {})},
        spec=spec,
        container={"resources": {"requests": dict(requests)}} if requests else None,
    )
    if status:
        reported = pods.RESOURCE.from_document({"status": dict(status)}).status
        pod = replace(pod, status=reported)
    return PodDemand(pod)


def cluster(*nodes: Node, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> Snapshot:
    """A cluster of empty nodes; `namespaces` says which labels each has."""
    snapshot = Snapshot()
    for each in nodes:
        snapshot.put_node(each)
    for name, labels in (namespaces or {}).items():
        meta = NamespaceMeta(name=name, labels=dict(labels))
        snapshot.namespaces.put(PartialNamespace(metadata=meta))
    return snapshot


def pod_report(uid: str, cpu: str, memory: str) -> PodReport:
    """Return the metrics of a pod with constant usage for more than a day."""
    reading = ReportedAmounts(cpu, memory)
    window = ReportedWindow(mean=reading, max=reading, ninety_fifth=reading)
    windows = ReportedWindows(seconds=window, minute=window, hour=window, day=window)
    return PodReport(ReportMeta(uid=uid), (ContainerReport(windows),))
