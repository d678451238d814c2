from msgspec.structs import replace

from kedge.api.core_v1.namespace import RESOURCE, Namespace, NamespaceSpec, NamespaceStatus
from kedge.api.model import ObjectMeta


def test_a_new_namespace_is_active_labelled_and_held_by_the_cluster() -> None:
    given = Namespace(
        metadata=ObjectMeta(name="team"), spec=NamespaceSpec(finalizers=["example.com/mine"])
    )
    new = RESOURCE.strategy.prepare_for_create(RESOURCE.strategy.default(given))
    assert new.metadata.labels == {"kubernetes.io/metadata.name": "team"}
    assert new.spec.finalizers == ["example.com/mine", "kubernetes"]
    assert new.status.phase == "Active"


def test_the_name_label_cannot_be_talked_away() -> None:
    labels = {"kubernetes.io/metadata.name": "other", "a": "b"}
    updated = RESOURCE.strategy.default(Namespace(metadata=ObjectMeta(name="team", labels=labels)))
    assert updated.metadata.labels == {"kubernetes.io/metadata.name": "team", "a": "b"}


def test_an_ordinary_update_leaves_the_finalizers_alone() -> None:
    old = Namespace(spec=NamespaceSpec(finalizers=["kubernetes"]))
    assert RESOURCE.strategy.prepare_for_update(Namespace(), old).spec.finalizers == ["kubernetes"]


def test_the_phase_follows_deletion() -> None:
    live = Namespace(status=NamespaceStatus(phase="Terminating"))
    (error,) = RESOURCE.strategy.validate_status(live, live)
    assert str(error).endswith("may only be 'Active' if `deletionTimestamp` is empty")
    leaving = replace(live, metadata=ObjectMeta(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert list(RESOURCE.strategy.validate_status(leaving, live)) == []


def test_namespaces_cannot_be_deleted_all_at_once() -> None:
    assert "deletecollection" not in RESOURCE.verbs
    assert "delete" in RESOURCE.verbs
