from typing import Any

from kedge.api.apps_v1.controller_revision import RESOURCE, ControllerRevision


def revision(**document: Any) -> ControllerRevision:
    return RESOURCE.from_document({"metadata": {"name": "web-1"}, **document})


def errors(**document: Any) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(revision(**document))]


def test_a_snapshot_is_an_object() -> None:
    assert errors(data={"spec": {}}, revision=1) == []
    assert errors(revision=-1) == [
        "revision: Invalid value: -1: must be greater than or equal to 0",
        "data: Required value: data is mandatory",
    ]
    assert errors(data=[1]) == ["data: Required value: data must be a valid JSON object"]


def test_a_snapshot_does_not_change_but_its_number_may() -> None:
    old = revision(data={"a": 1}, revision=1)
    assert list(RESOURCE.strategy.validate_update(revision(data={"a": 1}, revision=2), old)) == []
    changed = RESOURCE.strategy.validate_update(revision(data={"a": 2}), old)
    assert [str(error) for error in changed] == ['data: Invalid value: {"a":2}: field is immutable']


def test_what_kubectl_shows() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}
    owned = revision(metadata={"name": "web-1", "ownerReferences": [owner]}, revision=3)
    assert [column.cell(owned) for column in RESOURCE.presentation.columns[:3]] == [
        "web-1",
        "statefulset.apps/web",
        3,
    ]
    assert RESOURCE.presentation.columns[1].cell(revision()) == "<none>"
