"""NodeName: a pod with spec.nodeName fits only that node."""

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) didn't match the requested node name",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    wanted = demand.pod.spec.nodeName
    if not wanted:
        return None

    def check(node: NodeState) -> NodeRejection | None:
        return None if node.name == wanted else REFUSAL

    return check
