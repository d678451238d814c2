"""Preemption: choose a node and the pods of lower priority to evict from it, so that a pod fits.

This follows kube-scheduler's DefaultPreemption plugin step by step, because the messages, the
choice of victims and the nomination are visible to users:

1. Is the pod eligible? A pod that already has a nominated node, on which victims are still
   terminating, waits for them. Without this check every retry of the pod would evict the pods of
   one more node while the first is being cleared.
2. Which nodes can help? Only those whose rejection can change when pods leave. A node that rejected
   the pod for a taint or a node selector (`final`) is not tried.
3. For each of them: remove all pods of lower priority. If the pod still does not fit, the node is
   no candidate. Otherwise add the pods back one at a time, the most important first; the victims
   are those whose return makes the pod unfit (`clear`).
4. Of the candidates, take the one that hurts least (`_merit`).

The search only decides. The loop then nominates the node in the snapshot and starts the evictions,
in one turn of the event loop. From then on `cycle.refused` counts the nominated pod as if it were
on the node, so that no pod of lower priority takes the room that the victims leave. The node is not
reserved: pods of higher priority may still take it, and then the search begins again.

Disruption budgets are respected where possible and violated where not, as upstream: priority wins
over availability, otherwise one budget could lock critical pods out of the cluster.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

import msgspec

from kedge.api import label_selector
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.scheduler.cycle import (
    MOST_COMPARISONS,
    CycleState,
    FitError,
    PreparedFilters,
    refused,
    unavailable,
)
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import Filter, NodeRejection
from kedge.scheduler.filters.filters import FILTERS
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

NEVER: Final = "not eligible due to preemptionPolicy=Never."
WAITING: Final = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS: Final = NodeRejection(("No preemption victims found for incoming pod",), final=True)
NO_HELP: Final = NodeRejection(("Preemption is not helpful for scheduling",), final=True)

DISRUPTION_TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"

LEAST_CANDIDATES: Final = 100
CANDIDATES_PERCENT: Final = 10

_NOT_STARTED: Final = "~"
"""Sorts after every RFC 3339 timestamp: a pod that has not started is the youngest."""
_LOWEST: Final = 2**31
"""Added to each priority, as upstream. Priorities may be negative, and a sum of negative numbers
would be better the more victims it has."""


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node and the pods that would have to leave it, the most important first."""

    node: str
    victims: Sequence[PodDemand]
    violations: int
    """How many of them a disruption budget wants to keep."""


class PreemptionImpossible(msgspec.Struct, frozen=True):
    """No eviction helps, or none is allowed now."""

    message: str
    keeps_nomination: bool = False
    """Whether the pod still waits for the node that is being cleared for it."""


Search = Generator[None, None, PreemptionCandidate | PreemptionImpossible]
"""Yields after each node, so that the caller can give way to requests."""


def preempt(
    demand: PodDemand,
    snapshot: Snapshot,
    unfit: FitError,
    budgets: Sequence[PodDisruptionBudget],
    turn: CycleState,
    *,
    filters: Sequence[Filter] = FILTERS,
) -> PreemptionCandidate | PreemptionImpossible:
    """Run the search to its end."""
    search = search_victims(demand, snapshot, unfit, budgets, turn, filters=filters)
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: PreemptionCandidate | PreemptionImpossible = end.value
            return found


def search_victims(
    demand: PodDemand,
    snapshot: Snapshot,
    unfit: FitError,
    budgets: Sequence[PodDisruptionBudget],
    turn: CycleState,
    *,
    filters: Sequence[Filter] = FILTERS,
) -> Search:
    """Return the best candidate for a pod that fits nowhere, or the reason why there is none."""
    if why := _ineligible(demand, snapshot, unfit):
        return PreemptionImpossible(f"preemption: {why}", keeps_nomination=True)
    nodes = [snapshot.nodes[name] for name, each in unfit.refusals.items() if not each.final]
    found, refusals = yield from _candidates(demand, snapshot, nodes, budgets, turn, filters)
    if found:
        return max(found, key=_merit)
    return PreemptionImpossible(f"preemption: {unavailable(unfit.nodes, refusals, NO_HELP)}")


def _ineligible(demand: PodDemand, snapshot: Snapshot, unfit: FitError) -> str:
    if demand.pod.spec.preemptionPolicy == "Never":
        return NEVER
    nominated = snapshot.nodes.get(snapshot.nomination(demand.uid))
    if nominated is None:
        return ""
    # The nominated node has since rejected the pod for good (a new taint, for example): its victims
    # may still be terminating, but waiting for them is useless. Look for another node.
    refusal = unfit.refusals.get(nominated.name, unfit.rest)
    if unfit.everywhere or (refusal is not None and refusal.final):
        return ""
    # Only pods of lower priority count: the others leave for another reason. `condemned` holds the
    # pods that this scheduler has decided to evict; their deletion may not have reached the
    # informer.
    leaving = (
        each.uid in snapshot.condemned or is_preempted(each.pod)
        for each in nominated.pods.values()
        if each.priority < demand.priority
    )
    return WAITING if any(leaving) else ""


