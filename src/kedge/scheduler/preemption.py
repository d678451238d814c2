"""Preemption: which pods of lower priority would have to go so that a pod finds a place."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kedge.api import label_selector
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.scheduler.cycle import MOST_COMPARISONS, Sieve, Turn, Unfit, refused, unavailable
from kedge.scheduler.demand import Demand
from kedge.scheduler.filters.filter import Filter, Refusal
from kedge.scheduler.filters.filters import FILTERS
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

NEVER: Final = "not eligible due to preemptionPolicy=Never."
WAITING: Final = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS: Final = Refusal(("No preemption victims found for incoming pod",), final=True)
NO_HELP: Final = Refusal(("Preemption is not helpful for scheduling",), final=True)

DISRUPTION_TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"

LEAST_CANDIDATES: Final = 100
CANDIDATES_PERCENT: Final = 10

_NOT_STARTED: Final = "~"
"""Later than any time: a pod that has not started is the youngest."""
_LOWEST: Final = 2**31
"""Added to priorities, so that more victims are always worse."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and the pods that would have to leave it, the most important first."""

    node: str
    victims: Sequence[Demand]
    violations: int
    """How many of them a disruption budget wants to keep."""


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Nobody is to go."""

    message: str
    keeps_nomination: bool = False
    """Whether the pod still waits for the node that is being cleared for it."""


Search = Generator[None, None, Candidate | Hopeless]
"""Yields after each node, so that the caller can give way to requests."""


def preempt(
    demand: Demand,
    snapshot: Snapshot,
    unfit: Unfit,
    budgets: Sequence[PodDisruptionBudget],
    turn: Turn,
    *,
    filters: Sequence[Filter] = FILTERS,
) -> Candidate | Hopeless:
    """Run the search to its end."""
    search = search_victims(demand, snapshot, unfit, budgets, turn, filters=filters)
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: Candidate | Hopeless = end.value
            return found


def search_victims(
    demand: Demand,
    snapshot: Snapshot,
    unfit: Unfit,
    budgets: Sequence[PodDisruptionBudget],
    turn: Turn,
    *,
    filters: Sequence[Filter] = FILTERS,
) -> Search:
    """The node that is best cleared for a pod which fits nowhere, or why clearing does not help."""
    if why := _ineligible(demand, snapshot, unfit):
        return Hopeless(f"preemption: {why}", keeps_nomination=True)
    nodes = [snapshot.nodes[name] for name, each in unfit.refusals.items() if not each.final]
    found, refusals = yield from _candidates(demand, snapshot, nodes, budgets, turn, filters)
    if found:
        return max(found, key=_merit)
    return Hopeless(f"preemption: {unavailable(unfit.nodes, refusals, NO_HELP)}")


def _ineligible(demand: Demand, snapshot: Snapshot, unfit: Unfit) -> str:
    if demand.pod.spec.preemptionPolicy == "Never":
        return NEVER
    nominated = snapshot.nodes.get(snapshot.nomination(demand.uid))
    if nominated is None:
        return ""
    refusal = unfit.refusals.get(nominated.name, unfit.rest)
    if unfit.everywhere or (refusal is not None and refusal.final):
        return ""
    leaving = (
        each.uid in snapshot.condemned or is_preempted(each.pod)
        for each in nominated.pods.values()
        if each.priority < demand.priority
    )
    return WAITING if any(leaving) else ""


def is_preempted(pod: Pod) -> bool:
    """Whether a pod is on its way out because a scheduler told it so."""
    if not pod.metadata.deletionTimestamp:
        return False
    return any(
        each.type == DISRUPTION_TARGET and each.status == "True" and each.reason == REASON
        for each in pod.status.conditions
    )


def _candidates(
    demand: Demand,
    snapshot: Snapshot,
    nodes: list[NodeState],
    budgets: Sequence[PodDisruptionBudget],
    turn: Turn,
    filters: Sequence[Filter],
) -> Generator[None, None, tuple[list[Candidate], dict[str, Refusal]]]:
    """Nodes that could be cleared, as many as are worth comparing, and why others could not."""
    enough = max(len(nodes) * CANDIDATES_PERCENT // 100, LEAST_CANDIDATES)
    start = turn.random.randrange(len(nodes)) if len(nodes) > enough else 0
    found: list[Candidate] = []
    refusals: dict[str, Refusal] = {}
    for node in nodes[start:] + nodes[:start]:
        yield
        if snapshot.nodes.get(node.name) is not node:
            continue
        result = clear(demand, node, snapshot, budgets, filters)
        if isinstance(result, Refusal):
            refusals[node.name] = result
            continue
        found.append(result)
        if len(found) >= enough and not all(each.violations for each in found):
            break
    return found, refusals


def clear(
    demand: Demand,
    node: NodeState,
    snapshot: Snapshot,
    budgets: Sequence[PodDisruptionBudget],
    filters: Sequence[Filter] = FILTERS,
) -> Candidate | Refusal:
    """The fewest pods that must leave one node for a pod to fit."""
    lesser = [each for each in node.pods.values() if each.priority < demand.priority]
    if not lesser or snapshot.comparisons(demand) * len(lesser) > MOST_COMPARISONS:
        return NO_VICTIMS
    lesser.sort(key=_importance)
    protected = protected_by(budgets, lesser)
    victims: list[Demand] = []

    def obstacle() -> tuple[str, Refusal] | None:
        return refused(demand, node, snapshot, Sieve(demand, snapshot, filters), filters)

    with snapshot.without_pods(node, lesser) as turn_pod:
        if (found := obstacle()) is not None:
            return found[1]
        # Those that a budget protects are the first to be spared, then the more important ones.
        for each in sorted(lesser, key=lambda each: each.uid not in protected):
            turn_pod(each, True)
            if obstacle() is not None:
                turn_pod(each, False)
                victims.append(each)
    if not victims:
        return NO_VICTIMS
    victims.sort(key=_importance)
    return Candidate(node.name, victims, sum(each.uid in protected for each in victims))


def protected_by(
    budgets: Iterable[PodDisruptionBudget], demands: Sequence[Demand]
) -> frozenset[str]:
    """The pods, by uid, whose going a budget does not allow once those before them have gone."""
    found: set[str] = set()
    for budget in budgets:
        selector = label_selector.compiled(budget.spec.selector)
        if selector.empty:
            continue
        allowed = budget.status.disruptionsAllowed
        for each in demands:
            if (
                each.namespace != budget.metadata.namespace
                or not each.labels
                or each.key.name in budget.status.disruptedPods
                or not selector.matches(each.labels)
            ):
                continue
            allowed -= 1
            if allowed < 0:
                found.add(each.uid)
    return frozenset(found)


def _importance(demand: Demand) -> tuple[int, str]:
    return -demand.priority, _started(demand)


def _started(demand: Demand) -> str:
    return demand.pod.status.startTime or _NOT_STARTED


def _merit(candidate: Candidate) -> tuple[int, int, int, int, str]:
    """Larger is better: fewest violations, least important victims, fewest, youngest."""
    highest = candidate.victims[0].priority
    total = sum(each.priority + _LOWEST for each in candidate.victims)
    foremost = [each for each in candidate.victims if each.priority == highest]
    return (
        -candidate.violations,
        -highest,
        -total,
        -len(candidate.victims),
        min(_started(each) for each in foremost),
    )
