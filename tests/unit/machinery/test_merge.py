import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import fields
from kedge.machinery.merge import faults, merge
from kedge.machinery.schema import Schema

TEXT = Schema(type="string")
ITEM = Schema(
    type="object",
    fields={"name": TEXT, "image": TEXT, "args": Schema(type="list", items=TEXT)},
)
SPEC = Schema(
    type="object",
    fields={
        "items": Schema(type="list", items=ITEM, list_type="map", list_keys=("name",)),
        "marks": Schema(type="list", items=TEXT, list_type="set"),
        "replicas": Schema(type="integer"),
        "paused": Schema(type="boolean"),
        "amount": Schema(type="quantity"),
        "labels": Schema(type="map", items=TEXT),
        "selector": Schema(type="object", atomic=True, fields={"labels": TEXT, "other": TEXT}),
        "free": Schema(type="any"),
        "maybe": Schema(type="string", nullable=True),
    },
)


def names(*given: str) -> list[dict[str, str]]:
    return [{"name": name} for name in given]


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ({"labels": {"a": "1"}}, {"labels": {"b": "2"}}, {"labels": {"a": "1", "b": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {}}, {"labels": {"a": "1"}}),
        ({"labels": {"a": "1"}}, {"labels": None}, {"labels": {"a": "1"}}),
        ({"replicas": 1}, {"replicas": None}, {"replicas": None}),
        ({"maybe": "x"}, {"maybe": None}, {"maybe": None}),
        ({"selector": {"labels": "a"}}, {"selector": {"other": "b"}}, {"selector": {"other": "b"}}),
        (
            {"items": [{"name": "a", "image": "x", "args": ["1"]}]},
            {"items": [{"name": "a", "args": ["2"]}]},
            {"items": [{"name": "a", "image": "x", "args": ["2"]}]},
        ),
        ({"marks": ["x", "y"]}, {"marks": ["z", "y"]}, {"marks": ["x", "z", "y"]}),
        ({}, {"labels": {"a": None}, "items": [{"name": "b", "image": None}]},
         {"labels": {"a": None}, "items": [{"name": "b", "image": None}]}),
        ({"items": names("a", "a")}, {"items": names("a")}, {"items": names("a")}),
    ],
)  # fmt: skip
def test_the_config_is_laid_over_the_live_document(live: Any, config: Any, expected: Any) -> None:
    before = copy.deepcopy((live, config))
    assert merge(SPEC, live, config) == expected
    assert (live, config) == before


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("abc", "xb", "axbc"),
        ("abc", "bx", "abcx"),
        ("abcd", "db", "acdb"),
        ("ab", "xy", "abxy"),
        ("", "ba", "ba"),
    ],
)
def test_items_follow_the_config_and_others_stay_where_they_were(
    live: str, config: str, expected: str
) -> None:
    merged = merge(SPEC, {"items": names(*live)}, {"items": names(*config)})
    assert merged.get("items") == names(*expected)


letters = st.lists(st.sampled_from("abcdefg"), unique=True)


@given(letters, letters)
def test_merging_twice_changes_nothing_more(live: list[str], config: list[str]) -> None:
    once = merge(SPEC, {"marks": live}, {"marks": config})
    assert merge(SPEC, once, {"marks": config}) == once
    assert [mark for mark in once["marks"] if mark in config] == config
    assert [m for m in once["marks"] if m not in config] == [m for m in live if m not in config]


@given(letters, letters)
def test_a_merged_document_has_the_fields_of_both(live: list[str], config: list[str]) -> None:
    a, b = {"marks": live}, {"marks": config}
    both = fields.union(fields.of(SPEC, a), fields.of(SPEC, b))
    assert fields.of(SPEC, merge(SPEC, a, b)) == both


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"foo": 1}, ".foo: field not declared in schema"),
        ({"items": [{"name": "a", "b": 1}]}, '.items[name="a"].b: field not declared in schema'),
        ({"replicas": "1"}, ".replicas: expected numeric (int or float), got string"),
        ({"paused": "yes"}, ".paused: expected boolean, got &{yes}"),
        (
            {"labels": {"a": 1}},
            ".labels.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        ({"amount": [1]}, ".amount: expected any scalar, got &{[1]}"),
        ({"labels": "x"}, ".labels: expected map, got &{x}"),
        ({"items": {"a": 1}}, ".items: expected list, got &{map[a:1]}"),
        ({"items": names("a", "a")}, '.items: duplicate entries for key [name="a"]'),
        ({"marks": ["a", "a"]}, '.marks: duplicate entries for key [="a"]'),
        (
            {"items": [{"image": "x"}]},
            ".items: element 0: associative list with keys has an element that omits all key "
            "fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        ("x", "expected map, got &{x}"),
    ],
)  # fmt: skip
def test_a_config_that_does_not_fit_is_described(config: Any, fault: str) -> None:
    assert faults(SPEC, config) == [fault]


def test_a_config_that_fits_has_no_faults() -> None:
    config = {
        "items": [{"name": "a", "args": ["x", "x"]}],
        "replicas": 1,
        "amount": 5,
        "labels": None,
        "free": {"a": [{"b": 1}]},
    }
    assert faults(SPEC, config) == []
