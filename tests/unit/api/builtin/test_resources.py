"""The list of kinds that are served from the table."""

from typing import Any

from kedge.api.builtin.resources import RESOURCES, REVIEWS
from kedge.api.resource import Resource

KINDS: dict[str, Resource[Any]] = {each.kind: each for each in (*RESOURCES, *REVIEWS)}


def test_kinds_are_listed_once() -> None:
    assert len(KINDS) == len(RESOURCES) + len(REVIEWS)


def test_reviews_can_only_be_created() -> None:
    assert {resource.verbs for resource in REVIEWS} == {("create",)}
    assert [each.kind for each in REVIEWS if each.namespaced] == ["LocalSubjectAccessReview"]


def test_objects_are_stored_where_upstream_stores_them() -> None:
    assert KINDS["Ingress"].key("default", "web") == "/registry/ingress/default/web"
    service = KINDS["APIService"].key("", "v1.apps")
    assert service == "/registry/apiregistration.k8s.io/apiservices/v1.apps"
    assert KINDS["StorageClass"].key("", "fast") == "/registry/storageclasses/fast"


def test_documents_survive_the_round_trip() -> None:
    document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "labels": {"a": "b"}},
        "provisioner": "example.com/disk",
        "allowVolumeExpansion": True,
    }
    resource = KINDS["StorageClass"]
    assert resource.to_document(resource.from_document(document)) == document


def test_facts_that_differ_from_kind_to_kind() -> None:
    assert KINDS["RuntimeClass"].strategy.allows_create_on_update
    assert not KINDS["MutatingWebhookConfiguration"].strategy.allows_unconditional_update
    assert KINDS["Ingress"].strategy.counts_generation
    assert not KINDS["PersistentVolume"].strategy.counts_generation
    assert [sub.name for sub in KINDS["CertificateSigningRequest"].subresources] == [
        "approval",
        "status",
    ]
    assert KINDS["IPAddress"].strategy.check_name("10.0.0.01") != []
    assert KINDS["CertificateSigningRequest"].strategy.check_name("Any:Name") == []


def test_a_volume_that_was_stored_without_defaults_can_be_updated() -> None:
    source = {"server": "10.0.0.1", "path": "/data", "readOnly": False}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": source}
    resource = KINDS["PersistentVolume"]
    stored = resource.from_document({"metadata": {"name": "old"}, "spec": spec})
    new = resource.strategy.default(stored)
    assert "readOnly" not in new.content["spec"]["nfs"]
    assert list(resource.strategy.validate_update(new, stored)) == []
    moved = resource.strategy.default(
        resource.from_document(
            {"metadata": {"name": "old"}, "spec": spec | {"nfs": source | {"path": "/other"}}}
        )
    )
    (error,) = resource.strategy.validate_update(moved, stored)
    assert "spec.persistentvolumesource is immutable after creation" in str(error)
