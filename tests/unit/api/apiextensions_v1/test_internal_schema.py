"""Quoted schemas have the names, the order and the zero values of the internal type."""

import json
from typing import Any

import pytest

from kedge.api.apiextensions_v1.internal_schema import internal_schema

EMPTY = internal_schema({})


def test_an_empty_schema_has_every_field() -> None:
    text = json.dumps(EMPTY, separators=(",", ":"))
    assert text.startswith('{"ID":"","Schema":"","Ref":null,"Description":"","Type":"",')
    assert text.endswith(
        '"XListMapKeys":null,"XListType":null,"XMapType":null,"XValidations":null}'
    )
    assert len(EMPTY) == 44


@pytest.mark.parametrize(
    ("wire", "given", "name", "quoted"),
    [
        ("type", "object", "Type", "object"),
        ("default", {"a": 1}, "Default", {"a": 1}),
        ("items", {}, "Items", {"Schema": EMPTY, "JSONSchemas": None}),
        ("items", [{}], "Items", {"Schema": None, "JSONSchemas": [EMPTY]}),
        ("anyOf", [{}, {}], "AnyOf", [EMPTY, EMPTY]),
        ("not", {}, "Not", EMPTY),
        ("properties", {"a": {}}, "Properties", {"a": EMPTY}),
        ("additionalProperties", False, "AdditionalProperties", {"Allows": False, "Schema": None}),
        ("additionalProperties", {}, "AdditionalProperties", {"Allows": True, "Schema": EMPTY}),
        ("dependencies", {"a": ["b"]}, "Dependencies", {"a": {"Schema": None, "Property": ["b"]}}),
        ("dependencies", {"a": {}}, "Dependencies", {"a": {"Schema": EMPTY, "Property": None}}),
        ("dependencies", {"a": 5}, "Dependencies", {"a": {"Schema": None, "Property": None}}),
        ("additionalItems", 5, "AdditionalItems", 5),
        ("items", 5, "Items", 5),
        ("properties", {"a": 5}, "Properties", {"a": EMPTY}),
        ("oneOf", [5], "OneOf", [EMPTY]),
        ("externalDocs", {"url": "u"}, "ExternalDocs", {"Description": "", "URL": "u"}),
    ],
)
def test_fields_are_quoted_under_their_internal_names(
    wire: str, given: Any, name: str, quoted: Any
) -> None:
    assert internal_schema({wire: given}) == EMPTY | {name: quoted}


def test_rules_are_quoted_whole() -> None:
    (rule,) = internal_schema({"x-kubernetes-validations": [{"rule": "r"}]})["XValidations"]
    assert rule == {
        "Rule": "r",
        "Message": "",
        "MessageExpression": "",
        "Reason": None,
        "FieldPath": "",
        "OptionalOldSelf": None,
    }


@pytest.mark.parametrize("value", [5, "a", None, True, [], [5], {}, {"a": 5}, {"a": [5]}])
@pytest.mark.parametrize("wire", ["items", "not", "oneOf", "definitions", "dependencies"])
@pytest.mark.parametrize("depth", [0, 1])
def test_no_value_of_a_wrong_type_is_an_error(wire: str, value: Any, depth: int) -> None:
    given = {"additionalItems": {wire: value}} if depth else {wire: value}
    assert len(internal_schema(given)) == len(EMPTY)
    assert len(internal_schema({"externalDocs": value, "x-kubernetes-validations": value})) == 44
