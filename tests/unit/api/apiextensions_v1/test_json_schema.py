import msgspec
import pytest

from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps, document, every, normal


def schema(**words: object) -> JSONSchemaProps:
    return msgspec.convert(words, JSONSchemaProps)


def test_numbers_are_written_back_as_they_were_given() -> None:
    assert document(schema(minimum=1, maximum=2.5)) == {"minimum": 1, "maximum": 2.5}


def test_words_that_mean_nothing_go_from_every_schema() -> None:
    given = {"type": "object", "additionalProperties": {"type": "string", "colour": "red"}}
    assert document(normal(schema(properties={"a": given}))) == {
        "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}
    }


def test_other_fields_are_a_schema_or_a_truth() -> None:
    assert document(normal(schema(additionalProperties=True))) == {"additionalProperties": True}
    with pytest.raises(msgspec.ValidationError, match="boolean or JSON schema expected"):
        normal(schema(additionalProperties="anything"))


def test_every_schema_is_found() -> None:
    tree = schema(
        title="root",
        properties={"a": {"title": "field", "items": {"title": "item"}}},
        additionalProperties={"title": "rest"},
    )
    tree = msgspec.structs.replace(tree, anyOf=[schema(title="any")], not_=schema(title="not"))
    assert {each.title for each in every(tree)} == {"root", "field", "item", "rest", "any", "not"}
