"""Counts ended pods in a job's status, each exactly once even if the controller crashes.

First the status names the pods, then their finalizers go, then the names become numbers: each step
can be repeated, for either the name or the finalizer tells that it was done.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.batch_v1.job_types import JobCondition, JobStatus, UncountedTerminatedPods
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.batch.job_policies import judged
from kedge.controllers.batch.job_tally import (
    COMPLETE,
    JobOutcome,
    JobTally,
    has_failed,
    index_of,
    is_indexed,
    is_tracked,
)
from kedge.controllers.pod_state import is_leaving
from kedge.machinery.durations import format_time

MOST_UNCOUNTED: Final = 500
"""Pods that the status names at a time, so that it stays small."""


class AccountedPods(NamedTuple):
    """Pods that one status update counts."""

    status: JobStatus
    """The status that names the pods. Write it before anything else."""
    pods: list[Pod]
    """The pods whose finalizers to remove after that."""
    whole: bool
    """Whether no more pods wait to be counted."""


def counted(status: JobStatus, tracked: Collection[str]) -> JobStatus:
    """Return the status with counts in place of the names of pods without a finalizer."""
    names = status.uncountedTerminatedPods or UncountedTerminatedPods()
    succeeded = [uid for uid in names.succeeded if uid in tracked]
    failed = [uid for uid in names.failed if uid in tracked]
    return replace(
        status,
        succeeded=status.succeeded + len(names.succeeded) - len(succeeded),
        failed=status.failed + len(names.failed) - len(failed),
        uncountedTerminatedPods=UncountedTerminatedPods(succeeded=succeeded, failed=failed),
    )


def is_settled(status: JobStatus) -> bool:
    """Whether no pod waits to be counted."""
    names = status.uncountedTerminatedPods
    return names is None or not (names.succeeded or names.failed)


def entry(tally: JobTally, status: JobStatus, outcome: JobOutcome | None) -> AccountedPods:
    """Name the pods that have ended, or all of them if the job has."""
    names = status.uncountedTerminatedPods or UncountedTerminatedPods()
    succeeded, failed = list(names.succeeded), list(names.failed)
    new_indexes: set[int] = set()
    free: list[Pod] = []
    whole = True
    for pod in sorted(filter(is_tracked, tally.pods), key=lambda pod: index_of(pod) or 0):
        if not _may_go(tally, pod, outcome):
            continue
        free.append(pod)
        uid, index = pod.metadata.uid, index_of(pod)
        if pod.status.phase == "Succeeded" and uid not in tally.uncounted.failed:
            if not is_indexed(tally.job):
                if uid not in tally.uncounted.succeeded:
                    succeeded.append(uid)
            elif index is not None and index not in tally.counted_indexes:
                # An index is a name in itself.
                new_indexes.add(index)
        elif _counts_as_failed(tally, pod, outcome):
            failed.append(uid)
        if len(new_indexes) + len(succeeded) + len(failed) >= MOST_UNCOUNTED:
            whole = False
            break
    names = UncountedTerminatedPods(succeeded=succeeded, failed=failed)
    return AccountedPods(
        _with_indexes(tally, replace(status, uncountedTerminatedPods=names)), free, whole
    )


def _may_go(tally: JobTally, pod: Pod, outcome: JobOutcome | None) -> bool:
    """Whether the finalizer of a pod may be removed."""
    if outcome is not None or is_leaving(tally.job) or pod.status.phase == "Succeeded":
        return True
    if not has_failed(pod, tally.job):
        return False
    index = index_of(pod)
    if index is None or index not in tally.to_replace:
        return True
    return tally.to_replace[index].metadata.uid != pod.metadata.uid


def _counts_as_failed(tally: JobTally, pod: Pod, outcome: JobOutcome | None) -> bool:
    stopped = outcome is not None and not outcome.succeeded
    if not (stopped or has_failed(pod, tally.job)) or not tally.fits(pod):
        return False
    if pod.metadata.uid in tally.uncounted.failed:
        return False
    return judged(tally.job.spec.podFailurePolicy, pod).counts


def _with_indexes(tally: JobTally, status: JobStatus) -> JobStatus:
    if not is_indexed(tally.job):
        return status
    done, failed = tally.succeeded_indexes, tally.failed_indexes
    return replace(
        status,
        succeeded=len(done),
        completedIndexes=str(done),
        failedIndexes=None if failed is None else str(failed),
    )


def with_condition(
    status: JobStatus, type_: str, value: str, reason: str, message: str, now: datetime
) -> JobStatus:
    """The status with a condition; that something never was is no news."""
    stamp = format_time(now)
    new = JobCondition(
        type=type_,
        status=value,
        reason=reason,
        message=message,
        lastProbeTime=stamp,
        lastTransitionTime=stamp,
    )
    for i, known in enumerate(status.conditions):
        if known.type == type_:
            if (known.status, known.reason, known.message) == (value, reason, message):
                return status
            conditions = [*status.conditions[:i], new, *status.conditions[i + 1 :]]
            return replace(status, conditions=conditions)
    if value == "False":
        return status
    return replace(status, conditions=[*status.conditions, new])


def ending(status: JobStatus, outcome: JobOutcome, now: datetime) -> JobStatus:
    """Return the status of a job that ends with this outcome as soon as its pods are gone."""
    return with_condition(status, outcome.interim, "True", outcome.reason, outcome.message, now)


def ended(status: JobStatus, outcome: JobOutcome, now: datetime) -> JobStatus:
    status = with_condition(status, outcome.final, "True", outcome.reason, outcome.message, now)
    if outcome.final == COMPLETE:
        status = replace(status, completionTime=format_time(now))
    return status
