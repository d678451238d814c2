"""Objects on their way into the store."""

from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.model import ManagedFieldsEntry
from kedge.api.resource import Resource
from kedge.apiserver.api import new_stored_bytes, to_stored_bytes
from kedge.apiserver.watchcache import splice_head
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

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


async def test_an_object_that_cannot_be_read_is_not_taken_for_absent() -> None:
    store = MemoryStore(FakeClock())
    maps = "/api/v1/namespaces/default/configmaps"
    async with LocalServer.running(store, is_shared=True) as first:
        await first.post(maps, {"metadata": {"name": "readable"}})
        await store.put("/registry/configmaps/default/foreign", b"k8s\0x", expect=0)
        await first.settle()
        for method in ("GET", "DELETE"):
            answer = await first.call(method, f"{maps}/foreign")
            assert answer.status == 500
            assert "default/foreign is stored as protobuf" in answer.message
    async with LocalServer.running(store, is_shared=True) as second:
        assert (await second.call("GET", f"{maps}/foreign")).status == 500
        names = [item["metadata"]["name"] for item in (await second.get(maps))["items"]]
        assert names == ["readable"]
        past = f"{maps}?resourceVersionMatch=Exact&resourceVersion={store.revision}"
        await second.post(maps, {"metadata": {"name": "later"}})
        page = await second.get(f"{past}&limit=1")
        assert page["items"] == []
        rest = await second.get(f"{maps}?limit=1&continue={page['metadata']['continue']}")
        names = [item["metadata"]["name"] for item in rest["items"]]
        assert names == ["readable"]
        entry = await store.get("/registry/configmaps/default/foreign")
        assert entry is not None
        await store.delete(entry.key, expect=entry.revision)
        await second.settle()
        assert (await second.call("GET", f"{maps}/foreign")).status == 404
