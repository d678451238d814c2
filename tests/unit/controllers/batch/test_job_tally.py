"""What follows from a job and its pods."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kedge.api.batch_v1.job_types import Job, JobSpec, JobStatus
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import PodStatus
from kedge.api.model import ObjectMeta
from kedge.controllers.batch.job_tally import (
    FINALIZER,
    INDEX,
    INDEX_FAILURES,
    JobTally,
    deadline_in,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOON = "2030-01-01T12:00:00Z"


def job(status: JobStatus | None = None, **spec: Any) -> Job:
    given = {"backoffLimit": 6, "parallelism": 1, **spec}
    return Job(spec=JobSpec(**given), status=status or JobStatus())


def indexed(**spec: Any) -> Job:
    return job(completionMode="Indexed", **spec)


def pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    failures: int = 0,
    leaving: bool = False,
    node: str = "n",
) -> Pod:
    annotations = {INDEX_FAILURES: str(failures)}
    if index is not None:
        annotations[INDEX] = str(index)
    meta = ObjectMeta(
        name=name,
        uid=name,
        finalizers=[FINALIZER],
        annotations=annotations,
        creationTimestamp=NOON,
        deletionTimestamp=NOON if leaving else "",
    )
    return Pod(metadata=meta, spec=PodSpec(nodeName=node), status=PodStatus(phase=phase))


def named(pods: list[Pod]) -> list[str]:
    return [each.metadata.name for each in pods]


@pytest.mark.parametrize(
    ("completions", "parallelism", "succeeded", "wanted"),
    [(5, 2, 0, 2), (5, 2, 4, 1), (5, 2, 5, 0), (None, 3, 0, 3), (5, 0, 0, 0)],
)
def test_no_more_pods_are_wanted_than_successes_are_missing(
    completions: int | None, parallelism: int, succeeded: int, wanted: int
) -> None:
    asked = job(JobStatus(succeeded=succeeded), completions=completions, parallelism=parallelism)
    assert JobTally(asked, []).wanted == wanted


def test_after_the_first_success_of_a_job_without_completions_none_is_stopped_or_made() -> None:
    tally = JobTally(job(parallelism=3), [pod("a", "Succeeded"), pod("b")])
    assert tally.wanted == 1
    assert not tally.is_complete(1)
    assert tally.is_complete(0)


def test_pods_that_have_not_got_far_are_given_up_first() -> None:
    tally = JobTally(
        job(completions=5, parallelism=1),
        [pod("running"), pod("waiting", "Pending", node=""), pod("starting", "Pending")],
    )
    assert named(tally.surplus(NOW)) == ["waiting", "starting"]


def test_second_pod_of_an_index_goes_and_so_does_one_that_has_none() -> None:
    tally = JobTally(
        indexed(completions=2, parallelism=2),
        [
            pod("first", index=0),
            pod("second", "Pending", index=0, node=""),
            pod("beyond", index=2),
            pod("without"),
        ],
    )
    assert sorted(named(tally.surplus(NOW))) == ["beyond", "second", "without"]


def test_leaving_pods_are_replaced_at_once_or_when_they_are_gone() -> None:
    pods = [pod("a", leaving=True)]
    asked: dict[str, Any] = {"completions": 1, "parallelism": 1}
    assert JobTally(job(podReplacementPolicy="TerminatingOrFailed", **asked), pods).shortage == 1
    assert JobTally(job(podReplacementPolicy="Failed", **asked), pods).shortage == 0


def test_deleted_pod_counts_as_failed_unless_its_end_is_waited_for() -> None:
    pods = [pod("a", leaving=True)]
    assert JobTally(job(podReplacementPolicy="TerminatingOrFailed"), pods).failed == 1
    assert JobTally(job(podReplacementPolicy="Failed"), pods).failed == 0


def test_lowest_free_indexes_are_next() -> None:
    status = JobStatus(completedIndexes="1", failedIndexes="3")
    tally = JobTally(
        indexed(status=status, completions=7, parallelism=7, backoffLimitPerIndex=0),
        [pod("a", index=0), pod("b", "Succeeded", index=4), pod("c", "Failed", index=5)],
    )
    assert tally.free_indexes(9) == [2, 6]
    assert str(tally.failed_indexes) == "3,5"


def test_failed_pod_is_kept_until_its_index_has_another() -> None:
    asked = indexed(completions=2, parallelism=2, backoffLimitPerIndex=3)
    earlier, later = (
        pod("a", "Failed", index=0),
        pod("b", "Failed", index=0, failures=1),
    )
    assert JobTally(asked, [later, earlier]).to_replace == {0: later}
    assert JobTally(asked, [later, earlier, pod("c", index=0, failures=2)]).to_replace == {}


def test_each_index_waits_for_itself() -> None:
    asked = indexed(completions=2, parallelism=2, backoffLimitPerIndex=3)
    tally = JobTally(asked, [pod("a", "Failed", index=0, failures=2)])
    assert tally.index_remaining(0, NOW) == 40
    assert tally.index_remaining(1, NOW) == 0


def test_rest_does_not_count_towards_the_deadline() -> None:
    begun = JobStatus(startTime="2030-01-01T11:59:30Z")
    assert deadline_in(job(begun, activeDeadlineSeconds=100), NOW) == 70
    assert deadline_in(job(begun, activeDeadlineSeconds=100, suspend=True), NOW) is None
    assert deadline_in(job(begun), NOW) is None
