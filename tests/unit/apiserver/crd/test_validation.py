from typing import Any

from kedge.api.resource import ScalePaths
from kedge.apiserver.crd.schema import from_openapi
from kedge.apiserver.crd.validation import (
    validate,
    validate_embedded,
    validate_lists,
    validate_scale,
)
from kedge.machinery.schema import Schema


def schema(**properties: Any) -> Schema:
    return from_openapi({"type": "object", "properties": properties})


def test_values_are_held_against_the_schema() -> None:
    (error,) = validate({"type": "object", "required": ["spec"]}, {})
    assert str(error) == "spec: Required value"


def test_a_set_has_no_element_twice() -> None:
    tags = schema(tags={"type": "array", "items": {}, "x-kubernetes-list-type": "set"})
    found = validate_lists(tags, {"tags": ["a", "b", "a", "a", {"x": 1}, {"x": 1}]})
    assert [str(error) for error in found] == [
        'tags[2]: Duplicate value: "a"',
        'tags[5]: Duplicate value: {"x":1}',
    ]


def test_a_keyed_list_has_no_key_twice() -> None:
    ports = schema(
        ports={
            "type": "array",
            "items": {"type": "object"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
        }
    )
    given = [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 1, "name": "x"}]
    assert [str(error) for error in validate_lists(ports, {"ports": given})] == [
        'ports[2]: Duplicate value: {"port":1}'
    ]
    assert [str(error) for error in validate_lists(ports, {"ports": [1]})] == [
        "ports[0]: Invalid value: 1: must be an object for an array of list-type map"
    ]


def test_a_resource_within_a_resource_is_one() -> None:
    template = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    objects = schema(objects={"type": "array", "items": template})
    given = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "b"}}},
        {"kind": "9"},
        {"apiVersion": "", "kind": "A", "metadata": {"name": "a/b"}},
        {"apiVersion": "a/b/c", "kind": 5, "metadata": {"labels": 1}},
    ]
    found = [str(error) for error in validate_embedded(objects, {"objects": given})]
    assert found == [
        "objects[1].apiVersion: Required value",
        'objects[1].kind: Invalid value: "9": may have mixed case, but should otherwise match: '
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
        "an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
        "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        'objects[2].apiVersion: Invalid value: "": must not be empty',
        "objects[2].metadata.name: Invalid value: \"a/b\": may not contain '/'",
        'objects[3].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        "objects[3].kind: Invalid value: 5: must be a string",
        'objects[3].metadata: Invalid value: {"labels":1}: Expected `object`, got `int` '
        "- at `$.labels`",
    ]


def test_what_scale_shows_are_sensible_numbers() -> None:
    paths = ScalePaths(".spec.replicas", ".status.replicas", ".status.selector")
    given = {"spec": {"replicas": -1}, "status": {"replicas": 2**31, "selector": 5}}
    assert [str(error) for error in validate_scale(paths, given)] == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        ".status.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
        '.status.selector: Invalid value: "": .status.selector accessor error: '
        "5 is of the type int64, expected string",
    ]
    assert list(validate_scale(paths, {})) == []
