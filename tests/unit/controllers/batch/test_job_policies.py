"""What policies make of failures and successes."""

import pytest

from kedge.api.batch_v1.job_types import (
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodCondition,
    PodStatus,
)
from kedge.api.model import ObjectMeta
from kedge.controllers.batch.job_indexes import Indexes
from kedge.controllers.batch.job_policies import judged, met


def ended(name: str, code: int) -> ContainerStatus:
    return ContainerStatus(
        name=name, state=ContainerState(terminated=ContainerStateTerminated(exitCode=code))
    )


POD = Pod(
    metadata=ObjectMeta(name="p", namespace="n"),
    status=PodStatus(
        initContainerStatuses=[ended("setup", 9)],
        containerStatuses=[ended("main", 3), ended("side", 0)],
        conditions=[PodCondition(type="DisruptionTarget", status="True")],
    ),
)


def exits(
    action: str, operator: str, *values: int, container: str | None = None
) -> PodFailurePolicyRule:
    asked = PodFailurePolicyOnExitCodesRequirement(
        containerName=container, operator=operator, values=values
    )
    return PodFailurePolicyRule(action=action, onExitCodes=asked)


def disrupted(action: str, status: str = "True") -> PodFailurePolicyRule:
    pattern = PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status=status)
    return PodFailurePolicyRule(action=action, onPodConditions=[pattern])


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([], "Count"),
        ([exits("FailJob", "In", 1, 2)], "Count"),
        ([exits("FailJob", "In", 3)], "FailJob"),
        ([exits("FailJob", "In", 9)], "FailJob"),
        ([exits("FailJob", "In", 3, container="side")], "Count"),
        # One that ended well is not what NotIn looks for.
        ([exits("Ignore", "NotIn", 3, 9)], "Count"),
        ([exits("Ignore", "NotIn", 3)], "Ignore"),
        ([disrupted("Ignore"), exits("FailJob", "In", 3)], "Ignore"),
        ([disrupted("Ignore", "False"), exits("FailIndex", "In", 3)], "FailIndex"),
    ],
)
def test_first_rule_that_matches_decides(rules: list[PodFailurePolicyRule], action: str) -> None:
    judgement = judged(PodFailurePolicy(rules=rules), POD)
    assert judgement.action == action
    assert judgement.counts == (action != "Ignore")


def test_message_says_what_matched() -> None:
    by_code = PodFailurePolicy(rules=[exits("FailJob", "In", 3)])
    assert judged(by_code, POD).message == (
        "Container main for pod n/p failed with exit code 3 matching FailJob rule at index 0"
    )
    by_condition = PodFailurePolicy(rules=[exits("Count", "In", 1), disrupted("FailJob")])
    assert judged(by_condition, POD).message == (
        "Pod n/p has condition DisruptionTarget matching FailJob rule at index 1"
    )


@pytest.mark.parametrize(
    ("indexes", "count", "done", "holds"),
    [
        (None, 2, "0", False),
        (None, 2, "0,3", True),
        ("1-2", None, "0,1", False),
        ("1-2", None, "0-2", True),
        ("1-3", 2, "0,2", False),
        ("1-3", 2, "1,3", True),
        ("1-3", 2, "0,4", False),
    ],
)
def test_success_needs_the_indexes_that_a_rule_names(
    indexes: str | None, count: int | None, done: str, holds: bool
) -> None:
    rule = SuccessPolicyRule(succeededIndexes=indexes, succeededCount=count)
    found = met(SuccessPolicy(rules=[rule]), Indexes.parse(done, 9), 9)
    assert found == ("Matched rules at index 0" if holds else None)
