"""NodeUnschedulable: a cordoned node takes only pods that tolerate it."""

from kedge.api.core_v1.pod.tolerations import UNSCHEDULABLE, tolerated
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) were unschedulable",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    if not snapshot.unschedulable or tolerated(demand.pod.spec.tolerations, UNSCHEDULABLE):
        return None
    return check


def check(node: NodeState) -> NodeRejection | None:
    return REFUSAL if node.unschedulable else None
