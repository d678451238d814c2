from typing import Any

from kedge.api.apps_v1.replica_set import RESOURCE, ReplicaSet
from kedge.testing.workloads import workload_document


def replica_set(change: dict[str, Any] | None = None) -> ReplicaSet:
    return RESOURCE.from_document(workload_document(change or {}))


def test_one_replica_unless_said_otherwise() -> None:
    assert RESOURCE.strategy.default(replica_set()).spec.replicas == 1
    assert RESOURCE.strategy.default(replica_set({"spec": {"replicas": 0}})).spec.replicas == 0


def test_the_number_of_replicas_is_told_even_when_it_is_none() -> None:
    assert RESOURCE.to_document(replica_set())["status"] == {"replicas": 0}


def test_parts_of_the_status_add_up() -> None:
    new = replica_set({"status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": -1}})
    assert [str(error) for error in RESOURCE.strategy.validate_status(new, new)] == [
        "status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
    ]


def test_what_kubectl_shows() -> None:
    obj = replica_set({"spec": {"replicas": 3}, "status": {"replicas": 2, "readyReplicas": 1}})
    assert [column.cell(obj) for column in RESOURCE.presentation.columns[:4]] == ["web", 3, 2, 1]
