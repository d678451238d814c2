"""The estimator: figures that a kube-apiserver printed."""

from pathlib import Path
from typing import Any

import pytest

from kedge.machinery.cel import CelProgram, uses
from kedge.machinery.cel.schema_types import declared_type
from kedge.machinery.yaml_text import read

TABLE: dict[str, dict[str, float]] = read((Path(__file__).parent / "estimates.yaml").read_text())
ITEMS: dict[str, dict[str, Any]] = {
    "integers": {"type": "integer"},
    "strings": {"type": "string", "maxLength": 25},
}


def estimate(rule: str, schema: dict[str, Any]) -> int:
    declared = declared_type(schema)
    assert declared is not None
    return CelProgram(rule, uses.crd_rule(declared.type)).estimate(declared.size)


def of_list(rule: str, items: dict[str, Any], count: int | None) -> int:
    bound = {} if count is None else {"maxItems": count}
    listed = {"type": "array", "items": items, **bound}
    return estimate(rule, {"type": "object", "properties": {"l": listed}})


@pytest.mark.parametrize(
    ("kind", "rule"), [(kind, rule) for kind, rules in TABLE.items() for rule in rules]
)
def test_an_item_adds_what_a_real_server_adds(kind: str, rule: str) -> None:
    added = of_list(rule, ITEMS[kind], 2000) - of_list(rule, ITEMS[kind], 1000)
    assert added == pytest.approx(TABLE[kind][rule] * 1000, abs=1)


def test_the_whole_formula_of_nested_loops() -> None:
    rule = "self.all(x, self.exists(y, x == y && x.matches('abcdefghijklmnopqrstuvwxyz12')))"
    items = {"type": "string", "maxLength": 250}
    assert estimate(rule, {"type": "array", "maxItems": 100, "items": items}) == 8_140_502


@pytest.mark.parametrize("rule", ["self.l.distinct().size() > 0", "self.l.sort().size() > 0"])
def test_comparing_all_pairs_grows_with_the_square(rule: str) -> None:
    rest = 4  # self, l, size(), >
    assert of_list(rule, ITEMS["integers"], 1000) == 2 * 1000**2 + 11 + rest


@pytest.mark.parametrize(
    ("rule", "is_cheap"),
    [
        ("self.l.all(x, x.startsWith('a'))", True),
        ("self.l.all(x, self.l.exists(y, x == y))", False),
        ("self.l.all(x, x.matches('^a+$'))", False),
    ],
)
def test_an_unbounded_list_is_as_large_as_a_request(rule: str, is_cheap: bool) -> None:
    assert (of_list(rule, {"type": "string"}, None) <= 10_000_000) is is_cheap


def test_a_text_of_a_number_may_be_of_any_length_and_a_formatted_one_is_not() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert estimate("'a is ' + string(self.a)", schema) > 1_000_000_000
    assert estimate("'a is %d'.format([self.a])", schema) < 100


def test_keys_of_maps_count_as_empty() -> None:
    """Rules of the Gateway API match the keys of a map with eight entries against long patterns."""
    values = {"type": "string", "maxLength": 4096}
    schema = {"type": "object", "maxProperties": 8, "additionalProperties": values}
    assert estimate("self.all(key, key.matches('^[a-z]{1,63}$'))", schema) < 100
    assert estimate("self.all(key, self[key].matches('^[a-z]{1,63}$'))", schema) > 10_000
