"""The conditions of a node whose heartbeat is overdue."""

from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.node_types import Node, NodeCondition
from kedge.controllers.nodes.condition_taints import condition

GRACE: Final = 50.0
"""Seconds for which a node may be silent; its agent renews its lease every ten."""
STARTUP_GRACE: Final = 60.0
"""The same for a node that has not said anything yet, from when it was made."""
EXCLUDED: Final = "node.kubernetes.io/exclude-disruption"
"""Nodes with this label do not tell whether a zone is in trouble."""

_SILENT: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def silent(node: Node, now: str) -> Node:
    """The node with all that it would have to say itself being unknown."""
    conditions = list(node.status.conditions)
    for kind in _SILENT:
        old = condition(node, kind)
        if old is None:
            conditions.append(_never(kind, node.metadata.creationTimestamp, now))
        elif old.status != "Unknown":
            conditions[conditions.index(old)] = replace(
                old,
                status="Unknown",
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
                lastTransitionTime=now,
            )
    return replace(node, status=replace(node.status, conditions=conditions))


def _never(kind: str, made: str, now: str) -> NodeCondition:
    return NodeCondition(
        type=kind,
        status="Unknown",
        reason="NodeStatusNeverUpdated",
        message="Kubelet never posted node status.",
        lastHeartbeatTime=made,
        lastTransitionTime=now,
    )


def zone_of(node: Node) -> tuple[str, str]:
    """The region and the zone of a node."""
    labels = node.metadata.labels
    region = labels.get("topology.kubernetes.io/region") or labels.get(
        "failure-domain.beta.kubernetes.io/region", ""
    )
    zone = labels.get("topology.kubernetes.io/zone") or labels.get(
        "failure-domain.beta.kubernetes.io/zone", ""
    )
    return region, zone
