"""What budgets allow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Condition, LabelSelector, LabelSelectorRequirement
from kedge.api.policy_v1.pod_disruption_budget import (
    RESOURCE,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from kedge.controllers.disruptions import budget as pure

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def make(**status: Any) -> PodDisruptionBudget:
    return RESOURCE.from_document({"metadata": {"name": "b", "generation": 3}, "status": status})


def pod(name: str = "p", *, ready: bool = True, leaving: bool = False, **status: Any) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "default"}
    if leaving:
        meta["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return PODS.from_document({"metadata": meta, "status": {"conditions": conditions} | status})


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        ({"minAvailable": 2}, 5, 2),
        ({"minAvailable": "50%"}, 5, 3),
        ({"minAvailable": "100%"}, 5, 5),
        ({"maxUnavailable": 1}, 5, 4),
        ({"maxUnavailable": "30%"}, 5, 3),
        ({"maxUnavailable": 9}, 5, 0),
        ({}, 5, 0),
    ],
)
def test_percentages_are_of_the_expected_pods_and_rounded_up(
    spec: dict[str, Any], expected: int, desired: int
) -> None:
    assert pure.desired_healthy(PodDisruptionBudgetSpec(**spec), expected) == desired


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"minAvailable": 2}, False),
        ({"minAvailable": "50%"}, True),
        ({"maxUnavailable": 1}, True),
        ({"maxUnavailable": "30%"}, True),
        ({}, False),
    ],
)
def test_only_a_number_of_pods_that_stay_needs_no_scale(spec: dict[str, Any], needed: bool) -> None:
    assert pure.needs_scale(PodDisruptionBudgetSpec(**spec)) is needed


@given(st.integers(0, 100), st.integers(0, 500))
def test_what_may_be_down_and_what_must_stay_never_leave_a_pod_out(share: int, whole: int) -> None:
    may_go = PodDisruptionBudgetSpec(maxUnavailable=f"{share}%")
    assert 0 <= pure.desired_healthy(may_go, whole) <= whole
    must_stay = PodDisruptionBudgetSpec(minAvailable=f"{share}%")
    assert 0 <= pure.desired_healthy(must_stay, whole) <= whole


def test_pods_that_leave_or_were_evicted_are_not_healthy() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("c", leaving=True), pod("d"), pod("e")]
    assert pure.healthy(pods, {"d": "2030-01-01T12:00:00Z"}) == 2


def test_an_evicted_pod_that_is_not_deleted_in_time_counts_again() -> None:
    times = {"late": "2030-01-01T11:58:00Z", "soon": "2030-01-01T11:59:00Z", "gone": "x"}
    found = pure.disrupted(make(disruptedPods=times), [pod("late"), pod("soon"), pod("new")], NOW)
    assert dict(found.expected) == {"soon": times["soon"]}
    assert [each.metadata.name for each in found.kept] == ["late"]
    assert found.until == NOW + timedelta(minutes=1)


def test_deleted_pods_are_passed_over_and_the_next_late_one_counts() -> None:
    times = {"b": "2030-01-01T11:59:30Z", "c": "2030-01-01T11:59:00Z", "a": "2030-01-01T11:59:10Z"}
    pods = [pod("new"), pod("a", leaving=True), pod("b"), pod("c")]
    found = pure.disrupted(make(disruptedPods=times), pods, NOW)
    assert dict(found.expected) == {"b": times["b"], "c": times["c"]}
    assert (found.kept, found.until) == ([], NOW + timedelta(minutes=1))


def test_other_conditions_stay_where_they_are() -> None:
    others = [{"type": kind, "status": "True"} for kind in ("First", "DisruptionAllowed", "Last")]
    status = assess(make(conditions=others), 5, 3, 5)
    assert [(each.type, each.reason) for each in status.conditions] == [
        ("First", ""),
        ("DisruptionAllowed", "SufficientPods"),
        ("Last", ""),
    ]


def assess(budget: PodDisruptionBudget, current: int, desired: int, expected: int) -> Any:
    return pure.assessed(
        budget, current=current, desired=desired, expected=expected, disrupted={}, now=NOW
    )


def test_what_is_healthy_beyond_what_must_be_may_go() -> None:
    status = assess(make(), 5, 3, 5)
    assert status.disruptionsAllowed == 2
    assert status.observedGeneration == 3
    assert status.conditions == [
        Condition(
            type="DisruptionAllowed",
            status="True",
            reason="SufficientPods",
            observedGeneration=3,
            lastTransitionTime="2030-01-01T12:00:00Z",
        )
    ]


def test_a_budget_without_pods_allows_nothing() -> None:
    status = assess(make(), 1, 0, 0)
    assert status.disruptionsAllowed == 0
    [condition] = status.conditions
    assert (condition.status, condition.reason) == ("False", "InsufficientPods")
    assert assess(make(), 1, 0, 1).disruptionsAllowed == 1


def test_too_few_healthy_pods_are_no_negative_allowance() -> None:
    assert assess(make(), 1, 3, 5).disruptionsAllowed == 0


def test_since_when_stays_while_the_status_stays() -> None:
    old = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}
    old["lastTransitionTime"] = "2029-01-01T00:00:00Z"
    status = assess(make(conditions=[old]), 5, 3, 5)
    assert status.conditions[0].lastTransitionTime == "2029-01-01T00:00:00Z"
    status = assess(make(conditions=[old]), 3, 3, 5)
    assert status.conditions[0].lastTransitionTime == "2030-01-01T12:00:00Z"


def test_a_budget_that_cannot_be_worked_out_allows_nothing_and_says_why() -> None:
    status = pure.failed(make(disruptionsAllowed=2, currentHealthy=4), "no scale", NOW)
    assert (status.disruptionsAllowed, status.currentHealthy) == (0, 4)
    [condition] = status.conditions
    assert (condition.status, condition.reason) == ("False", "SyncFailed")
    assert condition.message == "no scale"


def test_a_selector_is_shown_as_upstream_shows_it() -> None:
    assert pure.shown(LabelSelector(matchLabels={"foo": "bar"})) == (
        "&LabelSelector{MatchLabels:map[string]string{foo: bar,},"
        "MatchExpressions:[]LabelSelectorRequirement{},}"
    )
    expressions = [
        LabelSelectorRequirement(key="a", operator="In", values=["1", "2"]),
        LabelSelectorRequirement(key="b", operator="Exists"),
    ]
    both = LabelSelector(matchLabels={"y": "2", "x": "1"}, matchExpressions=expressions)
    assert pure.shown(both) == (
        "&LabelSelector{MatchLabels:map[string]string{x: 1,y: 2,},"
        "MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:a,Operator:In,Values:[1 2],},"
        "LabelSelectorRequirement{Key:b,Operator:Exists,Values:[],},},}"
    )
    assert pure.shown(None) == "nil"


@pytest.mark.parametrize(
    ("reason", "phase", "leaving", "seconds"),
    [
        ("EvictionByEvictionAPI", "Running", False, 60.0),
        ("TerminationByKubelet", "Running", False, None),
        ("EvictionByEvictionAPI", "Failed", False, None),
        ("EvictionByEvictionAPI", "Running", True, None),
    ],
)
def test_a_disruption_that_does_not_come_about_is_stale_after_two_minutes(
    reason: str, phase: str, leaving: bool, seconds: float | None
) -> None:
    said = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    said["lastTransitionTime"] = "2030-01-01T11:59:00Z"
    found = pod(leaving=leaving, phase=phase, conditions=[said])
    assert pure.stale_in(found, NOW) == seconds


def test_a_disruption_that_is_late_is_stale_now() -> None:
    said = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    late = said | {"lastTransitionTime": "2030-01-01T11:00:00Z"}
    assert pure.stale_in(pod(conditions=[late]), NOW) == 0.0
    assert pure.stale_in(pod(conditions=[said]), NOW) is None
    assert pure.stale_in(pod(conditions=[late | {"status": "False"}]), NOW) is None
    assert pure.stale_in(pod(), NOW) is None
