"""VolumeZone: the zone and region labels of a bound volume must be those of the node."""

from typing import Final

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

WRONG_ZONE: Final = NodeRejection(("node(s) had no available volume zone",), final=True)
LABELS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels of volumes, and the later names of these labels on nodes."""
SEPARATOR: Final = "__"


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    storage = snapshot.storage
    wanted = [
        (label, frozenset(value.split(SEPARATOR)))
        for claim in storage.claims_for(demand.pod)
        if (volume := storage.volumes.get(claim.spec.volumeName)) is not None
        for label in LABELS
        if (value := volume.metadata.labels.get(label)) is not None
    ]
    if not wanted:
        return None

    def check(node: NodeState) -> NodeRejection | None:
        if not any(label in node.labels for label in LABELS):
            # A cluster without zones.
            return None
        for label, values in wanted:
            own = node.labels.get(label, node.labels.get(LABELS[label]))
            if own not in values:
                return WRONG_ZONE
        return None

    return check
