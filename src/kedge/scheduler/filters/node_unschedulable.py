"""NodeUnschedulable: a cordoned node takes only pods that tolerate it."""

from kedge.api.core_v1.pod.tolerations import UNSCHEDULABLE, tolerated
from kedge.scheduler.demand import Demand
from kedge.scheduler.filters.filter import Prepared, Refusal
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = Refusal(("node(s) were unschedulable",), final=True)


def prepare(demand: Demand, snapshot: Snapshot) -> Prepared:
    if not snapshot.unschedulable or tolerated(demand.pod.spec.tolerations, UNSCHEDULABLE):
        return None
    return check


def check(node: NodeState) -> Refusal | None:
    return REFUSAL if node.unschedulable else None
