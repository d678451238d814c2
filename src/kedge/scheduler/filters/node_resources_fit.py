"""NodeResourcesFit: the requests of all pods on a node must fit its allocatable resources."""

from collections.abc import Iterator

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.dynamic_resources import resource_classes
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

TOO_MANY_PODS = "Too many pods"


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    cpu, memory, others = demand.cpu, demand.memory, demand.others
    by_claim = frozenset(resource_classes(demand, snapshot.devices)) if others else frozenset()

    def check(node: NodeState) -> NodeRejection | None:
        if (
            cpu <= node.free_cpu
            and memory <= node.free_memory
            and len(node.pods) < node.pods_allowed
            and not others
        ):
            return None
        return refusal(demand, node, by_claim)

    return check


def refusal(
    demand: PodDemand, node: NodeState, by_claim: frozenset[str] = frozenset()
) -> NodeRejection | None:
    """Return the insufficient resources; final if the request exceeds the node's capacity.
    Resources `by_claim` are looked at by another filter where no device plugin provides them."""
    missing = [
        name
        for name in _missing(demand, node)
        if name not in by_claim or node.allocatable.get(name)
    ]
    reasons = tuple(f"Insufficient {name}" for name in missing)
    if len(node.pods) >= node.pods_allowed:
        reasons = (TOO_MANY_PODS, *reasons)
    if not reasons:
        return None
    final = any(demand.requests[name] > node.allocatable.get(name, 0) for name in missing)
    return NodeRejection(reasons, final)


def _missing(demand: PodDemand, node: NodeState) -> Iterator[str]:
    for name, amount in demand.requests.items():
        if amount > node.free(name):
            yield name
