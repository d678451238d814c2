"""LimitRanges compared with pods that already run."""

from typing import Any

from kedge.api.core_v1 import limit_range
from kedge.api.core_v1.pod import pod
from kedge.api.limits.bounds import bounds_of
from kedge.api.limits.running_pods import running_violations

BOUNDS = bounds_of(
    [
        limit_range.default(
            limit_range.RESOURCE.from_document(
                {
                    "metadata": {"name": "limits"},
                    "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
                }
            )
        )
    ]
)


def running(name: str, cpu: str = "", *, phase: str = "Running", **metadata: str) -> Any:
    container = {"name": "c", "resources": {"limits": {"cpu": cpu} if cpu else {}}}
    return pod.RESOURCE.from_document(
        {
            "metadata": {"name": name, **metadata},
            "spec": {"containers": [container]},
            "status": {"phase": phase},
        }
    )


def test_pods_beyond_the_bounds_are_named_with_their_violations() -> None:
    (found,) = running_violations(BOUNDS, [running("small", "1"), running("large", "2")])
    assert found.pod == "large"
    (violation,) = found.violations
    assert violation.message == "maximum cpu usage per Container is 1, but limit is 2"


def test_pods_that_ended_or_are_being_deleted_are_left_out() -> None:
    pods = [
        running("succeeded", "2", phase="Succeeded"),
        running("failed", "2", phase="Failed"),
        running("leaving", "2", deletionTimestamp="2030-01-01T00:00:00Z"),
    ]
    assert list(running_violations(BOUNDS, pods)) == []


def test_pods_that_would_get_defaults_are_not_refused() -> None:
    assert list(running_violations(BOUNDS, [running("silent")])) == []
