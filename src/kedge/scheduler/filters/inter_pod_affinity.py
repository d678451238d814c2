"""InterPodAffinity: required affinity and anti-affinity between pods, in both directions."""

from collections.abc import Iterator

from kedge.scheduler.demand import AffinityTerm, PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Counts, Snapshot

ALONE = NodeRejection(("node(s) didn't match pod affinity rules",), final=True)
CROWDED = NodeRejection(("node(s) didn't match pod anti-affinity rules",))
UNWANTED = NodeRejection(("node(s) didn't satisfy existing pods anti-affinity rules",))

Area = tuple[str, str]
"""A topology and one of its values."""


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    unwanted = frozenset(_unwanted(demand, snapshot))
    if not unwanted and not demand.affinity and not demand.anti_affinity:
        return None
    near = demand.affinity
    company = frozenset(_areas(near, snapshot.matching(near), snapshot)) if near else frozenset()
    is_first = bool(near) and not company and _meant_itself(demand, snapshot)
    crowded = frozenset(
        area
        for term in demand.anti_affinity
        for area in _areas((term,), snapshot.matching((term,)), snapshot)
    )
    topologies = tuple(term.topology for term in near)
    kept_away = {topology for topology, _ in unwanted}

    def check(node: NodeState) -> NodeRejection | None:
        labels = node.labels
        for topology in topologies:
            area = labels.get(topology)
            if area is None or (not is_first and (topology, area) not in company):
                return ALONE
        if crowded and any(
            (term.topology, labels.get(term.topology)) in crowded for term in demand.anti_affinity
        ):
            return CROWDED
        if any((topology, labels.get(topology)) in unwanted for topology in kept_away):
            return UNWANTED
        return None

    return check


def _unwanted(demand: PodDemand, snapshot: Snapshot) -> Iterator[Area]:
    """Where pods are that must not have this one near."""
    labels = snapshot.namespace_labels(demand.namespace)
    for term, areas in snapshot.anti_affinity.items():
        if term.matches(demand.namespace, demand.labels, labels):
            for area in areas:
                yield term.topology, area


def _areas(terms: tuple[AffinityTerm, ...], nodes: Counts, snapshot: Snapshot) -> Iterator[Area]:
    """The areas around the pods on these nodes."""
    for name in nodes:
        labels = snapshot.nodes[name].labels
        for term in terms:
            if (area := labels.get(term.topology)) is not None:
                yield term.topology, area


def _meant_itself(demand: PodDemand, snapshot: Snapshot) -> bool:
    """Whether the pod is the first of a group with affinity to itself, and may go anywhere."""
    labels = snapshot.namespace_labels(demand.namespace)
    return all(term.matches(demand.namespace, demand.labels, labels) for term in demand.affinity)
