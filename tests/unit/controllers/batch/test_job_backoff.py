"""How long a job waits after failures."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
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
    return Pod(status=PodStatus(containerStatuses=[container("main", ended)]))


def container(name: str, ended: int | None) -> ContainerStatus:
    """A container that ended, or one that has not."""
    if ended is None:
        return ContainerStatus(name=name)
    terminated = ContainerStateTerminated(finishedAt=at(ended))
    return ContainerStatus(name=name, state=ContainerState(terminated=terminated))


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
    assert JobBackoff(2, NOON).after([pod(9)], [pod(9)]) == JobBackoff()


def test_the_last_of_several_successes_forgives() -> None:
    assert JobBackoff(2, NOON).after([pod(1), pod(6), pod(2)], [pod(4), pod(7)]) == JobBackoff(
        1, NOON + timedelta(seconds=7)
    )


def test_nothing_new_changes_nothing() -> None:
    assert JobBackoff(2, NOON).after([], []) == JobBackoff(2, NOON)


CREATED = ObjectMeta(creationTimestamp=at(1))
NOT_READY = PodCondition(type="Ready", status="False", lastTransitionTime=at(3))
PROXY = Container(name="proxy", restartPolicy="Always")
SETUP = Container(name="setup")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (PodStatus(containerStatuses=[container("a", 2), container("b", 7)]), 7),
        (PodStatus(containerStatuses=[container("a", 7), container("b", None)]), 1),
        (
            PodStatus(
                containerStatuses=[container("a", 2)],
                initContainerStatuses=[container("proxy", 9), container("setup", 50)],
            ),
            9,
        ),
        (
            PodStatus(
                containerStatuses=[container("a", 2)],
                initContainerStatuses=[container("proxy", None)],
                conditions=[NOT_READY],
            ),
            3,
        ),
        (PodStatus(initContainerStatuses=[container("setup", 50)]), 1),
        (PodStatus(conditions=[NOT_READY]), 3),
        (PodStatus(conditions=[replace(NOT_READY, lastTransitionTime="")]), 1),
        (PodStatus(conditions=[replace(NOT_READY, status="True")]), 1),
        (PodStatus(conditions=[replace(NOT_READY, type="Initialized")]), 1),
    ],
    ids=[
        "last container",
        "a container still runs",
        "sidecars count, other init containers do not",
        "a sidecar still runs",
        "only an init container ended",
        "no longer ready",
        "no longer ready at an unknown time",
        "still ready",
        "another condition",
    ],
)
def test_pod_ended_with_its_containers_or_its_readiness_or_when_it_was_created(
    status: PodStatus, ended: int
) -> None:
    spec = PodSpec(initContainers=[PROXY, SETUP])
    found = ended_at(Pod(metadata=CREATED, spec=spec, status=status))
    assert found == NOON + timedelta(seconds=ended)


def test_deleted_pod_ended_when_it_was_deleted() -> None:
    meta = ObjectMeta(
        creationTimestamp=at(0), deletionTimestamp=at(40), deletionGracePeriodSeconds=30
    )
    assert ended_at(Pod(metadata=meta)) == NOON + timedelta(seconds=10)
    at_once = replace(meta, deletionGracePeriodSeconds=None)
    assert ended_at(Pod(metadata=at_once)) == NOON + timedelta(seconds=40)
