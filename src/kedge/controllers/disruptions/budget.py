"""Computes the allowed disruptions of a budget from its pods and their desired number."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1 import rolling
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Condition, LabelSelector
from kedge.api.policy_v1.pod_disruption_budget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kedge.controllers.pod_state import ENDED, condition, is_leaving, is_ready
from kedge.machinery.durations import format_time, moved, parse_time

DELETION_TIMEOUT: Final = 120
"""Seconds after an eviction in which the pod's deletion is expected."""
STALE: Final = 120
"""Seconds for which a pod may have the condition DisruptionTarget without being deleted."""

ALLOWED: Final = "DisruptionAllowed"
TARGET: Final = "DisruptionTarget"
BY_KUBELET: Final = "TerminationByKubelet"


class DisruptedPods(msgspec.Struct, frozen=True):
    """The evicted pods of a budget whose deletion has not been observed."""

    expected: Mapping[str, str]
    """When each was evicted, of those whose deletion is still expected."""
    kept: Sequence[Pod]
    """The pods that were not deleted in time."""
    until: datetime | None
    """When the next of those expected is late."""


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether a budget is about how many pods there should be, not how many there are."""
    return spec.maxUnavailable is not None or isinstance(spec.minAvailable, str)


def desired_healthy(spec: PodDisruptionBudgetSpec, expected: int) -> int:
    """How many of the expected pods must stay healthy."""
    if spec.maxUnavailable is not None:
        return max(expected - _amount(spec.maxUnavailable, expected), 0)
    if spec.minAvailable is not None:
        return _amount(spec.minAvailable, expected)
    return 0


def _amount(value: int | str, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up."""
    if isinstance(value, int):
        return value
    return rolling.count(value, whole, up=True)


def disrupted(budget: PodDisruptionBudget, pods: Iterable[Pod], now: datetime) -> DisruptedPods:
    """Return the evicted pods that still count as disrupted."""
    evicted = budget.status.disruptedPods
    expected: dict[str, str] = {}
    kept: list[Pod] = []
    until: datetime | None = None
    for pod in pods:
        since = evicted.get(pod.metadata.name)
        if since is None or is_leaving(pod):
            continue
        late = moved(parse_time(since), DELETION_TIMEOUT)
        if late <= now:
            kept.append(pod)
            continue
        expected[pod.metadata.name] = since
        until = late if until is None else min(until, late)
    return DisruptedPods(expected, kept, until)


def healthy(pods: Iterable[Pod], leaving_soon: Mapping[str, str]) -> int:
    """How many pods are ready and will stay."""
    return sum(
        is_ready(pod) and not is_leaving(pod) and pod.metadata.name not in leaving_soon
        for pod in pods
    )


def assessed(
    budget: PodDisruptionBudget,
    *,
    current: int,
    desired: int,
    expected: int,
    disrupted: Mapping[str, str],
    now: datetime,
) -> PodDisruptionBudgetStatus:
    """The status that says what is left of a budget. One without pods allows nothing, so that the
    first pods are safe until they have been counted."""
    allowed = max(current - desired, 0) if expected > 0 else 0
    generation = budget.metadata.generation
    condition = Condition(
        type=ALLOWED,
        status="True" if allowed else "False",
        reason="SufficientPods" if allowed else "InsufficientPods",
        observedGeneration=generation,
        lastTransitionTime=format_time(now),
    )
    return PodDisruptionBudgetStatus(
        currentHealthy=current,
        desiredHealthy=desired,
        expectedPods=expected,
        disruptionsAllowed=allowed,
        disruptedPods=disrupted,
        observedGeneration=generation,
        conditions=with_condition(budget.status.conditions, condition),
    )


def failed(budget: PodDisruptionBudget, why: str, now: datetime) -> PodDisruptionBudgetStatus:
    """The status of a budget that cannot be worked out: it allows nothing."""
    status = budget.status
    condition = Condition(
        type=ALLOWED,
        status="False",
        reason="SyncFailed",
        message=why,
        observedGeneration=status.observedGeneration,
        lastTransitionTime=format_time(now),
    )
    conditions = with_condition(status.conditions, condition)
    return replace(status, disruptionsAllowed=0, conditions=conditions)


def with_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition]:
    """The conditions with this one in the place of its like; while the status is the same, so is
    the time since when."""
    for i, old in enumerate(conditions):
        if old.type == new.type:
            if old.status == new.status:
                new = replace(new, lastTransitionTime=old.lastTransitionTime)
            return [*conditions[:i], new, *conditions[i + 1 :]]
    return [*conditions, new]


def stale_in(pod: Pod, now: datetime) -> float | None:
    """Return the seconds until a DisruptionTarget condition is stale, because no deletion followed.

    None if there is no such condition, or if the kubelet set it: it may take its time.
    """
    found = condition(pod, TARGET)
    if found is None or found.status != "True" or found.reason == BY_KUBELET:
        return None
    if is_leaving(pod) or pod.status.phase in ENDED or not found.lastTransitionTime:
        return None
    stale = moved(parse_time(found.lastTransitionTime), STALE)
    return max((stale - now).total_seconds(), 0.0)


def shown(selector: LabelSelector | None) -> str:
    """A selector as upstream prints it in events."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.matchLabels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},"
        f"Values:[{' '.join(each.values)}],}},"
        for each in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
