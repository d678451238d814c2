"""NodePorts: each host port of a node can be used by one pod."""

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) didn't have free ports for the requested pod ports",))


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    ports = demand.ports
    if not ports:
        return None

    def check(node: NodeState) -> NodeRejection | None:
        if not node.ports or all(node.has_free(port) for port in ports):
            return None
        return REFUSAL

    return check
