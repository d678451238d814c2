"""The status of a Deployment: counts, availability and progress. Pure functions."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.deployment import Deployment, DeploymentCondition, DeploymentStatus
from kedge.api.apps_v1.replica_set import ReplicaSet
from kedge.controllers.workloads.replicas import REPLICA_FAILURE
from kedge.controllers.workloads.rollout import (
    DeploymentReplicaSets,
    desired_replicas,
    total,
    unavailable,
)
from kedge.machinery.durations import format_time, moved, parse_time

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"

CREATED: Final = "NewReplicaSetCreated"
CREATE_FAILED: Final = "ReplicaSetCreateError"
FOUND: Final = "FoundNewReplicaSet"
UPDATED: Final = "ReplicaSetUpdated"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
RESUMED: Final = "DeploymentResumed"

NO_DEADLINE: Final = 2**31 - 1
SLACK: Final = 1.0
"""Seconds after a deadline at which it is looked whether it has passed; stamps are that coarse."""


# Conditions.


def condition(status: DeploymentStatus, type_: str) -> DeploymentCondition | None:
    return next((each for each in status.conditions if each.type == type_), None)


def without(status: DeploymentStatus, type_: str) -> DeploymentStatus:
    if condition(status, type_) is None:
        return status
    return replace(status, conditions=[each for each in status.conditions if each.type != type_])


def saying(status: DeploymentStatus, said: DeploymentCondition) -> DeploymentStatus:
    """The status with a condition; one that says the same for the same reason stays as it is."""
    known = condition(status, said.type)
    if known is not None and known.status == said.status:
        if known.reason == said.reason:
            return status
        said = replace(said, lastTransitionTime=known.lastTransitionTime)
    return replace(status, conditions=[*without(status, said.type).conditions, said])


def _condition(
    type_: str, status: str, reason: str, message: str, now: datetime
) -> DeploymentCondition:
    stamp = format_time(now)
    return DeploymentCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        lastUpdateTime=stamp,
        lastTransitionTime=stamp,
    )


def progressing(status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    return _condition(PROGRESSING, status, reason, message, now)


def has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progressDeadlineSeconds not in (None, NO_DEADLINE)


def pausing(deployment: Deployment, now: datetime) -> DeploymentCondition | None:
    """Return the Progressing condition after a pause or resume; None if it stays.

    A rollout that is resumed has its whole deadline before it, however long the pause was.
    """
    known = condition(deployment.status, PROGRESSING)
    reason = known.reason if known else ""
    if not has_deadline(deployment) or reason == TIMED_OUT:
        return None
    if deployment.spec.paused and reason != PAUSED:
        return progressing("Unknown", PAUSED, "Deployment is paused", now)
    if not deployment.spec.paused and reason == PAUSED:
        return progressing("Unknown", RESUMED, "Deployment is resumed", now)
    return None


# Counts.


def counted(deployment: Deployment, sets: DeploymentReplicaSets, now: datetime) -> DeploymentStatus:
    """The status with its pods counted anew, and whether enough of them are available."""
    available = sum(each.status.availableReplicas for each in sets.all)
    new = sets.new
    status = replace(
        deployment.status,
        observedGeneration=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in sets.all),
        updatedReplicas=new.status.replicas if new is not None else 0,
        readyReplicas=sum(each.status.readyReplicas for each in sets.all),
        availableReplicas=available,
        unavailableReplicas=max(total(sets.all) - available, 0),
        terminatingReplicas=_terminating(sets.all),
    )
    return saying(status, _availability(deployment, available, now))


def _terminating(sets: Iterable[ReplicaSet]) -> int | None:
    """How many pods are about to end; None if a ReplicaSet that was looked at does not say."""
    counts = [each.status.terminatingReplicas for each in sets if each.status.observedGeneration]
    return None if None in counts else sum(each or 0 for each in counts)


def _availability(deployment: Deployment, available: int, now: datetime) -> DeploymentCondition:
    if available >= desired_replicas(deployment) - unavailable(deployment):
        message = "Deployment has minimum availability."
        return _condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    message = "Deployment does not have minimum availability."
    return _condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)


# Progress.


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether all pods that are wanted are new and available, and no others are left."""
    counts = status.updatedReplicas, status.replicas, status.availableReplicas
    if status.observedGeneration < deployment.metadata.generation:
        return False
    return all(count == desired_replicas(deployment) for count in counts)


