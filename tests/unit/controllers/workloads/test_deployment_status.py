from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.apps_v1.deployment import (
    Deployment,
    DeploymentCondition,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    RollingUpdateDeployment,
)
from kedge.api.apps_v1.replica_set import (
    ReplicaSet,
    ReplicaSetCondition,
    ReplicaSetSpec,
    ReplicaSetStatus,
)
from kedge.api.model import ObjectMeta
from kedge.controllers.workloads import deployment_status as progress
from kedge.controllers.workloads.rollout import DeploymentReplicaSets
from kedge.machinery.durations import format_time

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LONG_AGO = format_time(NOW - timedelta(hours=1))


def deployment(
    replicas: int = 4,
    *,
    reason: str = "",
    said: str = "True",
    ago: float = 0,
    counts: tuple[int, int, int] = (0, 0, 0),
    **spec: Any,
) -> Deployment:
    """One that said why it progresses so many seconds ago, with replicas, updated, available."""
    stamp = format_time(NOW - timedelta(seconds=ago))
    conditions = []
    if reason:
        conditions = [
            DeploymentCondition(
                type="Progressing",
                status=said,
                reason=reason,
                lastUpdateTime=stamp,
                lastTransitionTime=LONG_AGO,
            )
        ]
    pace = RollingUpdateDeployment(maxSurge=1, maxUnavailable=1)
    everything = {"progressDeadlineSeconds": 60, **spec}
    status = DeploymentStatus(
        replicas=counts[0],
        updatedReplicas=counts[1],
        readyReplicas=counts[2],
        availableReplicas=counts[2],
        conditions=conditions,
    )
    return Deployment(
        metadata=ObjectMeta(name="web", generation=2),
        spec=DeploymentSpec(
            replicas=replicas,
            strategy=DeploymentStrategy(type="RollingUpdate", rollingUpdate=pace),
            **everything,
        ),
        status=status,
    )


def replica_set(name: str, replicas: int, available: int, **status: Any) -> ReplicaSet:
    found = ReplicaSetStatus(
        replicas=replicas,
        readyReplicas=available,
        availableReplicas=available,
        observedGeneration=1,
        **{"terminatingReplicas": 0, **status},
    )
    meta = ObjectMeta(name=name)
    return ReplicaSet(metadata=meta, spec=ReplicaSetSpec(replicas=replicas), status=found)


def said(status: DeploymentStatus, type_: str = "Progressing") -> tuple[str, str, str]:
    found = progress.condition(status, type_)
    assert found is not None
    return found.status, found.reason, found.message


def test_counts_are_sums_and_the_new_set_is_counted_apart() -> None:
    sets = DeploymentReplicaSets(
        replica_set("new", 2, 1), [replica_set("old", 3, 2, terminatingReplicas=1)]
    )
    status = progress.counted(deployment(), sets, NOW)
    assert (status.replicas, status.updatedReplicas) == (5, 2)
    assert (status.readyReplicas, status.availableReplicas) == (3, 3)
    assert (status.unavailableReplicas, status.terminatingReplicas) == (2, 1)
    assert status.observedGeneration == 2


def test_terminating_pods_are_not_told_while_a_set_does_not_count_them() -> None:
    silent = replica_set("old", 1, 1, terminatingReplicas=None)
    assert (
        progress.counted(
            deployment(), DeploymentReplicaSets(None, [silent]), NOW
        ).terminatingReplicas
        is None
    )
    unseen = replace(silent, status=ReplicaSetStatus())
    assert (
        progress.counted(deployment(), DeploymentReplicaSets(unseen), NOW).terminatingReplicas == 0
    )


@pytest.mark.parametrize(
    ("available", "expected"),
    [(3, ("True", "MinimumReplicasAvailable")), (2, ("False", "MinimumReplicasUnavailable"))],
)
def test_available_is_what_keeps_within_max_unavailable(
    available: int, expected: tuple[str, str]
) -> None:
    sets = DeploymentReplicaSets(replica_set("new", 4, available))
    assert said(progress.counted(deployment(), sets, NOW), "Available")[:2] == expected


