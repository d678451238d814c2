import json

import pytest

from kedge.api.core_v1.config_map import RESOURCE, ConfigMap
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.client.object_views import LARGE, MOST, ObjectViews


def encoded(name: str) -> bytes:
    fields = b'"managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1"}]'
    return b'{"metadata":{"name":"%s",%s}}' % (name.encode(), fields)


def test_readers_share_one_object_without_managed_fields() -> None:
    views, body = ObjectViews(), encoded("a")
    first, second = views.of(RESOURCE).decode, views.of(RESOURCE).decode
    found = first(body)
    assert second(body) is found
    assert (found.metadata.name, list(found.metadata.managedFields)) == ("a", [])


def test_an_object_is_kept_until_its_last_reader_has_it() -> None:
    views, body = ObjectViews(), encoded("a")
    decoders = [views.of(RESOURCE).decode for _ in range(3)]
    found = [decode(body) for decode in decoders]
    assert found[0] is found[1] is found[2]
    assert decoders[0](body) is not found[0]


def test_a_reader_who_never_comes_keeps_few_objects() -> None:
    views = ObjectViews()
    first, late = views.of(RESOURCE).decode, views.of(RESOURCE).decode
    bodies = [encoded(str(number)) for number in range(MOST + 1)]
    found: list[ConfigMap] = [first(body) for body in bodies]
    assert late(bodies[1]) is found[1]
    assert late(bodies[0]) is not found[0]


@pytest.mark.parametrize(("size", "is_shared"), [(10, True), (LARGE, False)])
def test_pods_of_one_owner_share_parts_unless_they_are_large(size: int, is_shared: bool) -> None:
    meta = {"labels": {"a": "b"}, "annotations": {"note": "x" * size}}
    owned = meta | {"ownerReferences": [{"uid": "u"}], "managedFields": [{"manager": "m"}]}
    view = ObjectViews().of(PODS)
    first, second = (
        view.decode(json.dumps({"metadata": owned | {"name": name}}).encode()) for name in "ab"
    )
    assert (first.metadata.name, second.metadata.name) == ("a", "b")
    assert (second.metadata.labels is first.metadata.labels) == is_shared
    assert (*first.metadata.managedFields, *second.metadata.managedFields) == ()
