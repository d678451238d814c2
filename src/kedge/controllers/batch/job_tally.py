"""JobTally: from a job and its pods to its outcome, or to pods to create or delete."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kedge.api.batch_v1.job_types import INDEXED, Job, UncountedTerminatedPods
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.batch.job_backoff import JobBackoff, ended_at
from kedge.controllers.batch.job_indexes import Indexes
from kedge.controllers.batch.job_policies import FAIL_INDEX, FAIL_JOB, judged, met
from kedge.controllers.pod_state import ENDED, expendable_first, is_active, is_leaving, is_ready
from kedge.machinery.durations import parse_time

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
"""On a pod that is not in the counters of its job yet."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS_MET: Final = "SuccessCriteriaMet"
FAILURE_TARGET: Final = "FailureTarget"
SUSPENDED: Final = "Suspended"


class JobOutcome(NamedTuple):
    """The final condition of a job, or the one that announces it."""

    succeeded: bool
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition that says so while there are pods left."""
        return SUCCESS_MET if self.succeeded else FAILURE_TARGET

    @property
    def final(self) -> str:
        return COMPLETE if self.succeeded else FAILED


REACHED: Final = JobOutcome(True, "CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF_EXCEEDED: Final = JobOutcome(
    False, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
)
DEADLINE_EXCEEDED: Final = JobOutcome(
    False, "DeadlineExceeded", "Job was active longer than specified deadline"
)
TOO_MANY_FAILED_INDEXES: Final = JobOutcome(
    False,
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)
FAILED_INDEXES: Final = JobOutcome(False, "FailedIndexes", "Job has failed indexes")


def is_indexed(job: Job) -> bool:
    return job.spec.completionMode == INDEXED


def is_tracked(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers


def waits_for_failure(job: Job) -> bool:
    """Whether a pod that is leaving is replaced only when it has left."""
    return job.spec.podReplacementPolicy == "Failed" or job.spec.podFailurePolicy is not None


def has_failed(pod: Pod, job: Job) -> bool:
    """Whether a pod counts as failed; one that is deleted may never get to say so itself."""
    if pod.status.phase == "Failed":
        return True
    if waits_for_failure(job):
        return False
    return is_leaving(pod) and pod.status.phase != "Succeeded"


def is_terminating(pod: Pod) -> bool:
    return is_leaving(pod) and pod.status.phase not in ENDED


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdecimal() and len(text) < 11 else None


def index_failures(pod: Pod) -> int:
    """How often the index of a pod had failed before it."""
    return _annotated(pod, INDEX_FAILURES)


def index_ignored(pod: Pod) -> int:
    """How often it had failed in a way that does not count."""
    return _annotated(pod, INDEX_IGNORED)


def _annotated(pod: Pod, key: str) -> int:
    text = pod.metadata.annotations.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 11 else 0


class JobTally(msgspec.Struct, frozen=True, dict=True):
    """A job and its pods at one moment."""

    job: Job
    pods: Sequence[Pod]

    @cached_property
    def active(self) -> list[Pod]:
        return list(filter(is_active, self.pods))

    @cached_property
    def ready(self) -> int:
        return sum(map(is_ready, self.active))

    @cached_property
    def terminating(self) -> list[Pod]:
        return list(filter(is_terminating, self.pods))

    @cached_property
    def uncounted(self) -> UncountedTerminatedPods:
        return self.job.status.uncountedTerminatedPods or UncountedTerminatedPods()

    @property
    def completions(self) -> int:
        return self.job.spec.completions or 0

    def fits(self, pod: Pod) -> bool:
        """Whether a pod has an index that the job has, if it is about indexes at all."""
        if not is_indexed(self.job):
            return True
        index = index_of(pod)
        return index is not None and index < self.completions

    @cached_property
    def new_succeeded(self) -> list[Pod]:
        """Pods that succeeded and stand nowhere in the status yet."""
        known = {*self.uncounted.succeeded, *self.uncounted.failed}
        return [pod for pod in self._fresh(known) if pod.status.phase == "Succeeded"]

    @cached_property
    def new_failed(self) -> list[Pod]:
        fresh = self._fresh(self.uncounted.failed)
        return [pod for pod in fresh if has_failed(pod, self.job)]

    def _fresh(self, known: Collection[str]) -> list[Pod]:
        known = set(known)
        return [
            pod
            for pod in self.pods
            if is_tracked(pod) and pod.metadata.uid not in known and self.fits(pod)
        ]

    @cached_property
    def succeeded(self) -> int:
        if is_indexed(self.job):
            return len(self.succeeded_indexes)
        uncounted = len(self.uncounted.succeeded)
        return self.job.status.succeeded + uncounted + len(self.new_succeeded)

    @cached_property
    def failed(self) -> int:
        policy = self.job.spec.podFailurePolicy
        new = sum(judged(policy, pod).counts for pod in self.new_failed)
        return self.job.status.failed + len(self.uncounted.failed) + new

    # Indexes.

    @cached_property
    def counted_indexes(self) -> Indexes:
        """The indexes that had succeeded before."""
        return Indexes.parse(self.job.status.completedIndexes, self.completions)

    @cached_property
    def succeeded_indexes(self) -> Indexes:
        new = [
            pod
            for pod in self.pods
            if pod.status.phase == "Succeeded" and is_tracked(pod) and self.fits(pod)
        ]
        return self.counted_indexes | _indexes(new)

    @cached_property
    def failed_indexes(self) -> Indexes | None:
        """None unless indexes can fail one by one."""
        limit = self.job.spec.backoffLimitPerIndex
        if not is_indexed(self.job) or limit is None:
            return None
        before = Indexes.parse(self.job.status.failedIndexes or "", self.completions)
        ended = (pod for pod in self.pods if is_tracked(pod) and self.fits(pod))
        # An index never fails and succeeds, whichever pod ends last.
        given_up = Indexes.of(
            index
            for pod in ended
            if self._fails_index(pod, limit)
            and (index := index_of(pod)) is not None
            and index not in self.succeeded_indexes
        )
        return before | given_up

    def _fails_index(self, pod: Pod, limit: int) -> bool:
        if not has_failed(pod, self.job):
            return False
        judgement = judged(self.job.spec.podFailurePolicy, pod)
        if judgement.action == FAIL_INDEX:
            return True
        return judgement.counts and index_failures(pod) >= limit

    @cached_property
    def to_replace(self) -> Mapping[int, Pod]:
        """By index, the failed pod that stays until another takes its place.

        The new pod carries the number of failures of its index: it is the only record of them.
        """
        latest: dict[int, Pod] = {}
        if self.failed_indexes is None:
            return latest
        settled = self.succeeded_indexes | self.failed_indexes | _indexes(self.active)
        for pod in self._fresh(()):
            index = index_of(pod)
            if index is None or index in settled or not has_failed(pod, self.job):
                continue
            if index not in latest or _failed_later(pod, latest[index]):
                latest[index] = pod
        return latest

    # Decisions.

    def outcome(self, now: datetime) -> JobOutcome | None:
        """How the job ends, for any reason but that it has enough successes."""
        return self._decided() or self._failure(now) or self._index_outcome()

    def _decided(self) -> JobOutcome | None:
        """The outcome that an earlier reconciliation recorded."""
        for type_ in (SUCCESS_MET, FAILURE_TARGET):
            for each in self.job.status.conditions:
                if each.type == type_ and each.status == "True":
                    return JobOutcome(type_ == SUCCESS_MET, each.reason, each.message)
        return None

    def _failure(self, now: datetime) -> JobOutcome | None:
        spec = self.job.spec
        if spec.podFailurePolicy is not None:
            for pod in self.pods:
                if not has_failed(pod, self.job):
                    continue
                judgement = judged(spec.podFailurePolicy, pod)
                if judgement.action == FAIL_JOB:
                    return JobOutcome(False, "PodFailurePolicy", judgement.message)
        if self.failed > (spec.backoffLimit or 0) or self._restarted_too_often():
            return BACKOFF_EXCEEDED
        left = deadline_in(self.job, now)
        return DEADLINE_EXCEEDED if left is not None and left <= 0 else None

    def _restarted_too_often(self) -> bool:
        """Containers that are restarted in place count as if pods had been replaced."""
        if self.job.spec.template.spec.restartPolicy != "OnFailure":
            return False
        restarts = sum(
            status.restartCount
            for pod in self.pods
            if pod.status.phase in ("Running", "Pending")
            for status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
        )
        return restarts >= max(self.job.spec.backoffLimit or 0, 1)

    def _index_outcome(self) -> JobOutcome | None:
        if not is_indexed(self.job):
            return None
        spec, failed = self.job.spec, self.failed_indexes
        if failed:
            if spec.maxFailedIndexes is not None and len(failed) > spec.maxFailedIndexes:
                return TOO_MANY_FAILED_INDEXES
            if len(failed) + len(self.succeeded_indexes) >= self.completions:
                return FAILED_INDEXES
        if rule := met(spec.successPolicy, self.succeeded_indexes, self.completions):
            return JobOutcome(True, "SuccessPolicy", rule)
        return None

    def is_complete(self, active: int) -> bool:
        """Whether enough pods have succeeded and none is left."""
        if active:
            return False
        if self.job.spec.completions is None:
            return self.succeeded > 0
        return self.succeeded >= self.job.spec.completions

    @property
    def wanted(self) -> int:
        """How many pods should be active."""
        spec = self.job.spec
        if spec.suspend:
            return 0
        most = spec.parallelism or 0
        if spec.completions is None:
            # The first success ends the job; running pods are not stopped.
            return len(self.active) if self.succeeded else most
        return max(0, min(spec.completions - self.succeeded, most))

    def surplus(self, now: datetime) -> list[Pod]:
        """Pods to delete: those whose index is wrong or taken, and then as many as are too many."""
        # The most expendable pod goes first, so that the better of two pods with one index stays.
        expendable = sorted(self.active, key=lambda pod: expendable_first(pod, {}, now))
        rejected, good = self._rejected(expendable) if is_indexed(self.job) else ([], expendable)
        excess = len(self.active) - self.wanted - len(rejected)
        return rejected + good[: max(excess, 0)]

    def _rejected(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        holders = Counter(index_of(pod) for pod in pods)
        rejected, good = [], []
        for pod in pods:
            index = index_of(pod)
            if not self.fits(pod) or holders[index] > 1:
                holders[index] -= 1
                rejected.append(pod)
            else:
                good.append(pod)
        return rejected, good

    @property
    def shortage(self) -> int:
        """How many pods are too few."""
        held_back = len(self.terminating) if waits_for_failure(self.job) else 0
        return max(0, self.wanted - held_back - len(self.active))

    def free_indexes(self, count: int) -> list[int]:
        """The lowest indexes that want a pod."""
        busy = self.succeeded_indexes | _indexes(self.active)
        if waits_for_failure(self.job):
            busy |= _indexes(self.terminating)
        if self.failed_indexes is not None:
            busy |= self.failed_indexes
        free = busy.absent(self.completions)
        return [index for _, index in zip(range(count), free, strict=False)]

    def index_remaining(self, index: int, now: datetime) -> float:
        """Seconds for which no pod is to be made for an index."""
        before = self.to_replace.get(index)
        if before is None:
            return 0.0
        failures = index_failures(before) + index_ignored(before) + 1
        return JobBackoff(failures, ended_at(before)).remaining(now)


def deadline_in(job: Job, now: datetime) -> float | None:
    """Seconds until a job has taken too long; None if it has all the time."""
    limit, start = job.spec.activeDeadlineSeconds, job.status.startTime
    if limit is None or not start or job.spec.suspend:
        return None
    return limit - (now - parse_time(start)).total_seconds()


def _indexes(pods: Sequence[Pod]) -> Indexes:
    return Indexes.of(index for pod in pods if (index := index_of(pod)) is not None)


def _failed_later(pod: Pod, other: Pod) -> bool:
    if index_failures(other) + index_ignored(other) > index_failures(pod) + index_ignored(pod):
        return False
    return ended_at(pod) >= ended_at(other)
