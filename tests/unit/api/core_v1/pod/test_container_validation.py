"""Answers to pods with containers that break rules."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.validation import validate
from kedge.testing.pods import new_pod

CASES = yaml.safe_load(Path(__file__).with_name("container_validation.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_every_error_is_told_at_once_as_kubernetes_tells_it(case: dict[str, Any]) -> None:
    parts = {name: case.get(name) for name in ("metadata", "spec", "container", "volume")}
    assert [str(error) for error in validate(new_pod(**parts))] == case["errors"]
