"""CEL rules of definitions: errors and costs in upstream's words."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.apiextensions_v1.cel_rules import validate_cel_rules
from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published_rules.yaml").read_text())
P = "spec.validation.openAPIV3Schema"
RULE = f"{P}.properties[spec].x-kubernetes-validations[0]"


def errors(properties: dict[str, Any], **rule: Any) -> list[str]:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
    return whole({"type": "object", "properties": {"spec": spec}})


def whole(schema: dict[str, Any]) -> list[str]:
    read = msgspec.convert(schema, JSONSchemaProps)
    return [str(each) for each in validate_cel_rules(read, P)]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["case"])
def test_published_schemas(case: dict[str, Any]) -> None:
    found = whole(case["schema"])
    if "refused" not in case:
        assert found == []
    else:
        field, words = case["refused"]
        assert found[0].startswith(f"{P}.{field}: ")
        assert words in found[0]


INT = {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("self.b > 1", "compilation failed: ERROR: <input>:1:5: undefined field 'b'"),
        ("self.a", "cel expression must evaluate to a bool"),
        ("self.a == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ],
)
def test_a_rule_that_does_not_compile_is_refused(rule: str, words: str) -> None:
    (found,) = errors(INT, rule=rule)
    assert found.startswith(f"{RULE}.rule: Invalid value: ")
    assert words in found


def test_a_good_rule_is_accepted() -> None:
    assert errors(INT, rule="self.a > 1", messageExpression="'a is %d'.format([self.a])") == []


def test_a_message_must_be_a_string_and_cheap() -> None:
    (found,) = errors(INT, rule="self.a > 1", messageExpression="self.a")
    assert found.endswith("messageExpression must evaluate to a string")
    found, *_ = errors(INT, rule="self.a > 1", messageExpression="'a' + string(self.a)")
    assert "estimated messageExpression cost exceeds budget by factor of more than 100x" in found


def test_optional_old_self_needs_old_self() -> None:
    (found,) = errors(INT, rule="self.a > 1", optionalOldSelf=True)
    why = "may not be set if oldSelf is not used in rule"
    assert found == f"{RULE}.optionalOldSelf: Invalid value: true: {why}"


def listed(rule: str, items: dict[str, Any], **bounds: Any) -> list[str]:
    return errors({"l": {"type": "array", "items": items, **bounds}}, rule=rule)


TEXT = {"type": "string"}
UNIQUE = "self.l.all(x, self.l.exists_one(y, x == y))"


@pytest.mark.parametrize(
    ("rule", "items", "bounds", "factor"),
    [
        ("self.l.all(x, x.startsWith('a'))", TEXT, {}, ""),
        ("self.l.all(x, self.l.exists(y, x == y))", TEXT, {}, "more than 100x"),
        (UNIQUE, {"type": "string", "maxLength": 63}, {"maxItems": 1000}, "3.0x"),
        (UNIQUE, {"type": "string", "maxLength": 63}, {"maxItems": 100}, ""),
    ],
)
def test_a_rule_that_may_cost_too_much_is_refused(
    rule: str, items: dict[str, Any], bounds: dict[str, Any], factor: str
) -> None:
    found = listed(rule, items, **bounds)
    if not factor:
        assert found == []
    else:
        start = f"{RULE}.rule: Forbidden: estimated rule cost exceeds budget by factor of {factor}"
        assert found[0].startswith(start)


def test_all_rules_of_a_schema_together_may_cost_too_much() -> None:
    """As seen: each of the fourteen is estimated at 8,140,502, and four of them are named."""
    rule = "self.all(x, self.exists(y, x == y && x.matches('abcdefghijklmnopqrstuvwxyz12')))"
    items = {"type": "string", "maxLength": 250}
    field = {
        "type": "array",
        "maxItems": 100,
        "items": items,
        "x-kubernetes-validations": [{"rule": rule}],
    }
    spec = {"type": "object", "properties": {f"l{number:02}": field for number in range(14)}}
    *named, last = whole({"type": "object", "properties": {"spec": spec}})
    assert len(named) == 4
    for each in named:
        assert each.endswith(
            "x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total "
            "exceeding cost limit for entire OpenAPIv3 schema"
        )
    assert last.startswith(
        f"{P}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 "
        "schema exceeds budget by factor of 1.139670x (try "
    )


def test_old_self_has_no_counterpart_below_an_atomic_list() -> None:
    item = {**{"type": "integer"}, "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": item}}}
    (found,) = whole(schema)
    assert found.endswith(f"uncorrelatable portion of the schema within {P}.properties[l]")


def test_limits_without_sense_are_refused_like_any_that_is_too_large() -> None:
    rules = [{"rule": "self.size() > 0", "messageExpression": "self"}]
    schema: dict[str, Any] = {"type": "string", "x-kubernetes-validations": rules}
    for _ in range(40):
        schema = {"type": "array", "items": schema, "maxItems": 2**62}
    found = whole({"type": "object", "properties": {"spec": schema}})
    assert "estimated rule cost exceeds budget by factor of more than 100x" in found[0]
