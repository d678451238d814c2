"""NodeVolumeLimits: a node has at most so many volumes of a CSI driver as CSINode says."""

from collections.abc import Iterator
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.storage import Storage

TOO_MANY: Final = NodeRejection(("node(s) exceed max volume count",))

DriverVolume = tuple[str, str]
"""The driver of a volume, and what tells it from the others of the driver."""


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    storage = snapshot.storage
    wanted = set(volumes_of(demand.pod, storage))
    if not wanted or not len(storage.nodes):
        return None

    def check(node: NodeState) -> NodeRejection | None:
        limits = limits_of(node.name, storage)
        counted = {each for each in wanted if each[0] in limits}
        if not counted:
            return None
        present = {each for pod in node.pods.values() for each in volumes_of(pod.pod, storage)}
        for driver in {driver for driver, _ in counted - present}:
            number = sum(each[0] == driver for each in present | counted)
            if number > limits[driver]:
                return TOO_MANY
        return None

    return check


def limits_of(node: str, storage: Storage) -> dict[str, int]:
    """Return how many volumes a node can have, by driver; drivers without a limit are left out."""
    found = storage.nodes.get(node)
    if found is None:
        return {}
    return {
        each.name: each.allocatable.count
        for each in found.spec.drivers
        if each.allocatable is not None and each.allocatable.count is not None
    }


def volumes_of(pod: Pod, storage: Storage) -> Iterator[DriverVolume]:
    """Yield the CSI volumes of a pod; claims without a volume count for their provisioner."""
    for volume in pod.spec.volumes:
        if volume.csi is not None:
            yield volume.csi.driver, f"{pod.metadata.uid}/{volume.name}"
    for claim in storage.claims_for(pod):
        bound = storage.volumes.get(claim.spec.volumeName) if claim.spec.volumeName else None
        if bound is not None and bound.spec.csi is not None:
            yield bound.spec.csi.driver, bound.spec.csi.volumeHandle
        elif bound is None and (storage_class := storage.class_for(claim)) is not None:
            yield storage_class.provisioner, f"{claim.metadata.namespace}/{claim.metadata.name}"
