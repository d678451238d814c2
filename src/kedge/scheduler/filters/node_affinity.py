"""NodeAffinity: a node must match nodeSelector and required node affinity."""

from kedge.api.core_v1.node_selection import names_of, required_nodes, required_terms
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NarrowedCheck, NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) didn't match Pod's node affinity/selector",), final=True)
CONFLICT = NodeRejection(("pod affinity terms conflict",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    matches = required_nodes(demand.pod.spec)
    if matches is None:
        return None

    def check(node: NodeState) -> NodeRejection | None:
        return None if matches(node.name, node.labels) else REFUSAL

    terms = required_terms(demand.pod.spec)
    names = names_of(terms) if terms else None
    if names is None:
        return check
    return NarrowedCheck(names, check) if names else CONFLICT
