from typing import Any

from kedge.apiserver.crd.pruning import prune
from kedge.apiserver.crd.schema import from_openapi

SCHEMA = from_openapi(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "items": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                    },
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "free": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "properties": {"tidy": {"type": "object"}},
                    },
                    "object": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": True,
                        "properties": {"spec": {"type": "object"}},
                    },
                },
            }
        },
    }
)


def pruned(**spec: Any) -> tuple[Any, list[str]]:
    unknown: list[str] = []
    return prune(SCHEMA, {"spec": spec}, unknown)["spec"], unknown


def test_fields_that_no_schema_names_go_and_are_named() -> None:
    found, unknown = pruned(size=1, colour="red", items=[{"a": "x", "b": 1}], labels={"k": "v"})
    assert found == {"size": 1, "items": [{"a": "x"}], "labels": {"k": "v"}}
    assert unknown == ["spec.colour", "spec.items[0].b"]


def test_values_of_a_wrong_type_stay_for_validation_to_refuse() -> None:
    assert pruned(size="large", items="none", labels=[1]) == (
        {"size": "large", "items": "none", "labels": [1]},
        [],
    )


def test_what_is_kept_is_kept_one_level_deep() -> None:
    found, unknown = pruned(free={"any": {"deep": 1}, "tidy": {"x": 1}})
    assert found == {"free": {"any": {"deep": 1}, "tidy": {}}}
    assert unknown == ["spec.free.tidy.x"]


def test_embedded_resources_keep_their_head() -> None:
    given = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "b": 1}, "data": {}}
    found, unknown = pruned(object=given)
    assert found == {"object": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}}}
    assert unknown == ["spec.object.data", "spec.object.metadata.b"]


def test_integers_beyond_64_bits_are_fractions() -> None:
    least, beyond = -(2**63), 2**63
    found, _ = pruned(size=beyond, free={"any": [least, beyond, True]})
    assert repr(found) == repr(
        {"size": float(beyond), "free": {"any": [least, float(beyond), True]}}
    )
