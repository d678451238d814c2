"""Nodes and pods for tests of the node autoscaler."""

from typing import Any

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1 import pod_disruption_budget
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.node_autoscaler.cluster_state import TAINT

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def node(name: str, *, ready: bool = True, draining: bool = False, cpu: str = "2") -> Node:
    """A node of two cores, 4 GiB and 10 pods."""
    taints = [{"key": TAINT, "value": "0", "effect": "NoSchedule"}] if draining else []
    room = {"cpu": cpu, "memory": "4Gi", "pods": "10"}
    return core_node.RESOURCE.from_document(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": taints, "unschedulable": draining},
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        }
    )


def pod(name: str, on: str = "", *, cpu: str = "1", owner: str = "ReplicaSet", **spec: Any) -> Pod:
    """A pod on a node, else one that the scheduler could not place."""
    meta: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, **spec.pop("meta", {})}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "a", "uid": "a"}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    container = {"name": "main", "image": "host", "resources": {"requests": {"cpu": cpu}}}
    status = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    status.update(spec.pop("status", {}))
    return core_pod.RESOURCE.from_document(
        {
            "metadata": meta,
            "spec": {"nodeName": on, "containers": [container], **spec},
            "status": status,
        }
    )


def budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    return pod_disruption_budget.RESOURCE.from_document(
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        }
    )
