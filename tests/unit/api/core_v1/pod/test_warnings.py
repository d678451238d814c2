"""What writers of unwise pods are told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.pod.warnings import warn, warn_template
from kedge.testing.pods import new_pod

CASES = yaml.safe_load(Path(__file__).with_name("warnings.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_writers_are_warned_as_kubernetes_warns_them(case: dict[str, Any]) -> None:
    pod = new_pod(**{name: case.get(name) for name in ("metadata", "spec", "container")})
    assert list(warn(pod)) == case["warnings"]


def test_warnings_about_a_template_are_told_from_its_owner() -> None:
    template = PodTemplateSpec(spec=PodSpec(terminationGracePeriodSeconds=-1))
    assert list(warn_template(template, "spec.template")) == [
        "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; "
        "negative values are invalid and will be treated as 1"
    ]
