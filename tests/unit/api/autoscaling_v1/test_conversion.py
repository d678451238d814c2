import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.autoscaling_v1.conversion import METRICS, from_v2, to_v2

CASES = yaml.safe_load(Path(__file__).with_name("conversion.yaml").read_text())


def readable(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its annotations read as JSON."""
    notes = document.get("metadata", {}).get("annotations")
    if notes is None:
        return document
    return document | {"metadata": {"annotations": {k: json.loads(v) for k, v in notes.items()}}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_v1_shows_what_is_stored(case: dict[str, Any]) -> None:
    seen = readable(from_v2({"apiVersion": "autoscaling/v2", **case["v2"]}))
    assert seen == {"apiVersion": "autoscaling/v1", "metadata": {}, **case["v1"]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_nothing_is_lost_on_the_way_back(case: dict[str, Any]) -> None:
    stored = to_v2(from_v2({"apiVersion": "autoscaling/v2", **case["v2"]}))
    assert stored == {"apiVersion": "autoscaling/v2", "metadata": {}, **case["v2"]}


def test_without_any_metric_cpu_aims_at_eighty_percent() -> None:
    stored = to_v2({"metadata": {"annotations": {"a": "b"}}, "spec": {"maxReplicas": 1}})
    target = {"type": "Utilization", "averageUtilization": 80}
    assert stored["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]
    assert stored["metadata"] == {"annotations": {"a": "b"}}


@pytest.mark.parametrize("text", ["no json", "5", "[5]", '[{"type":"Pods","pods":5}]', "null"])
def test_an_annotation_that_cannot_be_read_is_as_good_as_none(text: str) -> None:
    stored = to_v2({"metadata": {"annotations": {METRICS: text}}, "spec": {"maxReplicas": 1}})
    assert [metric["type"] for metric in stored["spec"]["metrics"]] == ["Resource"]
    assert stored["metadata"] == {}


def test_what_was_measured_of_cpu_has_a_field_too() -> None:
    stored = to_v2({"spec": {}, "status": {"currentCPUUtilizationPercentage": 40}})
    current = {"averageUtilization": 40}
    assert stored["status"]["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": current}}
    ]


@pytest.mark.parametrize("sort", ["object", "pods", "resource", "containerResource", "external"])
def test_incomplete_metrics_are_converted(sort: str) -> None:
    spec = {"metrics": [{sort: {}}], "behavior": {"scaleUp": {"policies": [{}]}}}
    status = {"currentMetrics": [{sort: {}}, {"type": "Resource"}]}
    document = {"apiVersion": "autoscaling/v2", "metadata": {}, "spec": spec, "status": status}
    assert from_v2(document)["spec"] == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics", '[{"type":"Resource","resource":{"name":5}}]'),
        ("metrics", '[{"type":7}]'),
        ("metrics", '[{"type":"Resource","resource":{"targetAverageValue":"x"}}]'),
        ("behavior", '{"ScaleUp":{"Policies":5}}'),
        ("behavior", '{"ScaleUp":7}'),
        ("conditions", '[{"type":5}]'),
        ("current-metrics", '[{"type":"Resource","resource":{"currentAverageValue":"x"}}]'),
    ],
)
def test_annotations_of_another_type_are_ignored(name: str, text: str) -> None:
    notes = {f"autoscaling.alpha.kubernetes.io/{name}": text}
    made = to_v2({"apiVersion": "autoscaling/v1", "metadata": {"annotations": notes}, "spec": {}})
    default = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": default}}
    assert made == {"apiVersion": "autoscaling/v2", "metadata": {}, "spec": {"metrics": [metric]}}
