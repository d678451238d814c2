from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job
from kedge.testing.workloads import job_document

CASES = yaml.safe_load(Path(__file__).with_name("job_validation.yaml").read_text())


def job(change: dict[str, Any] | None = None) -> Job:
    return RESOURCE.strategy.prepare_for_create(
        RESOURCE.strategy.default(RESOURCE.from_document(job_document(change or {})))
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_every_error_is_told_at_once(case: dict[str, Any]) -> None:
    found = RESOURCE.strategy.validate(job(case["change"]))
    assert [str(error) for error in found] == case["errors"]


def fields(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [error.field for error in RESOURCE.strategy.validate_update(job(new), job(old))]


def test_how_much_work_there_is_cannot_change() -> None:
    assert fields({"spec": {"completions": 2, "parallelism": 1}}) == ["spec.completions"]
    assert fields({"spec": {"parallelism": 5, "completions": 1, "backoffLimit": 1}}) == []


def test_an_indexed_job_grows_and_shrinks_with_its_parallelism() -> None:
    old = {"spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2}}
    both = {"spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 3}}
    one = {"spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 2}}
    assert fields(both, old) == []
    assert fields(one, old) == ["spec.completions"]


TOLERATING = {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}
LARGER = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]


def test_the_pods_of_a_job_that_runs_cannot_change() -> None:
    assert fields({"spec": TOLERATING}) == ["spec.template"]


def test_those_of_a_suspended_job_may_go_elsewhere_or_need_more() -> None:
    old = {"spec": {"suspend": True}}
    assert fields({"spec": {"suspend": True, **TOLERATING}}, old) == []
    assert (
        fields({"spec": {"suspend": True, "template": {"spec": {"containers": LARGER}}}}, old) == []
    )
    other = {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}
    assert fields({"spec": {"suspend": True, **other}}, old) == ["spec.template.spec"]


def test_unless_they_are_still_there() -> None:
    old = {"spec": {"suspend": True}, "status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}}
    assert fields({"spec": {"suspend": True, **TOLERATING}}, old) == ["spec.template"]


def test_who_is_in_charge_cannot_change() -> None:
    assert fields({"spec": {"managedBy": "a.com/b"}}) == ["spec.managedBy"]
