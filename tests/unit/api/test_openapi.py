"""The OpenAPI documents as a whole."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kedge.api import openapi
from kedge.api.catalog import BUILT_IN

PATHS = openapi.v3_paths(BUILT_IN)


@cache
def document_of(path: str) -> dict[str, Any]:
    return openapi.v3_document(*PATHS[path], BUILT_IN)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def operations(paths: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in paths.values():
        yield from (value for key, value in item.items() if key != "parameters")


def test_every_group_and_version_has_a_document() -> None:
    assert PATHS["api/v1"] == ("", "v1")
    assert PATHS["apis/autoscaling/v2"] == ("autoscaling", "v2")
    index = openapi.v3_index({"api/v1": "AB"})
    assert index == {"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=AB"}}}


@pytest.mark.parametrize("path", PATHS)
def test_document_is_whole(path: str) -> None:
    document = document_of(path)
    prefix = "#/components/schemas/"
    schemas = document["components"]["schemas"]
    assert {each.removeprefix(prefix) for each in references(document)} <= schemas.keys()
    assert all(each.startswith(f"/{path}/") for each in document["paths"])
    names = [operation["operationId"] for operation in operations(document["paths"])]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", PATHS)
def test_every_kind_that_can_be_patched_is_found_by_its_kind(path: str) -> None:
    group, version = PATHS[path]
    document = document_of(path)
    found = [
        operation["x-kubernetes-group-version-kind"]["kind"]
        for operation in operations(document["paths"])
        if operation["x-kubernetes-action"] == "patch"
    ]
    wanted = {
        resource.kind
        for resource in BUILT_IN
        if (resource.group, resource.version) == (group, version) and "patch" in resource.verbs
    }
    assert wanted <= set(found)


def test_version_2_is_whole() -> None:
    document = openapi.v2_document(BUILT_IN)
    prefix = "#/definitions/"
    found = {each.removeprefix(prefix) for each in references(document)}
    assert found <= document["definitions"].keys()
    names = [operation["operationId"] for operation in operations(document["paths"])]
    assert len(names) == len(set(names))


def test_fields_are_described_where_kedge_knows_the_kind() -> None:
    schemas = document_of("api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["description"] != ""
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert schemas["io.k8s.api.core.v1.Pod"]["description"] != ""


def test_options_of_every_group_are_one_type() -> None:
    schemas = document_of("apis/apps/v1")["components"]["schemas"]
    options = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    assert options["x-kubernetes-group-version-kind"] == [
        {"group": "", "kind": "DeleteOptions", "version": "v1"},
        {"group": "apps", "kind": "DeleteOptions", "version": "v1"},
    ]
