"""How long a job waits after failures."""

from datetime import UTC, datetime, timedelta

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodCondition,
    PodStatus,
)
from kedge.api.model import ObjectMeta
from kedge.controllers.batch.job_backoff import JobBackoff, ended_at

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(second: int) -> str:
    return (NOON + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(ended: int) -> Pod:
    state = ContainerState(terminated=ContainerStateTerminated(finishedAt=at(ended)))
    return Pod(status=PodStatus(containerStatuses=[ContainerStatus(name="main", state=state)]))


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 0), (1, 10), (2, 20), (5, 160), (6, 320), (7, 600), (500, 600)]
)
def test_wait_doubles_up_to_ten_minutes(failures: int, wait: float) -> None:
    assert JobBackoff(failures, NOON).remaining(NOON) == wait


def test_time_that_has_passed_is_taken_off() -> None:
    assert JobBackoff(1, NOON).remaining(NOON + timedelta(seconds=4)) == 6
    assert JobBackoff(1, NOON).remaining(NOON + timedelta(seconds=11)) == 0


def test_failures_add_up() -> None:
    assert JobBackoff(2, NOON).after([], [pod(5), pod(3)]) == JobBackoff(
        4, NOON + timedelta(seconds=5)
    )


def test_failures_before_a_success_are_forgiven() -> None:
    assert JobBackoff(2, NOON).after([pod(4)], [pod(3), pod(5)]) == JobBackoff(
        1, NOON + timedelta(seconds=5)
    )
    assert JobBackoff(2, NOON).after([pod(9)], [pod(3)]) == JobBackoff()


def test_pod_ended_when_its_last_container_did() -> None:
    states = [
        ContainerState(terminated=ContainerStateTerminated(finishedAt=at(second)))
        for second in (2, 7)
    ]
    status = PodStatus(containerStatuses=[ContainerStatus(state=state) for state in states])
    assert ended_at(Pod(status=status)) == NOON + timedelta(seconds=7)


def test_pod_whose_containers_never_told_ended_when_it_was_no_longer_ready() -> None:
    ready = PodCondition(type="Ready", status="False", lastTransitionTime=at(3))
    assert ended_at(Pod(status=PodStatus(conditions=[ready]))) == NOON + timedelta(seconds=3)


def test_deleted_pod_ended_when_it_was_deleted() -> None:
    meta = ObjectMeta(
        creationTimestamp=at(0), deletionTimestamp=at(40), deletionGracePeriodSeconds=30
    )
    assert ended_at(Pod(metadata=meta)) == NOON + timedelta(seconds=10)
