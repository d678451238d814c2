"""Answers to changes of a pod's resources."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.resize import only_resources, validate_resize
from kedge.api.core_v1.pod.validation import validate
from kedge.testing.pods import new_pod, without_nothing

CASES = yaml.safe_load(Path(__file__).with_name("resize.yaml").read_text())


def changed(old: Pod, after: dict[str, Any]) -> Pod:
    document = RESOURCE.to_document(old)
    document["spec"].update(after.get("spec", {}))
    document["spec"]["containers"][0].update(after.get("container", {}))
    document["status"].update(after.get("status", {}))
    return RESOURCE.strategy.default(RESOURCE.from_document(without_nothing(document)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_resizes_are_allowed_and_refused_as_in_kubernetes(case: dict[str, Any]) -> None:
    old = new_pod(**case.get("before", {}))
    new = only_resources(changed(old, case["after"]), old)
    errors = [*validate(new), *validate_resize(new, old)]
    assert list(dict.fromkeys(map(str, errors))) == case["errors"]


def test_a_node_that_does_not_report_resources_cannot_resize() -> None:
    old = new_pod(container={"resources": {"requests": {"cpu": "100m"}}})
    running = {"name": "ctr", "state": {"running": {}}}
    old = changed(old, {"status": {"containerStatuses": [running]}})
    new = changed(old, {"container": {"resources": {"requests": {"cpu": "200m"}}}})
    assert [str(error) for error in validate_resize(only_resources(new, old), old)] == [
        "spec: Forbidden: Pod running on node without support for resize"
    ]
