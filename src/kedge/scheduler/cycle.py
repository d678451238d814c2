"""Scheduling cycle: choose a node for a pod from a snapshot, or explain why no node fits."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import Check, Filter, NarrowedCheck, NodeRejection
from kedge.scheduler.filters.filters import FILTERS
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import Score
from kedge.scheduler.scores.scores import SCORES
from kedge.scheduler.snapshot import Snapshot

NO_NODES: Final = "no nodes available to schedule pods"
EXCESS: Final = "ExcessiveRules"
"""Named instead of a filter if a pod has too many rules."""
MOST_COMPARISONS: Final = 100_000
"""How many comparisons of a pod's terms with labels one decision may take: about a tenth of a
second, which blocks the event loop."""
ENOUGH: Final = 100
"""Up to so many nodes, all of them are looked at."""


class CycleState:
    """State that one cycle leaves for the next: the first node to try and the tie-breaker."""

    def __init__(self, seed: int = 0) -> None:
        self.start = 0
        self.random = Random(seed)


class Ranking(msgspec.Struct, frozen=True):
    """The scores of the feasible nodes."""

    nodes: Sequence[NodeState]
    totals: Sequence[int]
    parts: Sequence[tuple[Score, Sequence[int]]]
    """The points of each score before its weight; scores without a difference are left out."""


class Placement(msgspec.Struct, frozen=True):
    """The node that was chosen for a pod."""

    node: str
    ranking: Ranking | None = None
    """None if there was only one to choose."""
    nodes: int = 1
    """How many there are."""
    refusals: Mapping[str, NodeRejection] = msgspec.field(default_factory=dict)
    """The rejections of the nodes that were tried."""
    refused_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Which filter that was."""


class FitError(msgspec.Struct, frozen=True):
    """No node can take the pod."""

    nodes: int
    """How many there are."""
    refusals: Mapping[str, NodeRejection] = msgspec.field(default_factory=dict)
    """The rejections of the nodes that were tried."""
    refused_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Which filter that was."""
    rest: NodeRejection | None = None
    """Why the others were not even asked."""
    everywhere: str = ""
    """A reason that is the pod's own and holds for all nodes."""
    blamed: frozenset[str] = frozenset()
    """The filters that refused."""
    error: str = ""
    """The error that has ended the attempt; empty if none has."""

    @property
    def message(self) -> str:
        if self.error:
            return self.error
        if not self.nodes:
            return NO_NODES
        if self.everywhere:
            return f"0/{self.nodes} nodes are available: {self.everywhere}."
        return unavailable(self.nodes, self.refusals, self.rest)


Decision = Placement | FitError


class PreparedFilters:
    """The filters, prepared for one pod."""

    def __init__(
        self, demand: PodDemand, snapshot: Snapshot, filters: Sequence[Filter] = FILTERS
    ) -> None:
        self.checks: list[tuple[str, Check]] = []
        self.only: frozenset[str] | None = None
        """The nodes that can pass, if few can."""
        self.narrowed_by: list[str] = []
        self.refusal: NodeRejection | None = None
        """The rejection that holds for all nodes."""
        self.refused_by = ""
        for each in filters:
            prepared = each.prepare(demand, snapshot)
            if isinstance(prepared, NodeRejection):
                self.refusal, self.refused_by = prepared, each.name
                return
            if isinstance(prepared, NarrowedCheck):
                self.only = prepared.nodes if self.only is None else self.only & prepared.nodes
                self.narrowed_by.append(each.name)
                prepared = prepared.check
            if prepared is not None:
                self.checks.append((each.name, prepared))

    def refuses(self, node: NodeState) -> tuple[str, NodeRejection] | None:
        """The first filter that a node does not pass, and why."""
        if self.refusal is not None:
            return self.refused_by, self.refusal
        for name, check in self.checks:
            if (refusal := check(node)) is not None:
                return name, refusal
        return None


def decide(
    demand: PodDemand,
    snapshot: Snapshot,
    turn: CycleState,
    *,
    filters: Sequence[Filter] = FILTERS,
    scores: Sequence[Score] = SCORES,
) -> Decision:
    """Where a pod is to run."""
    count = len(snapshot.nodes)
    snapshot.devices.forget_proposals()
    if not count:
        return FitError(0)
    if excess := excess_of(demand, snapshot):
        return FitError(count, everywhere=excess, blamed=frozenset((EXCESS,)))
    prepared = PreparedFilters(demand, snapshot, filters)
    if prepared.refusal is not None:
        reason = ", ".join(prepared.refusal.reasons)
        return FitError(count, everywhere=reason, blamed=frozenset((prepared.refused_by,)))
    nominated = snapshot.nodes.get(snapshot.nomination(demand.uid))
    if nominated is not None and refused(demand, nominated, snapshot, prepared, filters) is None:
        return Placement(nominated.name, None, count)
    feasible, refusals, refused_by = _sift(demand, snapshot, prepared, turn, filters)
    if error := _error(refusals, refused_by):
        return FitError(count, refusals, refused_by, None, blamed=_blamed(refused_by), error=error)
    if not feasible:
        rest = (
            NodeRejection((_narrowed(prepared),), final=True) if prepared.only is not None else None
        )
        blamed = _blamed(refused_by) | frozenset(prepared.narrowed_by)
        return FitError(count, refusals, refused_by, rest, blamed=blamed)
    if len(feasible) == 1:
        return Placement(feasible[0].name, None, count, refusals, refused_by)
    ranking = rank(demand, snapshot, feasible, scores)
    return Placement(pick(ranking, turn).name, ranking, count, refusals, refused_by)


