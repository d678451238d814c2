from typing import Any

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import RESOURCE, HorizontalPodAutoscaler


def autoscaler(**spec: Any) -> HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    document = {"spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}}
    return RESOURCE.strategy.default(RESOURCE.from_document(document))


def errors(**spec: Any) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(autoscaler(**spec))]


def test_what_is_left_out_is_filled_in() -> None:
    spec = RESOURCE.to_document(autoscaler())["spec"]
    target = {"type": "Utilization", "averageUtilization": 80}
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert "behavior" not in spec


def test_behaviour_that_is_partly_said_is_completed() -> None:
    behavior = {"scaleDown": {"selectPolicy": "Min", "tolerance": "50m"}}
    assert RESOURCE.to_document(autoscaler(behavior=behavior))["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            "tolerance": "50m",
        },
    }


def test_bounds_fit_together() -> None:
    assert errors() == []
    assert errors(minReplicas=4) == [
        "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"
    ]
    assert errors(minReplicas=0, maxReplicas=-1) == [
        "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
        "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
        "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
        "spec.metrics: Forbidden: must specify at least one Object or External metric "
        "to support scaling to zero replicas",
    ]


def test_behaviour_has_limits() -> None:
    policy = {"type": "Magic", "value": 0, "periodSeconds": 1801}
    up = {"stabilizationWindowSeconds": 3601, "selectPolicy": "Any", "policies": [policy]}
    down = {"stabilizationWindowSeconds": -1, "tolerance": "-1"}
    assert errors(behavior={"scaleUp": up, "scaleDown": down}) == [
        "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: "
        "must be less than or equal to 3600",
        'spec.behavior.scaleUp.selectPolicy: Unsupported value: "Any": '
        'supported values: "Disabled", "Max", "Min"',
        'spec.behavior.scaleUp.policies[0].type: Unsupported value: "Magic": '
        'supported values: "Percent", "Pods"',
        "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
        "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: "
        "must be less than or equal to 1800",
        "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: "
        "must be greater than or equal to zero",
        'spec.behavior.scaleDown.tolerance: Invalid value: "-1": '
        "must be greater than or equal to 0",
    ]


def test_what_kubectl_shows() -> None:
    obj = autoscaler(minReplicas=2)
    assert [column.cell(obj) for column in RESOURCE.presentation.columns[:6]] == [
        "",
        "Deployment/web",
        "cpu: <unknown>/80%",
        "2",
        3,
        0,
    ]
