from typing import Any

from kedge.apiserver.crd.schema import from_openapi
from kedge.machinery.schema import ANY, Schema


def field(props: dict[str, Any]) -> Schema:
    return from_openapi({"type": "object", "properties": {"x": props}}).fields["x"]


def test_every_object_has_a_kind_and_metadata() -> None:
    schema = from_openapi({"type": "object"})
    assert schema.fields.keys() == {"apiVersion", "kind", "metadata"}
    assert schema.fields["metadata"].name.endswith(".ObjectMeta")


def test_the_author_may_restrict_a_name_but_not_retype_metadata() -> None:
    props = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = from_openapi({"type": "object", "properties": {"metadata": props}})
    assert "labels" in schema.fields["metadata"].fields


def test_scalars() -> None:
    assert field({"type": "integer", "format": "int32"}).format == "int32"
    assert field({"type": "string"}).type == "string"
    assert field({"x-kubernetes-int-or-string": True}).type == "int-or-string"
    assert field({"x-kubernetes-preserve-unknown-fields": True}).type == "any"


def test_lists_and_maps_are_kept_when_empty() -> None:
    list_ = field({"type": "array", "items": {"type": "string"}})
    map_ = field({"type": "object", "additionalProperties": {"type": "integer"}})
    assert (list_.type, list_.keep_empty, list_.list_type) == ("list", True, "atomic")
    assert (map_.type, map_.keep_empty) == ("map", True)
    assert map_.items is not None
    assert map_.items.type == "integer"


def test_how_lists_and_objects_merge() -> None:
    ports = field(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object"},
        }
    )
    assert (ports.list_type, ports.list_keys) == ("map", ("port", "protocol"))
    assert field({"type": "object", "x-kubernetes-map-type": "atomic"}).atomic


def test_anything_goes_where_the_author_says_so() -> None:
    assert field({"type": "object", "additionalProperties": True}).items is ANY
    assert field({"type": "object", "x-kubernetes-preserve-unknown-fields": True}).open


def test_embedded_resources_have_metadata_too() -> None:
    embedded = field(
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        }
    )
    assert embedded.embedded
    assert "metadata" in embedded.fields


def test_other_words_are_published_as_they_stand() -> None:
    props = {"type": "string", "enum": ["a"], "default": "a", "nullable": True, "title": "T"}
    schema = field(props)
    assert schema.keywords == {"enum": ["a"], "title": "T"}
    assert (schema.default, schema.nullable) == ("a", True)
