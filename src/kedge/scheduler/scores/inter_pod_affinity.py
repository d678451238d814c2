"""InterPodAffinity as a score: preferred affinity and anti-affinity, in both directions."""

from collections.abc import Sequence

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Snapshot

Areas = dict[str, dict[str, int]]
"""The points of each topology domain, by key and value."""


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    if not demand.likings and not snapshot.pull:
        return None
    worth = _worth(demand, snapshot)
    if not worth:
        return None
    values = [
        sum(areas.get(node.labels.get(topology, ""), 0) for topology, areas in worth.items())
        for node in nodes
    ]
    least = min(values)
    span = max(values) - least
    return [int(BEST * ((value - least) / span)) for value in values] if span else None


def _worth(demand: PodDemand, snapshot: Snapshot) -> Areas:
    worth: Areas = {}
    for term, weight in demand.likings:
        for name, count in snapshot.matching((term,)).items():
            area = snapshot.nodes[name].labels.get(term.topology)
            if area is not None:
                _raise(worth, term.topology, area, weight * count)
    labels = snapshot.namespace_labels(demand.namespace)
    for term, areas in snapshot.pull.items():
        if term.matches(demand.namespace, demand.labels, labels):
            for area, weight in areas.items():
                _raise(worth, term.topology, area, weight)
    return worth


def _raise(worth: Areas, topology: str, area: str, by: int) -> None:
    areas = worth.setdefault(topology, {})
    areas[area] = areas.get(area, 0) + by
