"""From a schema to types and values."""

from typing import Any

import pytest

from kedge.machinery.cel import CelError, CelProgram, uses
from kedge.machinery.cel.schema_types import converter, declared_type, escape


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a", "a"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("$ref", None),
        ("1a", None),
    ],
)
def test_names_are_escaped_as_rules_write_them(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


def holds(rule: str, schema: dict[str, Any], value: Any) -> bool:
    declared = declared_type(schema)
    assert declared is not None
    convert = converter(schema)
    given = convert(value) if convert else value
    return bool(CelProgram(rule, uses.crd_rule(declared.type)).run({"self": given})[0])


FIELDS = {
    "type": "object",
    "properties": {
        "x-y": {"type": "integer"},
        "namespace": {"type": "string"},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "wait": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"},
        "ratio": {"type": "number"},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            },
        },
        "untyped": {},
    },
}


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.x__dash__y == 1", {"x-y": 1}),
        ("self.namespace == 'a' && self.__namespace__ == 'a'", {"namespace": "a"}),
        ("self.when > timestamp('2020-01-01T00:00:00Z')", {"when": "2021-01-01T00:00:00Z"}),
        ("self.day.getFullYear() == 2021", {"day": "2021-01-01"}),
        ("self.wait <= duration('1h')", {"wait": "59m"}),
        ("self.raw == b'a'", {"raw": "YQ=="}),
        ("self.ratio == 1.0", {"ratio": 1}),
        ("type(self.port) == int && self.port < 5", {"port": 1}),
        ("!has(self.maybe)", {"maybe": None}),
        ("self.labels.a == 'b' && self.labels['a'] == 'b'", {"labels": {"a": "b"}}),
        ("self.set == ['b', 'a'] && !(['b', 'a'] == self.set)", {"set": ["a", "b"]}),
        ("(self.set + ['a', 'c']).size() == 3", {"set": ["a", "b"]}),
    ],
)
def test_values_have_the_types_of_their_schema(rule: str, value: dict[str, Any]) -> None:
    assert holds(rule, FIELDS, value)


@pytest.mark.parametrize("field", ["untyped", "unknown", "metadata"])
def test_a_field_without_a_type_cannot_be_selected(field: str) -> None:
    with pytest.raises(CelError, match=f"undefined field '{field}'"):
        holds(f"self.{field} == 1", FIELDS, {})


def test_the_root_has_its_kind_and_its_name_but_no_labels() -> None:
    declared = declared_type({"type": "object"}, root=True)
    assert declared is not None
    environment = uses.crd_rule(declared.type)
    program = CelProgram("self.metadata.name == 'a' && self.kind == 'K'", environment)
    assert program.run({"self": {"kind": "K", "metadata": {"name": "a"}}})[0] is True
    with pytest.raises(CelError, match="undefined field 'labels'"):
        CelProgram("self.metadata.labels.a == 'b'", environment)


def test_documents_without_special_fields_are_used_as_they_are() -> None:
    assert converter({"type": "object", "properties": {"a": {"type": "integer"}}}) is None
