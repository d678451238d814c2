from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
)
from kedge.controllers.autoscaling.pace import (
    HELD_DOWN,
    HELD_UP,
    IN_RANGE,
    READY,
    TOO_FAST_DOWN,
    TOO_FAST_UP,
    TOO_FEW,
    TOO_MANY,
    ConditionReason,
    ReplicaBounds,
    ScalingHistory,
    decide,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def rules(
    *policies: tuple[str, int, int], window: int | None = 0, select: str = "Max"
) -> HPAScalingRules:
    made = [HPAScalingPolicy(type=t, value=v, periodSeconds=p) for t, v, p in policies]
    return HPAScalingRules(policies=made, stabilizationWindowSeconds=window, selectPolicy=select)


ANY = rules(("Percent", 1000, 15))


@pytest.mark.parametrize(
    ("current", "proposal", "replicas", "limit"),
    [
        (3, 4, 4, IN_RANGE),
        (3, 20, 6, TOO_FAST_UP),
        (1, 9, 4, TOO_FAST_UP),
        (6, 30, 10, TOO_MANY),
        (5, 30, 10, TOO_MANY),
        (5, 10, 10, IN_RANGE),
        (3, 1, 2, TOO_FEW),
        (3, 2, 2, IN_RANGE),
    ],
)
def test_without_a_behavior_replicas_at_most_double_within_their_bounds(
    current: int, proposal: int, replicas: int, limit: ConditionReason
) -> None:
    decision = decide(current, proposal, ReplicaBounds(2, 10), None, ScalingHistory(), NOON)
    assert (decision.replicas, decision.limit) == (replicas, limit)
    assert decision.limited == (replicas != proposal)


def test_without_a_behavior_the_highest_proposal_of_five_minutes_holds() -> None:
    memory, bounds = ScalingHistory(), ReplicaBounds(1, 10)
    decide(5, 5, bounds, None, memory, NOON)
    for second in (299, 300):
        held = decide(5, 2, bounds, None, memory, later(second))
        assert (held.replicas, held.held) == (5, HELD_UP)
    free = decide(5, 2, bounds, None, memory, later(301))
    assert (free.replicas, free.held) == (2, READY)


def test_a_behavior_may_remove_at_once_and_add_slowly() -> None:
    behavior = HorizontalPodAutoscalerBehavior(
        scaleUp=rules(("Pods", 10, 15), window=60), scaleDown=ANY
    )
    memory, bounds = ScalingHistory(), ReplicaBounds(1, 10)
    assert decide(3, 1, bounds, behavior, memory, NOON).replicas == 1
    slow = decide(1, 5, bounds, behavior, memory, later(59))
    assert (slow.replicas, slow.held) == (1, HELD_DOWN)
    assert decide(1, 5, bounds, behavior, memory, later(60)).replicas == 5


def test_a_behavior_adds_at_once_unless_it_says_otherwise() -> None:
    behavior = HorizontalPodAutoscalerBehavior(
        scaleUp=replace(ANY, stabilizationWindowSeconds=None), scaleDown=ANY
    )
    memory = ScalingHistory()
    memory.proposed(3, NOON)
    decision = decide(3, 9, ReplicaBounds(1, 10), behavior, memory, later(0.5))
    assert (decision.replicas, decision.held) == (9, READY)


@pytest.mark.parametrize(
    ("proposal", "bounds", "replicas", "limit"),
    [
        (13, (1, 20), 12, TOO_FAST_UP),
        (13, (1, 12), 12, TOO_MANY),
        (12, (1, 12), 12, IN_RANGE),
        (10, (10, 10), 10, IN_RANGE),
        (8, (8, 20), 8, IN_RANGE),
        (7, (8, 20), 8, TOO_FEW),
        (7, (1, 20), 8, TOO_FAST_DOWN),
    ],
)
def test_a_behavior_names_the_limit_that_stopped_it(
    proposal: int, bounds: tuple[int, int], replicas: int, limit: ConditionReason
) -> None:
    two = rules(("Pods", 2, 60))
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=two, scaleDown=two)
    decision = decide(10, proposal, ReplicaBounds(*bounds), behavior, ScalingHistory(), NOON)
    assert (decision.replicas, decision.limit) == (replicas, limit)


def test_percentages_are_exact() -> None:
    half = rules(("Percent", 50, 60))
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=half, scaleDown=half)
    bounds = ReplicaBounds(1, 1000)
    assert decide(200, 900, bounds, behavior, ScalingHistory(), NOON).replicas == 300
    assert decide(200, 1, bounds, behavior, ScalingHistory(), NOON).replicas == 100


def test_a_policy_counts_what_was_removed_in_its_period() -> None:
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=ANY, scaleDown=rules(("Pods", 3, 60)))
    memory, bounds = ScalingHistory(), ReplicaBounds(1, 100)
    memory.changed(-2, NOON)
    assert decide(8, 1, bounds, behavior, memory, later(30)).replicas == 7
    assert decide(8, 1, bounds, behavior, memory, later(60)).replicas == 5


def test_an_hour_of_proposals_and_changes_is_kept() -> None:
    memory = ScalingHistory()
    for second in (0, 1, 3600, 3601):
        memory.proposed(second, later(second))
        memory.changed(second, later(second))
    assert [number for _, number in memory.proposals] == [1, 3600, 3601]
    assert [number for _, number in memory.changes] == [1, 3600, 3601]


def test_a_policy_counts_what_was_added_in_its_period() -> None:
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=rules(("Pods", 2, 60)), scaleDown=ANY)
    memory, bounds = ScalingHistory(), ReplicaBounds(1, 100)
    first = decide(4, 50, bounds, behavior, memory, NOON)
    assert (first.replicas, first.limit) == (6, TOO_FAST_UP)
    memory.changed(2, NOON)
    assert decide(6, 50, bounds, behavior, memory, later(30)).replicas == 6
    assert decide(6, 50, bounds, behavior, memory, later(61)).replicas == 8


@pytest.mark.parametrize(
    ("select", "up", "down"), [("Max", 20, 5), ("Min", 13, 7), ("Disabled", 10, 10)]
)
def test_of_several_policies_the_selected_one_counts(select: str, up: int, down: int) -> None:
    behavior = HorizontalPodAutoscalerBehavior(
        scaleUp=rules(("Pods", 3, 60), ("Percent", 100, 60), select=select),
        scaleDown=rules(("Pods", 3, 60), ("Percent", 50, 60), select=select),
    )
    assert decide(10, 99, ReplicaBounds(1, 100), behavior, ScalingHistory(), NOON).replicas == up
    lower = decide(10, 1, ReplicaBounds(1, 100), behavior, ScalingHistory(), NOON)
    assert (lower.replicas, lower.limit) == (down, TOO_FAST_DOWN)


def test_a_percentage_of_few_still_adds_one() -> None:
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=rules(("Percent", 10, 60)), scaleDown=ANY)
    assert decide(1, 9, ReplicaBounds(1, 100), behavior, ScalingHistory(), NOON).replicas == 2


def test_a_behavior_that_says_nothing_of_removing_waits_five_minutes() -> None:
    down = rules(("Percent", 100, 15), window=None)
    behavior = HorizontalPodAutoscalerBehavior(scaleUp=ANY, scaleDown=down)
    memory = ScalingHistory()
    memory.proposed(8, NOON)
    assert decide(8, 1, ReplicaBounds(1, 100), behavior, memory, later(299)).replicas == 8
    assert decide(8, 1, ReplicaBounds(1, 100), behavior, memory, later(301)).replicas == 1
