"""Pace: limits how fast a proposal is followed, by earlier proposals and changes."""

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

import msgspec

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerBehavior,
    HPAScalingRules,
)

LOOKED_BACK: Final = 300
"""The default stabilization window for scaling down, in seconds."""
KEPT: Final = timedelta(hours=1)
"""The longest time for which anybody may ask proposals and changes to be remembered."""
LEAP: Final = 4
"""The replicas that one scale-up may always reach."""


class ConditionReason(NamedTuple):
    """A condition's reason and message."""

    reason: str
    message: str


IN_RANGE: Final = ConditionReason(
    "DesiredWithinRange", "the desired count is within the acceptable range"
)
TOO_MANY: Final = ConditionReason(
    "TooManyReplicas", "the desired replica count is more than the maximum replica count"
)
TOO_FEW: Final = ConditionReason(
    "TooFewReplicas", "the desired replica count is less than the minimum replica count"
)
TOO_FAST_UP: Final = ConditionReason(
    "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
)
TOO_FAST_DOWN: Final = ConditionReason(
    "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
)
READY: Final = ConditionReason("ReadyForNewScale", "recommended size matches current size")
HELD_UP: Final = ConditionReason(
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, "
    "applying the highest recent recommendation",
)
HELD_DOWN: Final = ConditionReason(
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)


class TimedCount(NamedTuple):
    """A proposal, or a change of the replicas, with its time."""

    at: datetime
    number: int


class ScalingHistory(msgspec.Struct):
    """The recent proposals and changes of one autoscaler."""

    proposals: deque[TimedCount] = msgspec.field(default_factory=deque)
    changes: deque[TimedCount] = msgspec.field(default_factory=deque)

    def proposed(self, number: int, now: datetime) -> None:
        _forget(self.proposals, now)
        self.proposals.append(TimedCount(now, number))

    def changed(self, by: int, now: datetime) -> None:
        _forget(self.changes, now)
        self.changes.append(TimedCount(now, by))

    def gained(self, seconds: int, now: datetime) -> int:
        """By how much the replicas have grown in the last so many seconds."""
        return sum(_since(self.changes, seconds, now))


class ReplicaDecision(msgspec.Struct, frozen=True):
    """The desired replicas, and the limits that changed the proposal."""

    replicas: int
    held: ConditionReason
    """Whether earlier proposals count more."""
    limited: bool
    limit: ConditionReason


class ReplicaBounds(msgspec.Struct, frozen=True):
    """The minimum and maximum number of replicas."""

    least: int
    most: int


def decide(
    current: int,
    proposal: int,
    bounds: ReplicaBounds,
    behavior: HorizontalPodAutoscalerBehavior | None,
    memory: ScalingHistory,
    now: datetime,
) -> ReplicaDecision:
    """The replicas to have now; the proposal is remembered."""
    if behavior is None or behavior.scaleUp is None or behavior.scaleDown is None:
        wanted = max([proposal, *_since(memory.proposals, LOOKED_BACK, now, inclusive=True)])
        held = READY if wanted == proposal else HELD_UP
        replicas, limit = _within_usual_pace(current, wanted, bounds)
    else:
        up, down = behavior.scaleUp, behavior.scaleDown
        wanted = _stabilized(current, proposal, up, down, memory, now)
        held = READY
        if wanted != proposal:
            held = HELD_DOWN if proposal >= current else HELD_UP
        replicas, limit = _within_rules(current, wanted, bounds, up, down, memory, now)
    memory.proposed(proposal, now)
    return ReplicaDecision(replicas, held, replicas != wanted, limit)


def _within_usual_pace(
    current: int, wanted: int, bounds: ReplicaBounds
) -> tuple[int, ConditionReason]:
    """Return the replicas within the bounds; one scale-up at most doubles them, or makes four."""
    reach = max(2 * current, LEAP)
    most, limit = (reach, TOO_FAST_UP) if bounds.most > reach else (bounds.most, TOO_MANY)
    if wanted < bounds.least:
        return bounds.least, TOO_FEW
    return (most, limit) if wanted > most else (wanted, IN_RANGE)


def _stabilized(
    current: int,
    proposal: int,
    up: HPAScalingRules,
    down: HPAScalingRules,
    memory: ScalingHistory,
    now: datetime,
) -> int:
    """The present number, moved only as far as all recent proposals agree."""
    asked = down.stabilizationWindowSeconds
    looked_back = LOOKED_BACK if asked is None else asked
    lowest = min([proposal, *_since(memory.proposals, up.stabilizationWindowSeconds or 0, now)])
    highest = max([proposal, *_since(memory.proposals, looked_back, now)])
    return min(max(current, lowest), highest)


def _within_rules(
    current: int,
    wanted: int,
    bounds: ReplicaBounds,
    up: HPAScalingRules,
    down: HPAScalingRules,
    memory: ScalingHistory,
    now: datetime,
) -> tuple[int, ConditionReason]:
    if wanted > current:
        reach = max(_ceiling(current, up, memory, now), current)
        most, limit = (reach, TOO_FAST_UP) if bounds.most > reach else (bounds.most, TOO_MANY)
        return (most, limit) if wanted > most else (wanted, IN_RANGE)
    if wanted < current:
        reach = min(_floor(current, down, memory, now), current)
        least, limit = (reach, TOO_FAST_DOWN) if bounds.least < reach else (bounds.least, TOO_FEW)
        return (least, limit) if wanted < least else (wanted, IN_RANGE)
    return wanted, IN_RANGE


def _ceiling(current: int, rules: HPAScalingRules, memory: ScalingHistory, now: datetime) -> int:
    """The most replicas that the policies allow by now."""
    if rules.selectPolicy == "Disabled":
        return current
    reaches = []
    for policy in rules.policies:
        start = current - memory.gained(policy.periodSeconds, now)
        more = policy.value if policy.type == "Pods" else ceil(start * policy.value / 100)
        reaches.append(start + more)
    return min(reaches) if rules.selectPolicy == "Min" else max(reaches)


def _floor(current: int, rules: HPAScalingRules, memory: ScalingHistory, now: datetime) -> int:
    """The fewest replicas that the policies allow by now."""
    if rules.selectPolicy == "Disabled":
        return current
    reaches = []
    for policy in rules.policies:
        start = current - memory.gained(policy.periodSeconds, now)
        left = start - policy.value
        if policy.type == "Percent":
            left = int(start * (100 - policy.value) / 100)
        reaches.append(left)
    return max(reaches) if rules.selectPolicy == "Min" else min(reaches)


def _since(
    moments: Iterable[TimedCount], seconds: int, now: datetime, *, inclusive: bool = False
) -> list[int]:
    begin = now - timedelta(seconds=seconds)
    return [each.number for each in moments if each.at > begin or (inclusive and each.at == begin)]


def _forget(moments: deque[TimedCount], now: datetime) -> None:
    while moments and moments[0].at < now - KEPT:
        moments.popleft()