def excess_of(demand: PodDemand, snapshot: Snapshot) -> str:
    """Return why a pod is not compared with nodes; empty if it is."""
    if demand.excess:
        return demand.excess
    comparisons = snapshot.comparisons(demand)
    if comparisons <= MOST_COMPARISONS:
        return ""
    return (
        f"the pod's {demand.terms} pod affinity terms take {comparisons} comparisons with the "
        f"labels of other pods, more than the {MOST_COMPARISONS} that are made"
    )


def refused(
    demand: PodDemand,
    node: NodeState,
    snapshot: Snapshot,
    prepared: PreparedFilters,
    filters: Sequence[Filter] = FILTERS,
) -> tuple[str, NodeRejection] | None:
    """Why a node cannot take a pod, pods with a claim on the node being counted as there.

    The pod must fit with them and without them: it may not count on their coming either.
    """
    claims = snapshot.nominated.get(node.name)
    if claims:
        others = [
            each
            for each in claims.values()
            if each.priority >= demand.priority and each.uid != demand.uid
        ]
        if others:
            with snapshot.with_pods(node, others):
                crowded = PreparedFilters(demand, snapshot, filters).refuses(node)
            if crowded is not None:
                return crowded
    return prepared.refuses(node)


def _sift(
    demand: PodDemand,
    snapshot: Snapshot,
    prepared: PreparedFilters,
    turn: CycleState,
    filters: Sequence[Filter],
) -> tuple[list[NodeState], dict[str, NodeRejection], dict[str, str]]:
    """Nodes that pass, as many as are worth comparing, what the others said, and which filter."""
    nodes = snapshot.order
    if prepared.only is not None:
        nodes = [snapshot.nodes[name] for name in sorted(prepared.only) if name in snapshot.nodes]
    enough = worth_comparing(len(nodes))
    start = turn.start % len(nodes) if len(nodes) > enough else 0
    feasible: list[NodeState] = []
    refusals: dict[str, NodeRejection] = {}
    refused_by: dict[str, str] = {}
    claimed, refuses = snapshot.nominated, prepared.refuses
    for node in nodes[start:] + nodes[:start] if start else nodes:
        if claimed and node.name in claimed:
            found = refused(demand, node, snapshot, prepared, filters)
        else:
            found = refuses(node)
        if found is not None:
            refused_by[node.name], refusals[node.name] = found
            if found[1].is_error:
                break
            continue
        feasible.append(node)
        if len(feasible) >= enough:
            break
    turn.start += len(feasible) + len(refusals)
    return feasible, refusals, refused_by


def _blamed(refused_by: Mapping[str, str]) -> frozenset[str]:
    return frozenset(refused_by.values())


def _error(refusals: Mapping[str, NodeRejection], refused_by: Mapping[str, str]) -> str:
    """Return the error that has ended the attempt, in upstream's words; empty if none has."""
    for node, refusal in refusals.items():
        if refusal.is_error:
            return f'running "{refused_by[node]}" filter plugin: {", ".join(refusal.reasons)}'
    return ""


def worth_comparing(nodes: int) -> int:
    """How many fitting nodes are enough to choose from: all up to a hundred, then fewer."""
    percentage = max(50 - nodes // 125, 5)
    return max(nodes * percentage // 100, ENOUGH)


def rank(
    demand: PodDemand,
    snapshot: Snapshot,
    nodes: Sequence[NodeState],
    scores: Sequence[Score] = SCORES,
) -> Ranking:
    """Compare nodes that could all take the pod."""
    parts: list[tuple[Score, Sequence[int]]] = []
    totals = [0] * len(nodes)
    for score in scores:
        values = score.rate(demand, snapshot, nodes)
        if values is not None:
            parts.append((score, values))
            weight = score.weight
            totals = [total + weight * value for total, value in zip(totals, values, strict=True)]
    return Ranking(nodes, totals, parts)


def pick(ranking: Ranking, turn: CycleState) -> NodeState:
    """One of the best nodes; which of several is left to chance, so that load spreads."""
    totals, nodes = ranking.totals, ranking.nodes
    best = max(totals)
    if totals.count(best) == 1:
        return nodes[totals.index(best)]
    winners = [node for node, total in zip(nodes, totals, strict=True) if total == best]
    return winners[turn.random.randrange(len(winners))]


def unavailable(
    count: int, refusals: Mapping[str, NodeRejection], rest: NodeRejection | None
) -> str:
    """Every reason, and how many nodes gave it."""
    reasons = Counter(reason for each in refusals.values() for reason in each.reasons)
    if rest is not None and len(refusals) < count:
        for reason in rest.reasons:
            reasons[reason] += count - len(refusals)
    return f"0/{count} nodes are available:{_listed(reasons.items())}"


def _listed(reasons: Iterable[tuple[str, int]]) -> str:
    texts = sorted(f"{count} {reason}" for reason, count in reasons)
    return f" {', '.join(texts)}." if texts else ""


def _narrowed(prepared: PreparedFilters) -> str:
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(prepared.narrowed_by))}]"
