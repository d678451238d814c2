from typing import Any

import pytest

from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job
from kedge.api.presentation import Age
from kedge.testing.workloads import job_document


def job(change: dict[str, Any] | None = None) -> Job:
    return RESOURCE.from_document(job_document(change or {}))


def test_what_is_left_out_is_filled_in() -> None:
    spec = RESOURCE.to_document(RESOURCE.strategy.default(job()))["spec"]
    del spec["template"]
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    }


def test_a_job_that_runs_many_pods_at_once_ends_with_the_first_success() -> None:
    assert RESOURCE.strategy.default(job({"spec": {"parallelism": 3}})).spec.completions is None


def test_limits_per_index_lift_the_limit_of_all() -> None:
    spec = RESOURCE.strategy.default(job({"spec": {"backoffLimitPerIndex": 1}})).spec
    assert spec.backoffLimit == 2**31 - 1


def test_rules_for_failures_wait_for_them() -> None:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    spec = RESOURCE.strategy.default(job({"spec": {"podFailurePolicy": {"rules": rules}}})).spec
    assert spec.podReplacementPolicy == "Failed"
    assert spec.podFailurePolicy is not None
    assert spec.podFailurePolicy.rules[0].onPodConditions[0].status == "True"


OWN = {
    "job-name": "pi",
    "batch.kubernetes.io/job-name": "pi",
    "controller-uid": "u-1",
    "batch.kubernetes.io/controller-uid": "u-1",
}


@pytest.mark.parametrize("defaults_first", [True, False])
def test_a_job_knows_its_pods_by_its_uid(*, defaults_first: bool) -> None:
    steps = [RESOURCE.strategy.default, RESOURCE.strategy.prepare_for_create]
    obj = job({"spec": {"template": {"metadata": {"labels": {"app": "pi"}}}}})
    for step in steps if defaults_first else reversed(steps):
        obj = step(obj)
    assert obj.spec.template.metadata.labels == {"app": "pi", **OWN}
    assert obj.metadata.labels == {"app": "pi", **OWN}
    assert obj.spec.selector is not None
    assert obj.spec.selector.matchLabels == {"batch.kubernetes.io/controller-uid": "u-1"}


def test_labels_of_its_own_stay() -> None:
    obj = RESOURCE.strategy.prepare_for_create(
        RESOURCE.strategy.default(job({"metadata": {"labels": {"team": "a"}}}))
    )
    assert obj.metadata.labels == {"team": "a"}


def test_a_selector_of_the_writers_choice_stays() -> None:
    change = {"spec": {"manualSelector": True, "selector": {"matchLabels": {"app": "pi"}}}}
    obj = RESOURCE.strategy.prepare_for_create(job(change))
    assert obj.spec.template.metadata.labels == {}


@pytest.mark.parametrize(
    ("change", "cell"),
    [
        ({}, "Running"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "Complete"),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "Failed"),
        ({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}, "Suspended"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "Terminating"),
    ],
)
def test_how_a_job_fares(change: dict[str, Any], cell: str) -> None:
    assert RESOURCE.presentation.columns[1].cell(job(change)) == cell


def test_what_kubectl_shows() -> None:
    done, took = RESOURCE.presentation.columns[2].cell, RESOURCE.presentation.columns[3].cell
    assert done(job({"spec": {"completions": 3}, "status": {"succeeded": 1}})) == "1/3"
    assert done(job({"spec": {"parallelism": 3}})) == "0/1 of 3"
    assert took(job()) == ""
    assert took(job({"status": {"startTime": "2026-01-01T00:00:00Z"}})) == Age(
        "2026-01-01T00:00:00Z"
    )
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:02:05Z"}
    assert took(job({"status": times})) == "2m5s"


def test_jobs_are_selected_by_their_successes() -> None:
    assert (
        RESOURCE.presentation.fields["status.successful"](job({"status": {"succeeded": 2}})) == "2"
    )
