"""Pod failure policies and success policies of jobs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.api.batch_v1.job_types import (
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.controllers.batch.job_indexes import Indexes

FAIL_JOB: Final = "FailJob"
FAIL_INDEX: Final = "FailIndex"
IGNORE: Final = "Ignore"
COUNT: Final = "Count"


class FailureAction(NamedTuple):
    """The action of a pod failure policy."""

    action: str
    message: str = ""
    """Why the job fails, if it does."""

    @property
    def counts(self) -> bool:
        """Whether the failure is one of those there may be so many of."""
        return self.action != IGNORE


def judged(policy: PodFailurePolicy | None, pod: Pod) -> FailureAction:
    """Return the action of the first matching rule; without one the failure counts."""
    for i, rule in enumerate(policy.rules if policy is not None else ()):
        if (why := _match(rule, pod)) is not None:
            return FailureAction(rule.action, f"{why} matching {rule.action} rule at index {i}")
    return FailureAction(COUNT)


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str | None:
    """Return the part of the pod that a rule matches, as text."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.onExitCodes is not None:
        status = pod.status
        for each in (*status.containerStatuses, *status.initContainerStatuses):
            code = _exit_code(each)
            if code and _asked_for(rule.onExitCodes, each.name, code):
                return f"Container {each.name} for pod {name} failed with exit code {code}"
        return None
    asked = {(pattern.type, pattern.status) for pattern in rule.onPodConditions}
    for condition in pod.status.conditions:
        if (condition.type, condition.status) in asked:
            return f"Pod {name} has condition {condition.type}"
    return None


def _exit_code(status: ContainerStatus) -> int:
    ended = status.state.terminated
    return ended.exitCode if ended is not None else 0


def _asked_for(asked: PodFailurePolicyOnExitCodesRequirement, container: str, code: int) -> bool:
    if asked.containerName is not None and asked.containerName != container:
        return False
    return (code in asked.values) == (asked.operator == "In")


def met(policy: SuccessPolicy | None, succeeded: Indexes, completions: int) -> str | None:
    """Which rule says that the job has succeeded, in words; None if none does."""
    rules: Sequence[SuccessPolicyRule] = policy.rules if policy is not None else ()
    for i, rule in enumerate(rules):
        if succeeded and _holds(rule, succeeded, completions):
            return f"Matched rules at index {i}"
    return None


def _holds(rule: SuccessPolicyRule, succeeded: Indexes, completions: int) -> bool:
    if rule.succeededIndexes is None:
        return rule.succeededCount is not None and len(succeeded) >= rule.succeededCount
    wanted = Indexes.parse(rule.succeededIndexes, completions)
    if not wanted:
        return False
    done = wanted.common(succeeded)
    return done == len(wanted) or (rule.succeededCount is not None and done >= rule.succeededCount)
