from typing import Any

from kedge.api.apps_v1.deployment import RESOURCE, Deployment
from kedge.api.presentation import Age
from kedge.testing.workloads import workload_document


def deployment(change: dict[str, Any] | None = None) -> Deployment:
    return RESOURCE.from_document(workload_document(change or {}))


def test_what_is_left_out_is_filled_in() -> None:
    spec = RESOURCE.to_document(RESOURCE.strategy.default(deployment()))["spec"]
    assert spec["replicas"] == 1
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_what_is_given_stays() -> None:
    change = {"spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxSurge": 0}}}}
    spec = RESOURCE.strategy.default(deployment(change)).spec
    assert spec.replicas == 0
    assert spec.strategy.rollingUpdate is not None
    assert spec.strategy.rollingUpdate.maxSurge == 0
    recreate = RESOURCE.strategy.default(deployment({"spec": {"strategy": {"type": "Recreate"}}}))
    assert recreate.spec.strategy.rollingUpdate is None


def test_defaults_change_nothing_the_second_time() -> None:
    once = RESOURCE.strategy.default(deployment())
    assert RESOURCE.strategy.default(once) == once


def test_parts_of_the_status_add_up() -> None:
    old = deployment({"status": {"collisionCount": 3}})
    new = deployment(
        {"status": {"replicas": 1, "updatedReplicas": 2, "availableReplicas": 1, "failed": 1}}
    )
    assert [str(error) for error in RESOURCE.strategy.validate_status(new, old)] == [
        "status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas",
        "status.collisionCount: Invalid value: 0: cannot be decremented",
    ]


def test_what_kubectl_shows() -> None:
    status = {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}
    metadata = {"creationTimestamp": "2026-01-02T03:04:05Z"}
    obj = deployment({"metadata": metadata, "spec": {"replicas": 2}, "status": status})
    assert [column.cell(obj) for column in RESOURCE.presentation.columns] == [
        "web",
        "1/2",
        2,
        1,
        Age("2026-01-02T03:04:05Z"),
        "web",
        "nginx",
        "app=web",
    ]
    assert [column.name for column in RESOURCE.presentation.columns if column.priority] == [
        "Containers",
        "Images",
        "Selector",
    ]
