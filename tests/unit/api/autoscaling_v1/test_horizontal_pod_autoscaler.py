from typing import Any

from kedge.api.autoscaling_v1.horizontal_pod_autoscaler import RESOURCE, HorizontalPodAutoscaler
from kedge.api.autoscaling_v2 import horizontal_pod_autoscaler as stored


def autoscaler(**spec: Any) -> HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return RESOURCE.from_document({"spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}})


def errors(obj: HorizontalPodAutoscaler) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_one_replica_at_least() -> None:
    assert RESOURCE.strategy.default(autoscaler()).spec.minReplicas == 1
    assert RESOURCE.strategy.default(autoscaler(minReplicas=2)).spec.minReplicas == 2


def test_the_rules_are_those_of_what_is_stored() -> None:
    assert errors(autoscaler(targetCPUUtilizationPercentage=50)) == []
    assert errors(autoscaler(maxReplicas=0, targetCPUUtilizationPercentage=0)) == [
        "spec.maxReplicas: Required value: must be set and greater than 0",
        "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: "
        "must be greater than 0",
    ]


def test_it_is_stored_as_the_newer_version() -> None:
    assert RESOURCE.store_as is not None
    assert RESOURCE.store_as.resource is stored.RESOURCE


def test_both_versions_show_the_same_columns() -> None:
    obj = autoscaler(targetCPUUtilizationPercentage=50)
    assert [column.name for column in RESOURCE.presentation.columns] == [
        column.name for column in stored.RESOURCE.presentation.columns
    ]
    assert RESOURCE.presentation.columns[2].cell(obj) == "cpu: <unknown>/50%"
