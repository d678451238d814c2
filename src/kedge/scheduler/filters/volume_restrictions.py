"""VolumeRestrictions: a claim with the mode ReadWriteOncePod has one pod at a time."""

from typing import Final

from kedge.api.core_v1.volume.claims import claims_of
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

IN_USE: Final = NodeRejection(
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    )
)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    names = {
        each.metadata.name
        for each in snapshot.storage.claims_for(demand.pod)
        if "ReadWriteOncePod" in each.spec.accessModes
    }
    if not names:
        return None
    is_used = any(_uses(state, demand, names) for state in snapshot.nodes.values())
    # Preemption prepares the filters again without its victims.
    return (lambda node: IN_USE) if is_used else None


def _uses(state: NodeState, demand: PodDemand, names: set[str]) -> bool:
    """Whether another pod on a node uses one of the claims."""
    return any(
        pod.namespace == demand.namespace
        and pod.uid != demand.uid
        and pod.pod.spec.volumes
        and not names.isdisjoint(each.name for each in claims_of(pod.pod))
        for pod in state.pods.values()
    )
