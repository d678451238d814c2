"""The types of a Job."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import field

from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import SET, Int32, LabelSelector, Model, Object, Time, merged

INDEXED = "Indexed"
NON_INDEXED = "NonIndexed"


class PodFailurePolicyOnExitCodesRequirement(Model):
    """Matches pods by how a container ended."""

    __required__ = ("operator", "values")

    containerName: str | None = None
    """Only this container counts; without it any does."""
    operator: str = ""
    """In or NotIn."""
    values: Annotated[Sequence[Int32], SET] = ()
    """Exit codes, in rising order."""


class PodFailurePolicyOnPodConditionsPattern(Model):
    """Matches pods by a condition."""

    __required__ = ("type",)

    type: str = ""
    """The condition's type."""
    status: str = ""
    """The condition's status. Default True."""


class PodFailurePolicyRule(Model):
    """The action for one kind of failure."""

    __required__ = ("action",)

    action: str = ""
    """FailJob, FailIndex, Ignore or Count."""
    onExitCodes: PodFailurePolicyOnExitCodesRequirement | None = None
    """Matches a failure by exit codes."""
    onPodConditions: Sequence[PodFailurePolicyOnPodConditionsPattern] = ()
    """Matches a failure by conditions of the pod."""


class PodFailurePolicy(Model):
    """How failures of pods are judged. The first rule that matches decides."""

    __required__ = ("rules",)

    rules: Sequence[PodFailurePolicyRule] = ()
    """The rules, in order."""


class SuccessPolicyRule(Model):
    """One way in which an indexed job succeeds early."""

    succeededIndexes: str | None = None
    """Indexes that must have succeeded, such as `0,2-5`."""
    succeededCount: Int32 | None = None
    """How many indexes must have succeeded."""


class SuccessPolicy(Model):
    """When an indexed job succeeds though not all its indexes have."""

    __required__ = ("rules",)

    rules: Sequence[SuccessPolicyRule] = ()
    """The rules; one that holds is enough."""


class JobSpec(Model):
    """The work that is wanted."""

    __required__ = ("template",)

    parallelism: Int32 | None = None
    """How many pods may run at a time. Default 1."""
    completions: Int32 | None = None
    """How many pods must succeed; without it one that succeeds ends the job."""
    activeDeadlineSeconds: int | None = None
    """How long the job may take, counted from its start."""
    podFailurePolicy: PodFailurePolicy | None = None
    """How failures of pods are judged."""
    successPolicy: SuccessPolicy | None = None
    """When the job may succeed early."""
    backoffLimit: Int32 | None = None
    """How many failures there may be. Default 6."""
    backoffLimitPerIndex: Int32 | None = None
    """How many failures there may be per index."""
    maxFailedIndexes: Int32 | None = None
    """How many indexes may fail before the whole job does."""
    selector: LabelSelector | None = None
    """Labels by which the pods are known; normally made by the server."""
    manualSelector: bool | None = None
    """Whether the writer answers for the selector. Default false."""
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of the pods."""
    ttlSecondsAfterFinished: Int32 | None = None
    """How long the job is kept once it has finished; without it, until deleted."""
    completionMode: str | None = None
    """NonIndexed (pods are alike) or Indexed (each has a number). Default NonIndexed."""
    suspend: bool | None = None
    """Whether no pods may run for now. Default false."""
    podReplacementPolicy: str | None = None
    """When a pod that ends is replaced: TerminatingOrFailed or Failed."""
    managedBy: str | None = None
    """The controller in charge, if not the built-in one."""


class UncountedTerminatedPods(Model):
    """Pods that have ended and are not in the counters yet."""

    succeeded: Annotated[Sequence[str], SET] = ()
    """Uids of pods that succeeded."""
    failed: Annotated[Sequence[str], SET] = ()
    """Uids of pods that failed."""


class JobCondition(Model):
    """One aspect of a job's state."""

    __required__ = ("type", "status")

    type: str = ""
    """Complete, Failed, Suspended, FailureTarget or SuccessCriteriaMet."""
    status: str = ""
    """True, False or Unknown."""
    lastProbeTime: Time = ""
    """When the condition was last looked at."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class JobStatus(Model):
    """How the work fares."""

    conditions: Annotated[Sequence[JobCondition], merged("type")] = ()
    """Aspects of its state."""
    startTime: Time = ""
    """When the job began, or last began again."""
    completionTime: Time = ""
    """When the job succeeded."""
    active: Int32 = 0
    """How many pods wait or run."""
    succeeded: Int32 = 0
    """How many pods have succeeded."""
    failed: Int32 = 0
    """How many pods have failed."""
    terminating: Int32 | None = None
    """How many pods are about to end."""
    completedIndexes: str = ""
    """Indexes that have succeeded, such as `0,2-5`."""
    failedIndexes: str | None = None
    """Indexes that have failed."""
    uncountedTerminatedPods: UncountedTerminatedPods | None = None
    """Pods that ended and are not in the counters."""
    ready: Int32 | None = None
    """How many pods are ready."""


class Job(Object):
    """Runs pods until a number of them have succeeded."""

    spec: JobSpec = field(default_factory=JobSpec)
    """The work that is wanted."""
    status: JobStatus = field(default_factory=JobStatus)
    """How it fares."""


def holds(job: Job, condition: str) -> bool:
    """Whether a condition of the job is True."""
    return any(each.type == condition and each.status == "True" for each in job.status.conditions)


def is_finished(job: Job) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")
