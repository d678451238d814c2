"""PodTopologySpread: limit the difference in the number of pods between topology domains."""

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.spread import Constraint, constraints, topologies

UNEVEN = NodeRejection(("node(s) didn't match pod topology spread constraints",))
NO_AREA = NodeRejection(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), final=True
)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    rules = constraints(demand, "DoNotSchedule")
    if not rules:
        return None
    nodes = snapshot.within(topologies(rules))
    limits = [(rule.topology, *_limits(demand, rule, nodes, snapshot)) for rule in rules]

    def check(node: NodeState) -> NodeRejection | None:
        for topology, most, areas in limits:
            area = node.labels.get(topology)
            if area is None:
                return NO_AREA
            if areas.get(area, 0) > most:
                return UNEVEN
        return None

    return check


def _limits(
    demand: PodDemand, rule: Constraint, nodes: list[NodeState], snapshot: Snapshot
) -> tuple[int, dict[str, int]]:
    """How many pods an area may have so that one more is not too many, and how many each has."""
    pods = rule.pods(demand.namespace, snapshot)
    areas: dict[str, int] = {}
    topology, counts = rule.topology, rule.counts
    for node in nodes:
        if counts is None or counts(node):
            area = node.labels[topology]
            areas[area] = areas.get(area, 0) + pods.get(node.name, 0)
    least = 0 if len(areas) < rule.min_domains else min(areas.values())
    itself = rule.selector.matches(demand.labels)
    return rule.max_skew + least - itself, areas
