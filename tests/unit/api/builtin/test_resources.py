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


def test_field_selectors_read_the_spec() -> None:
    slices = KINDS["ResourceSlice"]
    obj = slices.from_document(
        {"metadata": {"name": "s"}, "spec": {"nodeName": "n1", "driver": "gpu"}}
    )
    assert {path: read(obj) for path, read in slices.presentation.fields.items()} == {
        "spec.nodeName": "n1",
        "spec.driver": "gpu",
    }
    empty = slices.from_document({"metadata": {"name": "s"}})
    assert slices.presentation.fields["spec.nodeName"](empty) == ""


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


def test_writers_of_network_policies_learn_that_packets_pass() -> None:
    policies = next(each for each in RESOURCES if each.kind == "NetworkPolicy")
    (warning,) = policies.strategy.warnings(policies.from_document({"metadata": {"name": "deny"}}))
    assert "does not enforce" in warning
