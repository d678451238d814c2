"""TaintToleration: a pod must tolerate the NoSchedule and NoExecute taints of a node."""

from kedge.api.core_v1.pod.tolerations import untolerated
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) had untolerated taint(s)",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    if not snapshot.hard_tainted:
        return None
    tolerations = demand.pod.spec.tolerations

    def check(node: NodeState) -> NodeRejection | None:
        if not node.hard_taints or untolerated(tolerations, node.hard_taints) is None:
            return None
        return REFUSAL

    return check
