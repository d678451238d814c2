"""Objects on their way into the store."""

from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.model import ManagedFieldsEntry
from kedge.api.resource import Resource
from kedge.apiserver.api import new_stored_bytes, to_stored_bytes
from kedge.apiserver.watchcache import splice_head

ENTRY = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:b": {}, "f:a": {}}, "f:data": {}},
}


def named(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.version}.{resource.group}"


@pytest.mark.parametrize("resource", list(Catalog()), ids=named)
def test_new_objects_are_written_like_changed_ones(resource: Resource[Any]) -> None:
    document = {"metadata": {"name": "x", "namespace": "y", "labels": {"a": "b"}}}
    obj = resource.from_document(document)
    made = new_stored_bytes(resource, obj, [ManagedFieldsEntry(**ENTRY)])  # type: ignore[arg-type]
    whole = resource.to_document(replace(obj, kind=resource.kind))
    whole["metadata"]["managedFields"] = [ENTRY]
    assert made == to_stored_bytes(resource, whole)
    if resource.store_as is None:
        assert made.startswith(splice_head(resource))
