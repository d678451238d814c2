from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.apiextensions_v1.values import Checker, validate

CASES = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_what_is_wrong_is_told_as_kubernetes_tells_it(case: dict[str, Any]) -> None:
    found = validate(case["schema"], case["value"], case.get("path", ""))
    assert [str(error) for error in found] == case["errors"]


def test_a_mistype_has_a_reason_of_its_own() -> None:
    (error,) = validate({"type": "integer"}, "x", "spec.a")
    assert error.reason == "FieldValueTypeInvalid"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
)


@given(json_values)
def test_no_rules_no_errors(value: object) -> None:
    assert Checker({}).errors(value) == []
