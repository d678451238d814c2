"""PodTopologySpread as a score: prefer domains with fewer matching pods."""

import math
from collections.abc import Sequence

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Counts, Snapshot
from kedge.scheduler.spread import HOSTNAME, Constraint, constraints, topologies


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    rules = constraints(demand, "ScheduleAnyway")
    if not rules:
        return None
    wanted = topologies(rules)
    inside = [node for node in nodes if node.labels.keys() >= wanted]
    crowds = [0.0] * len(inside)
    for rule in rules:
        areas = [node.labels[rule.topology] for node in inside]
        counts = _counts(demand, rule, inside, snapshot.within(wanted), snapshot)
        size = len(inside) if rule.topology == HOSTNAME else len(counts)
        weight, more = math.log(size + 2), rule.max_skew - 1
        crowds = [
            crowd + counts[area] * weight + more for crowd, area in zip(crowds, areas, strict=True)
        ]
    worth = _turned([int(crowd + 0.5) for crowd in crowds])
    if len(inside) == len(nodes):
        return worth
    known = {node.name: value for node, value in zip(inside, worth, strict=True)}
    return [known.get(node.name, 0) for node in nodes]


def _counts(
    demand: PodDemand,
    rule: Constraint,
    inside: list[NodeState],
    everywhere: list[NodeState],
    snapshot: Snapshot,
) -> Counts:
    """How many of the pods meant are in each area that has a node to choose."""
    pods = rule.pods(demand.namespace, snapshot)
    if rule.topology == HOSTNAME:
        return {node.labels[HOSTNAME]: pods.get(node.name, 0) for node in inside}
    areas = dict.fromkeys((node.labels[rule.topology] for node in inside), 0)
    for node in everywhere:
        area = node.labels[rule.topology]
        if area in areas and (rule.counts is None or rule.counts(node)):
            areas[area] += pods.get(node.name, 0)
    return areas


def _turned(crowds: list[int]) -> list[int]:
    """The less crowded the better."""
    most = max(crowds, default=0)
    if not most:
        return [BEST] * len(crowds)
    least = min(crowds)
    return [BEST * (most + least - crowd) // most for crowd in crowds]
