from typing import Any

from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job
from kedge.testing.workloads import job_document

START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def job(spec: dict[str, Any] | None = None, **status: Any) -> Job:
    document = job_document({"spec": spec or {}, "status": status})
    return RESOURCE.strategy.default(RESOURCE.from_document(document))


def conditions(*true: str) -> list[dict[str, str]]:
    return [{"type": each, "status": "True"} for each in true]


def errors(new: Job, old: Job) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate_status(new, old)]


def finished(**status: Any) -> Job:
    done = conditions("SuccessCriteriaMet", "Complete")
    return job(**{"startTime": START, "completionTime": END, "conditions": done} | status)


def test_a_job_may_finish() -> None:
    assert errors(finished(succeeded=1), job(startTime=START, active=1)) == []


def test_a_finished_job_has_no_pods_left() -> None:
    odd = finished(active=1, terminating=1, uncountedTerminatedPods={"failed": ["a"]})
    assert errors(odd, job(startTime=START)) == [
        "status.active: Invalid value: 1: active>0 is invalid for finished job",
        'status.uncountedTerminatedPods: Invalid value: {"failed":["a"]}: '
        "must be empty for finished job",
        "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
    ]


def test_an_odd_status_may_stay_as_it_is() -> None:
    odd = finished(active=1)
    assert errors(finished(active=1, ready=1), odd) == []


def test_success_is_announced_before_it_is_told() -> None:
    new = job(startTime=START, completionTime=END, conditions=conditions("Complete"))
    assert errors(new, job(startTime=START)) == [
        "status.conditions: Invalid value: cannot set Complete=True condition "
        "without the SuccessCriteriaMet=true condition"
    ]


def test_failure_is_announced_before_it_is_told() -> None:
    new = job(startTime=START, conditions=conditions("Failed"))
    assert errors(new, job(startTime=START)) == [
        "status.conditions: Invalid value: cannot set Failed=True condition "
        "without the FailureTarget=true condition"
    ]


def test_there_is_no_way_back() -> None:
    new = job(startTime=START, succeeded=0, failed=0)
    old = finished(succeeded=1, failed=1)
    assert errors(new, old) == [
        "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
        "status.failed: Invalid value: 0: cannot decrease the failed counter",
        "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
        "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
    ]


def test_times_fit_together() -> None:
    late = finished(startTime=END, completionTime=START)
    assert errors(late, job(startTime=START)) == [
        f'status.completionTime: Invalid value: "{START}": must be equal to or after `startTime`',
        f'status.startTime: Invalid value: "{END}": '
        "field is immutable for unsuspended job once set",
    ]
    assert errors(job(completionTime=END), job()) == [
        f'status.completionTime: Invalid value: "{END}": '
        "cannot set completionTime when there is no Complete=True condition"
    ]


def test_a_job_that_goes_on_begins_anew() -> None:
    resumed = [{"type": "Suspended", "status": "False"}]
    old = job(startTime=START, conditions=conditions("Suspended"))
    assert errors(job(startTime=END, conditions=resumed), old) == []


def test_indexes_belong_to_indexed_jobs() -> None:
    assert errors(job(completedIndexes="0", failedIndexes="0"), job()) == [
        'status.completedIndexes: Invalid value: "0": '
        "cannot set non-empty completedIndexes when non-indexed completion mode",
        'status.failedIndexes: Invalid value: "0": '
        "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        'status.failedIndexes: Invalid value: "0": '
        "failedIndexes and completedIndexes overlap at index: 0",
    ]
    indexed = {"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1}
    assert errors(job(indexed, completedIndexes="5"), job(indexed)) == [
        'status.completedIndexes: Invalid value: "5": '
        'error parsing completedIndexes: too large index: "5"'
    ]


def test_no_more_pods_are_ready_than_run_and_each_is_counted_once() -> None:
    new = job(ready=2, active=1, uncountedTerminatedPods={"succeeded": ["a"], "failed": ["a", ""]})
    assert errors(new, job()) == [
        'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
        'status.uncountedTerminatedPods.failed[1]: Invalid value: "": must not be empty',
        "status.ready: Invalid value: 2: cannot set more ready pods than active",
    ]
