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


def test_equal_simple_fields_share_a_checker() -> None:
    word, number = {"type": "string", "maxLength": 3}, {"type": "integer", "description": "many"}
    checker = Checker({"properties": {"a": word, "b": {**word, "description": "b"}, "c": number}})
    assert checker._fields["a"] is checker._fields["b"]
    assert checker._fields["a"] is not checker._fields["c"]


def test_simple_fields_of_different_rules_do_not() -> None:
    rules = [{"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}]
    below = [[str(each) for each in validate({"properties": {"a": r}}, {"a": 1})] for r in rules]
    assert below[0] == []
    assert "should be greater than or equal to 2" in below[1][0]
