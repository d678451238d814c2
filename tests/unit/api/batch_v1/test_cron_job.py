from typing import Any

import pytest

from kedge.api.batch_v1.cron_job import RESOURCE, CronJob
from kedge.api.presentation import Age
from kedge.machinery.patch import apply_merge
from kedge.testing.workloads import job_document


def cron_job(change: dict[str, Any] | None = None) -> CronJob:
    document = {
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job_document({})["spec"]}},
    }
    return RESOURCE.from_document(apply_merge(document, change or {}))


def errors(change: dict[str, Any]) -> list[str]:
    return [
        str(error)
        for error in RESOURCE.strategy.validate(RESOURCE.strategy.default(cron_job(change)))
    ]


def test_what_is_left_out_is_filled_in() -> None:
    spec = RESOURCE.to_document(RESOURCE.strategy.default(cron_job()))["spec"]
    job = spec.pop("jobTemplate")["spec"]
    assert spec == {
        "schedule": "0 3 * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert job.keys() == {"template"}
    assert job["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


def test_one_in_order_has_no_errors() -> None:
    assert errors({"spec": {"timeZone": "Etc/UTC"}}) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"schedule": None}, ["spec.schedule: Required value"]),
        (
            {"schedule": "daily"},
            ['spec.schedule: Invalid value: "daily": expected exactly 5 fields, found 1: [daily]'],
        ),
        (
            {"schedule": "TZ=UTC 0 3 * * *"},
            [
                'spec.schedule: Invalid value: "TZ=UTC 0 3 * * *": '
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            ],
        ),
        (
            {"timeZone": ""},
            ['spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string'],
        ),
        (
            {"timeZone": "../etc"},
            ['spec.timeZone: Invalid value: "../etc": unknown time zone ../etc'],
        ),
        (
            {"timeZone": "Mars/Base"},
            ['spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base'],
        ),
        (
            {"concurrencyPolicy": "Hope"},
            [
                'spec.concurrencyPolicy: Unsupported value: "Hope": '
                'supported values: "Allow", "Forbid", "Replace"'
            ],
        ),
        (
            {"startingDeadlineSeconds": -1, "failedJobsHistoryLimit": -1},
            [
                "spec.startingDeadlineSeconds: Invalid value: -1: "
                "must be greater than or equal to 0",
                "spec.failedJobsHistoryLimit: Invalid value: -1: "
                "must be greater than or equal to 0",
            ],
        ),
        (
            {"jobTemplate": {"spec": {"manualSelector": True, "selector": {}}}},
            [
                "spec.jobTemplate.spec.selector: Invalid value: {}: "
                "`selector` will be auto-generated",
                "spec.jobTemplate.spec.manualSelector: Unsupported value: true: "
                'supported values: "nil", "false"',
            ],
        ),
        (
            {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}},
            [
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: "
                'valid values: "OnFailure", "Never"'
            ],
        ),
    ],
)
def test_every_error_is_told_at_once(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors({"spec": spec}) == expected


def test_names_leave_room_for_a_time() -> None:
    assert errors({"metadata": {"name": "a" * 52}}) == []
    (error,) = errors({"metadata": {"name": "a" * 53}})
    assert error.endswith("must be no more than 52 characters")


def test_what_kubectl_shows() -> None:
    columns = RESOURCE.presentation.columns
    new = RESOURCE.strategy.default(cron_job())
    assert [column.cell(new) for column in columns[:6]] == [
        "nightly",
        "0 3 * * *",
        "<none>",
        "False",
        0,
        "<none>",
    ]
    status = {"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:00:00Z"}
    ran = cron_job({"status": status})
    assert [columns[4].cell(ran), columns[5].cell(ran)] == [1, Age("2026-01-01T00:00:00Z")]
    assert [column.cell(new) for column in columns[7:]] == ["c", "i", "<none>"]
