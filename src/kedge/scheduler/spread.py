"""Topology spread: constraints with compiled selectors, and the nodes that they count."""

from collections.abc import Callable
from typing import NamedTuple

from kedge.api.core_v1.node_selection import required_nodes
from kedge.api.core_v1.pod.affinity import TopologySpreadConstraint
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.tolerations import untolerated
from kedge.api.label_selector import compiled
from kedge.machinery.selectors import LabelRequirements
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Counts, Snapshot

HOSTNAME = "kubernetes.io/hostname"

NOBODY: Counts = {}


class Constraint(NamedTuple):
    """A topology spread constraint with its compiled selector."""

    topology: str
    selector: LabelRequirements
    max_skew: int
    min_domains: int
    counts: Callable[[NodeState], bool] | None
    """Which nodes are considered; None for all of them."""

    def pods(self, namespace: str, snapshot: Snapshot) -> Counts:
        """How many of the pods meant are on each node; an empty selector means none."""
        return NOBODY if self.selector.empty else snapshot.living(namespace, self.selector)


def constraints(demand: PodDemand, action: str) -> list[Constraint]:
    """A pod's constraints of one kind: DoNotSchedule or ScheduleAnyway."""
    spec = demand.pod.spec
    return [
        Constraint(
            each.topologyKey,
            compiled(each.labelSelector),
            each.maxSkew,
            1 if each.minDomains is None else each.minDomains,
            _counting(each, spec),
        )
        for each in spec.topologySpreadConstraints
        if each.whenUnsatisfiable == action
    ]


def topologies(rules: list[Constraint]) -> frozenset[str]:
    """Only nodes that lie in an area of every constraint count for any of them."""
    return frozenset(rule.topology for rule in rules)


def _counting(
    constraint: TopologySpreadConstraint, spec: PodSpec
) -> Callable[[NodeState], bool] | None:
    matches = required_nodes(spec) if constraint.nodeAffinityPolicy != "Ignore" else None
    heeds_taints = constraint.nodeTaintsPolicy == "Honor"
    if matches is None and not heeds_taints:
        return None
    tolerations = spec.tolerations

    def counts(node: NodeState) -> bool:
        if matches is not None and not matches(node.name, node.labels):
            return False
        return not heeds_taints or untolerated(tolerations, node.hard_taints) is None

    return counts
