"""ClusterState: everything that a decision about nodes reads, as one value."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.api.storage_v1.csi import CsiDriver, CsiNode, CsiStorageCapacity
from kedge.api.storage_v1.persistent_volume import PersistentVolume
from kedge.api.storage_v1.storage_class import StorageClass
from kedge.node_autoscaler.node_devices import ClusterDevices
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.snapshot import PartialNamespace, Snapshot

TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that is being drained, as cluster-autoscaler names it."""
HOSTNAME: Final = "kubernetes.io/hostname"
_CONDITION_TAINTS: Final = "node.kubernetes.io/"
_MIRROR: Final = "kubernetes.io/config.mirror"
_ENDED: Final = ("Succeeded", "Failed")


class ClusterState(NamedTuple):
    """Objects of the API at one moment."""

    nodes: Mapping[str, Node]
    pods: Sequence[Pod]
    budgets: Sequence[PodDisruptionBudget] = ()
    usage: Mapping[str, float] = {}
    """The share of its cpu or memory, whichever is greater, that the pods of a node used in the
    last minute; nodes that were not measured are missing."""
    namespaces: Sequence[PartialNamespace] = ()
    claims: Sequence[PersistentVolumeClaim] = ()
    volumes: Sequence[PersistentVolume] = ()
    classes: Sequence[StorageClass] = ()
    drivers: Sequence[CsiDriver] = ()
    driver_nodes: Sequence[CsiNode] = ()
    capacities: Sequence[CsiStorageCapacity] = ()
    devices: ClusterDevices = ClusterDevices()
    """Empty unless a pod asks for devices."""

    def snapshot(self, without: Collection[str] = ()) -> Snapshot:
        """Return the scheduler's view of the cluster without some of the nodes and their pods."""
        made = Snapshot()
        made.namespaces.replace(self.namespaces)
        made.storage.claims.replace(self.claims)
        made.storage.volumes.replace(self.volumes)
        made.storage.classes.replace(self.classes)
        made.storage.drivers.replace(self.drivers)
        made.storage.nodes.replace(self.driver_nodes)
        made.storage.capacities.replace(self.capacities)
        made.devices.classes.replace(self.devices.classes)
        made.devices.slices.replace(self.devices.slices)
        made.devices.claims.replace(self.devices.claims)
        for name, node in self.nodes.items():
            if name not in without:
                made.put_node(node)
        for pod in self.pods:
            home = pod.spec.nodeName
            if home and home not in without and pod.status.phase not in _ENDED:
                made.place(PodDemand(pod), home)
        return made

    def on(self, node: str) -> list[Pod]:
        """Return the pods of a node that have not ended."""
        return [
            each
            for each in self.pods
            if each.spec.nodeName == node and each.status.phase not in _ENDED
        ]

    def moving(self, node: str) -> list[Pod]:
        """Return the pods of a node that must go elsewhere before it is removed."""
        return [each for each in self.on(node) if not stays(each)]


def stays(pod: Pod) -> bool:
    """Return whether a pod belongs to its node: one of a DaemonSet, or a mirror pod."""
    owner = next((each for each in pod.metadata.ownerReferences if each.controller), None)
    return _MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def is_draining(node: Node) -> bool:
    return any(each.key == TAINT for each in node.spec.taints)


def template(node: Node, name: str) -> Node:
    """Return a new local node: like this one, without the taints of its conditions."""
    labels = {**node.metadata.labels, HOSTNAME: name}
    taints = tuple(
        each
        for each in node.spec.taints
        if each.key != TAINT and not each.key.startswith(_CONDITION_TAINTS)
    )
    return replace(
        node,
        metadata=replace(node.metadata, name=name, uid="", labels=labels),
        spec=replace(node.spec, taints=taints, unschedulable=False),
    )


def daemons(pods: Iterable[Pod], name: str) -> list[PodDemand]:
    """Return the DaemonSet pods of a node as those that a new node will have."""
    found = []
    for pod in pods:
        if stays(pod):
            meta: Any = replace(pod.metadata, uid=f"{pod.metadata.uid}/{name}")
            found.append(PodDemand(replace(pod, metadata=meta)))
    return found