def test_rollout_that_is_through_is_said_to_be() -> None:
    made = deployment(reason="ReplicaSetUpdated", ago=500)
    sets = DeploymentReplicaSets(replica_set("new", 4, 4), [replica_set("old", 0, 0)])
    message = 'ReplicaSet "new" has successfully progressed.'
    assert said(progress.rolled(made, sets, NOW)) == ("True", "NewReplicaSetAvailable", message)


def test_progress_renews_the_deadline_but_not_the_transition() -> None:
    made = deployment(reason="ReplicaSetUpdated", ago=50, counts=(4, 1, 3))
    status = progress.rolled(
        made, DeploymentReplicaSets(replica_set("new", 2, 1), [replica_set("old", 3, 3)]), NOW
    )
    assert said(status)[1:] == ("ReplicaSetUpdated", 'ReplicaSet "new" is progressing.')
    found = progress.condition(status, "Progressing")
    assert found is not None
    assert (found.lastUpdateTime, found.lastTransitionTime) == (format_time(NOW), LONG_AGO)


@pytest.mark.parametrize(
    "reason", ["ReplicaSetUpdated", "NewReplicaSetCreated", "DeploymentResumed"]
)
def test_rollout_that_stands_still_times_out(reason: str) -> None:
    sets = DeploymentReplicaSets(replica_set("new", 1, 0), [replica_set("old", 4, 3)])
    counts = (5, 1, 3)
    patient = deployment(reason=reason, ago=60, counts=counts)
    assert said(progress.rolled(patient, sets, NOW))[1] == reason
    late = deployment(reason=reason, ago=61, counts=counts)
    message = 'ReplicaSet "new" has timed out progressing.'
    expected = ("False", "ProgressDeadlineExceeded", message)
    assert said(progress.rolled(late, sets, NOW)) == expected


def test_rollout_that_was_through_does_not_time_out_because_a_pod_is_lost() -> None:
    made = deployment(reason="NewReplicaSetAvailable", ago=9999, counts=(4, 4, 4))
    status = progress.rolled(made, DeploymentReplicaSets(replica_set("new", 4, 1)), NOW)
    assert said(status)[:2] == ("True", "NewReplicaSetAvailable")
    assert said(status, "Available")[0] == "False"


def test_without_a_deadline_nothing_is_said_of_progress() -> None:
    made = deployment(reason="ReplicaSetUpdated", progressDeadlineSeconds=2**31 - 1)
    status = progress.rolled(made, DeploymentReplicaSets(replica_set("new", 1, 0)), NOW)
    assert progress.condition(status, "Progressing") is None


def test_failure_of_the_new_set_is_heard_first() -> None:
    def failing(name: str) -> ReplicaSet:
        condition = ReplicaSetCondition(
            type="ReplicaFailure", status="True", reason="FailedCreate", message=name
        )
        return replica_set(name, 1, 0, conditions=[condition])

    both = progress.rolled(
        deployment(), DeploymentReplicaSets(failing("new"), [failing("old")]), NOW
    )
    assert said(both, "ReplicaFailure")[2] == "new"
    old = progress.rolled(
        deployment(), DeploymentReplicaSets(replica_set("new", 1, 0), [failing("old")]), NOW
    )
    assert said(old, "ReplicaFailure")[2] == "old"


@pytest.mark.parametrize(
    ("paused", "reason", "expected"),
    [
        (True, "ReplicaSetUpdated", "DeploymentPaused"),
        (True, "", "DeploymentPaused"),
        (True, "DeploymentPaused", None),
        (False, "DeploymentPaused", "DeploymentResumed"),
        (False, "ReplicaSetUpdated", None),
        (True, "ProgressDeadlineExceeded", None),
    ],
)
def test_pausing_and_resuming_is_said_once(paused: bool, reason: str, expected: str | None) -> None:
    found = progress.pausing(deployment(reason=reason, paused=paused), NOW)
    assert (found.reason if found else None) == expected
    assert found is None or found.status == "Unknown"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (deployment(reason="ReplicaSetUpdated", ago=20), 41),
        (deployment(reason="ReplicaSetUpdated", ago=200), 1),
        (deployment(reason="ProgressDeadlineExceeded", ago=20), None),
        (deployment(), None),
    ],
)
def test_next_look_is_due_just_after_the_deadline(made: Deployment, expected: float | None) -> None:
    assert progress.deadline_in(made, made.status, NOW) == expected
