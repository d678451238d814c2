from typing import Any

import msgspec
import pytest

from kedge.api.autoscaling_v2.metrics import (
    CrossVersionObjectReference,
    MetricSpec,
    MetricStatus,
    targets_cell,
    validate_metric,
    validate_reference,
)
from kedge.api.resource import dec_hook


def metric(**document: Any) -> MetricSpec:
    return msgspec.convert(document, MetricSpec, dec_hook=dec_hook)


def status(**document: Any) -> MetricStatus:
    return msgspec.convert(document, MetricStatus, dec_hook=dec_hook)


TYPES = 'supported values: "ContainerResource", "External", "Object", "Pods", "Resource"'
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}


@pytest.mark.parametrize(
    ("document", "errors"),
    [
        ({"type": "Resource", "resource": CPU}, []),
        (
            {},
            [
                "m.type: Required value: must specify a metric source type",
                f'm.type: Unsupported value: "": {TYPES}',
            ],
        ),
        (
            {"type": "Pods", "resource": CPU},
            ["m.pods: Required value: must populate information for the given metric source"],
        ),
        (
            {"type": "Resource", "resource": CPU, "containerResource": {}},
            ["m.containerResource: Forbidden: must populate the given metric source only"],
        ),
        (
            {"type": "Resource", "resource": {"target": {"type": "Utilization"}}},
            [
                "m.resource.name: Required value: must specify a resource name",
                "m.resource.target.averageUtilization: Required value: "
                "must set either a target raw value or a target utilization",
            ],
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "gold",
                    "container": "a.b",
                    "target": {"type": "Dream", "averageUtilization": 0, "averageValue": "0"},
                },
            },
            [
                'm.containerResource.name: Invalid value: "gold": '
                "must be a standard resource type or fully qualified",
                'm.containerResource.name: Invalid value: "gold": '
                "must be a standard resource for containers",
                'm.containerResource.container: Invalid value: "a.b": must not contain dots',
                'm.containerResource.target.type: Invalid value: "Dream": '
                "must be either Utilization, Value, or AverageValue",
                'm.containerResource.target.averageValue: Invalid value: "0": must be positive',
                "m.containerResource.target.averageUtilization: Invalid value: 0: "
                "must be greater than 0",
                "m.containerResource.target.averageValue: Forbidden: "
                "may not set both a target raw value and a target utilization",
            ],
        ),
        (
            {"type": "External", "external": {"metric": {"name": "a/b"}, "target": {}}},
            [
                "m.external.metric.name: Invalid value: \"a/b\": may not contain '/'",
                "m.external.target.type: Required value: must specify a metric target type",
                'm.external.target.type: Invalid value: "": '
                "must be either Utilization, Value, or AverageValue",
                "m.external.target.averageValue: Required value: "
                "must set either a target value for metric or a per-pod target",
            ],
        ),
        (
            {"type": "Object", "object": {"target": {"type": "Value", "value": "1"}}},
            [
                "m.object.describedObject.kind: Required value",
                "m.object.describedObject.name: Required value",
                "m.object.metric.name: Required value: must specify a metric name",
            ],
        ),
        (
            {"type": "Pods", "pods": {"metric": {"name": "a"}, "target": {"type": "Value"}}},
            [
                "m.pods.target.averageValue: Required value: "
                "must specify a positive target averageValue"
            ],
        ),
    ],
)
def test_a_metric_has_one_source_and_a_target(document: dict[str, Any], errors: list[str]) -> None:
    assert [str(error) for error in validate_metric(metric(**document), "m")] == errors


def test_what_is_scaled_belongs_to_a_group() -> None:
    ref = CrossVersionObjectReference(kind="Deployment", name="web", apiVersion="v1")
    assert [str(error) for error in validate_reference(ref, "r", group=True)] == [
        'r.apiVersion: Invalid value: "v1": apiVersion must specify API group'
    ]
    assert list(validate_reference(ref, "r", group=False)) == []


def external(**target: str) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "q"}, "target": target}}


def test_targets_and_present_values() -> None:
    cpu = metric(type="Resource", resource=CPU)
    used = status(type="Resource", resource={"name": "cpu", "current": {"averageUtilization": 30}})
    assert targets_cell([], []) == "<none>"
    assert targets_cell([cpu], []) == "cpu: <unknown>/80%"
    assert targets_cell([cpu], [used]) == "cpu: 30%/80%"
    queue = metric(**external(type="Value", value="30"))
    per_pod = metric(**external(type="AverageValue", averageValue="5"))
    assert targets_cell([queue, per_pod], []) == "<unknown>/30, <unknown>/5 (avg)"
    assert targets_cell([cpu, queue, cpu], [used]) == "cpu: 30%/80%, <unknown>/30 + 1 more..."