def is_preempted(pod: Pod) -> bool:
    """Whether a scheduler has evicted the pod and it is terminating.

    The condition distinguishes preemption from other deletions. Upstream waits for preempted pods
    only: another deletion was not made for this pod and may take as long as it likes.
    """
    if not pod.metadata.deletionTimestamp:
        return False
    return any(
        each.type == DISRUPTION_TARGET and each.status == "True" and each.reason == REASON
        for each in pod.status.conditions
    )


def _candidates(
    demand: PodDemand,
    snapshot: Snapshot,
    nodes: list[NodeState],
    budgets: Sequence[PodDisruptionBudget],
    turn: CycleState,
    filters: Sequence[Filter],
) -> Generator[None, None, tuple[list[PreemptionCandidate], dict[str, NodeRejection]]]:
    """Return candidates, as many as are worth comparing, and the rejections of the other nodes.

    Clearing a node runs the filters once per pod on it, so a large cluster is sampled: a tenth of
    the nodes, at least a hundred (upstream's defaults). The random start keeps a sample from
    clearing the same few nodes every time. The search goes on past the sample while every candidate
    violates a disruption budget.
    """
    enough = max(len(nodes) * CANDIDATES_PERCENT // 100, LEAST_CANDIDATES)
    start = turn.random.randrange(len(nodes)) if len(nodes) > enough else 0
    found: list[PreemptionCandidate] = []
    refusals: dict[str, NodeRejection] = {}
    for node in nodes[start:] + nodes[:start]:
        # The caller may run other tasks here, and the snapshot may change: a node that was removed
        # or replaced meanwhile is skipped. `clear` itself is not interrupted, so the pods that it
        # takes out of the snapshot are back before anyone else looks.
        yield
        if snapshot.nodes.get(node.name) is not node:
            continue
        result = clear(demand, node, snapshot, budgets, filters)
        if isinstance(result, NodeRejection):
            refusals[node.name] = result
            continue
        found.append(result)
        if len(found) >= enough and not all(each.violations for each in found):
            break
    return found, refusals


def clear(
    demand: PodDemand,
    node: NodeState,
    snapshot: Snapshot,
    budgets: Sequence[PodDisruptionBudget],
    filters: Sequence[Filter] = FILTERS,
) -> PreemptionCandidate | NodeRejection:
    """Return the pods that must leave one node for the pod to fit, or why no eviction helps.

    The result is minimal, not the minimum: no single victim can be spared, but a different set
    might be smaller. The minimum is a knapsack problem; upstream takes the same greedy answer.
    Greedy from the most important pod down also gives the guarantee that users ask for: a pod is
    evicted only if it does not fit beside all more important pods that stay.
    """
    lesser = [each for each in node.pods.values() if each.priority < demand.priority]
    # Inter-pod affinity makes each attempt as expensive as the number of pods it compares with.
    # Above the limit the node is treated as if it had no victims, rather than blocking the event
    # loop.
    if not lesser or snapshot.comparisons(demand) * len(lesser) > MOST_COMPARISONS:
        return NO_VICTIMS
    lesser.sort(key=_importance)
    protected = protected_by(budgets, lesser)
    victims: list[PodDemand] = []

    def obstacle() -> tuple[str, NodeRejection] | None:
        # The filters are prepared again for each attempt: what they precompute (topology spread,
        # affinity) depends on the pods that are on the node at that moment.
        return refused(demand, node, snapshot, PreparedFilters(demand, snapshot, filters), filters)

    with snapshot.without_pods(node, lesser) as turn_pod:
        if (found := obstacle()) is not None:
            return found[1]
        # Pods that a budget protects are added back first, while there is the most room, then the
        # others; each group by importance, because the sort is stable.
        for each in sorted(lesser, key=lambda each: each.uid not in protected):
            turn_pod(each, True)
            if obstacle() is not None:
                turn_pod(each, False)
                victims.append(each)
    if not victims:
        return NO_VICTIMS
    victims.sort(key=_importance)
    return PreemptionCandidate(node.name, victims, sum(each.uid in protected for each in victims))


def protected_by(
    budgets: Iterable[PodDisruptionBudget], demands: Sequence[PodDemand]
) -> frozenset[str]:
    """Return the uids of the pods whose eviction a budget does not allow, given those before them.

    Each budget allows `disruptionsAllowed` evictions; the pods come in order of importance, so the
    allowance goes to the most important and the rest counts as protected (upstream's
    filterPodsWithPDBViolation). A pod in `disruptedPods` is evicted already and was subtracted from
    the allowance then. An empty selector selects nothing here, as upstream.
    """
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


def _importance(demand: PodDemand) -> tuple[int, str]:
    return -demand.priority, _started(demand)


def _started(demand: PodDemand) -> str:
    return demand.pod.status.startTime or _NOT_STARTED


def _merit(candidate: PreemptionCandidate) -> tuple[int, int, int, int, str]:
    """Return a sort key; the largest is the best candidate.

    The order is upstream's pickOneNodeForPreemption: fewest violations of disruption budgets, then
    the lowest priority of the most important victim, then the lowest sum of priorities, then the
    fewest victims, then the latest start of the earliest-started among the most important victims,
    which loses the least work. Ties go to the first node that was tried.
    """
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
