"""Revisions: what they hold, what they are called, in which order they are."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.apps_v1.controller_revision import RESOURCE as REVISIONS
from kedge.api.apps_v1.stateful_set import RESOURCE
from kedge.controllers.workloads.history import (
    ALPHABET,
    hash_of,
    in_order,
    snapshot_of,
    template_of,
)


def owner(**spec: Any) -> Any:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}}
    template = {
        "metadata": {"labels": {"z": "1", "a": "2"}},
        "spec": {"containers": [container], **spec},
    }
    document = {"metadata": {"name": "web"}, "spec": {"template": template, "replicas": 3}}
    return RESOURCE.strategy.default(RESOURCE.from_document(document))


def test_a_snapshot_is_a_patch_of_the_template_with_keys_in_order() -> None:
    taken = snapshot_of(RESOURCE, owner())
    assert list(taken) == ["spec"]
    assert list(taken["spec"]) == ["template"]
    template = taken["spec"]["template"]
    assert list(template) == ["$patch", "metadata", "spec"]
    assert template["$patch"] == "replace"
    assert list(template["metadata"]["labels"]) == ["a", "z"]


def test_the_template_comes_back_as_it_was() -> None:
    obj = owner(nodeSelector={"a": "b"}, terminationGracePeriodSeconds=5)
    kept = msgspec.json.decode(msgspec.json.encode(snapshot_of(RESOURCE, obj)))
    revision = REVISIONS.from_document({"metadata": {"name": "r"}, "data": kept, "revision": 1})
    again = msgspec.structs.replace(
        obj, spec=msgspec.structs.replace(obj.spec, template=template_of(revision))
    )
    assert snapshot_of(RESOURCE, again) == kept


def test_revisions_are_called_what_kubernetes_calls_them() -> None:
    mount = {"name": "data", "mountPath": "/data"}
    container = {"name": "main", "image": "host", "volumeMounts": [mount]}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}}
    document = {"metadata": {"name": "db"}, "spec": {"template": template}}
    database = RESOURCE.strategy.default(RESOURCE.from_document(document))
    # The name that kube-controller-manager 1.36.4 gave to this template.
    assert hash_of(snapshot_of(RESOURCE, database)) == "749f8d5754"


def test_after_a_collision_the_hash_is_another_of_the_same_harmless_letters() -> None:
    snapshot = snapshot_of(RESOURCE, owner())
    found = {hash_of(snapshot, collisions) for collisions in range(20)}
    assert len(found) == 20
    assert set("".join(found)) <= set(ALPHABET)


@given(st.permutations([(1, "", "a"), (1, "", "b"), (2, "x", "a"), (2, "y", "a"), (3, "", "")]))
def test_revisions_are_ordered_by_number_then_age_then_name(
    found: list[tuple[int, str, str]],
) -> None:
    revisions = [
        REVISIONS.from_document(
            {"metadata": {"name": name, "creationTimestamp": made}, "data": {}, "revision": number}
        )
        for number, made, name in found
    ]
    told = [
        (each.revision, each.metadata.creationTimestamp, each.metadata.name)
        for each in in_order(revisions)
    ]
    assert told == sorted(told)