def rolled(deployment: Deployment, sets: DeploymentReplicaSets, now: datetime) -> DeploymentStatus:
    """The status in the course of a rollout: counts, progress, and what failed."""
    status = counted(deployment, sets, now)
    if has_deadline(deployment):
        status = _estimated(deployment, sets, status, now)
    else:
        status = without(status, PROGRESSING)
    failure = _failure(sets)
    return saying(status, failure) if failure else without(status, REPLICA_FAILURE)


def _estimated(
    deployment: Deployment, sets: DeploymentReplicaSets, status: DeploymentStatus, now: datetime
) -> DeploymentStatus:
    """The status with an estimate of the progress that was made since it was last written."""
    known = condition(deployment.status, PROGRESSING)
    settled = known is not None and known.reason == COMPLETE
    if settled and status.replicas == status.updatedReplicas:
        return status
    who = _subject(deployment, sets)
    if is_complete(deployment, status):
        message = f"{who} has successfully progressed."
        return saying(status, progressing("True", COMPLETE, message, now))
    if _is_progress(deployment.status, status):
        said = progressing("True", UPDATED, f"{who} is progressing.", now)
        if known is not None and known.status == "True":
            said = replace(said, lastTransitionTime=known.lastTransitionTime)
        # Said again even for the same reason: the deadline counts from the latest progress.
        return saying(without(status, PROGRESSING), said)
    if _has_timed_out(deployment, known, now):
        message = f"{who} has timed out progressing."
        return saying(status, progressing("False", TIMED_OUT, message, now))
    return status


def _subject(deployment: Deployment, sets: DeploymentReplicaSets) -> str:
    if sets.new is not None:
        return f'ReplicaSet "{sets.new.metadata.name}"'
    return f'Deployment "{deployment.metadata.name}"'


def _is_progress(before: DeploymentStatus, now: DeploymentStatus) -> bool:
    return (
        now.updatedReplicas > before.updatedReplicas
        or now.replicas - now.updatedReplicas < before.replicas - before.updatedReplicas
        or now.readyReplicas > before.readyReplicas
        or now.availableReplicas > before.availableReplicas
    )


def _has_timed_out(
    deployment: Deployment, known: DeploymentCondition | None, now: datetime
) -> bool:
    if known is None or known.reason == COMPLETE:
        return False
    return known.reason == TIMED_OUT or _deadline(deployment, known) < now


def _deadline(deployment: Deployment, known: DeploymentCondition) -> datetime:
    seconds = deployment.spec.progressDeadlineSeconds or 0
    return moved(parse_time(known.lastUpdateTime), seconds)


def deadline_in(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float | None:
    """Seconds until a rollout that makes no progress will have timed out; None if it cannot."""
    known = condition(status, PROGRESSING)
    if known is None or not has_deadline(deployment):
        return None
    if known.reason == TIMED_OUT or is_complete(deployment, status):
        return None
    return max((_deadline(deployment, known) - now).total_seconds(), 0.0) + SLACK


def _failure(sets: DeploymentReplicaSets) -> DeploymentCondition | None:
    """Return the ReplicaFailure condition of a ReplicaSet, the new one first."""
    heard: Sequence[ReplicaSet] = sets.all if sets.new is None else [sets.new, *sets.old]
    for each in (said for set_ in heard for said in set_.status.conditions):
        if each.type == REPLICA_FAILURE:
            return DeploymentCondition(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                lastUpdateTime=each.lastTransitionTime,
                lastTransitionTime=each.lastTransitionTime,
            )
    return None
