"""Fractions in integer fields, as expressions meet them."""

from typing import Any

import pytest

from kedge.api.apiextensions_v1.rule_evaluation import rule_errors
from kedge.api.apiextensions_v1.rule_tree import RuleNode
from kedge.machinery.cel.misfits import GuardedMap, guarded, has_fraction

WHY = "invalid data, expected int, got float64"
INTEGER = {"type": "integer"}


def errors(schema: dict[str, Any], value: Any, rule: str, old: Any = None) -> list[str]:
    ruled = {**schema, "x-kubernetes-validations": [{"rule": rule}]}
    tree = RuleNode(ruled, is_root=False)
    return [str(each) for each in rule_errors(tree, value, old, "spec")]


OBJECT = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER, "n": {"type": "number"}}}
MAP = {"type": "object", "additionalProperties": INTEGER}
LIST = {"type": "array", "items": INTEGER}
SET = {**LIST, "x-kubernetes-list-type": "set"}
EITHER = {"x-kubernetes-int-or-string": True}
NEITHER = "invalid data, expected XIntOrString value to be either a string or integer"


@pytest.mark.parametrize(
    ("schema", "value", "rule", "kind", "why"),
    [
        (INTEGER, 1.0, "self > 0", "integer", WHY),
        (OBJECT, {"a": 1.0}, "self.a < 10", "object", WHY),
        (OBJECT, {"a": 1.0}, "has(self.a)", "object", WHY),
        (OBJECT, {"a": 1.0, "b": 1}, "self.a == self.b", "object", WHY),
        (MAP, {"k": 1.0}, "self.all(k, self[k] > 0)", "object", WHY),
        (LIST, [1.0, 2], "self.all(x, x > 0)", "array", WHY),
        (LIST, [1.0, 2], "self.exists(x, x + 1 == 7)", "array", WHY),
        (SET, [1.0], "self[0] == 1", "array", WHY),
        (EITHER, 1.0, "type(self) == int ? self > 0 : true", "", NEITHER),
    ],
)
def test_a_rule_that_reads_one_fails(
    schema: dict[str, Any], value: Any, rule: str, kind: str, why: str
) -> None:
    wanted = f'spec: Invalid value: "{kind}": {why} evaluating rule: {rule}'
    assert errors(schema, value, rule) == [wanted]


@pytest.mark.parametrize(
    ("schema", "value", "rule"),
    [
        (OBJECT, {"a": 1.0, "b": 1}, "self.b < 10"),
        (OBJECT, {"n": 1.0}, "self.n < 10.0"),
        (OBJECT, {"n": 1}, "self.n == 1.0"),
        (OBJECT, {"a": 1.0, "b": 1}, "self.b == 1 || self.a > 3"),
        (LIST, [1, 2.0], "self.exists(x, x == 1)"),
        (LIST, [1.0], "size(self) == 1"),
    ],
)
def test_other_rules_are_evaluated(schema: dict[str, Any], value: Any, rule: str) -> None:
    assert errors(schema, value, rule) == []


def test_the_value_before_counts_too() -> None:
    why = f'spec: Invalid value: "integer": {WHY} evaluating rule: self == oldSelf'
    assert errors(INTEGER, 1, "self == oldSelf", 1.0) == [why]


def test_documents_without_fractions_are_left_alone() -> None:
    assert not has_fraction({"a": [1, {"b": "1.0"}], "c": None})
    assert has_fraction({"a": [1, {"b": 1.0}]})
    made = guarded(OBJECT, {"a": 1, "b": None, "other": "x"})
    assert isinstance(made, GuardedMap)
    assert made == {"a": 1, "other": "x"}


def test_an_old_value_of_another_type_is_an_error_of_the_rule() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    [why] = errors(schema, {"n": 1.5}, "self == oldSelf", {"n": []})
    assert "no such overload" in why
