"""The table of published types as a source of schemas."""

from collections.abc import Mapping
from typing import Annotated

import pytest

from kedge.api.builtin import schemas
from kedge.api.builtin.resources import RESOURCES, REVIEWS
from kedge.api.builtin.schemas import PublishedTypes, described
from kedge.api.model import Model, ObjectMeta, OwnerReference, keyed

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"


@pytest.fixture
def published() -> PublishedTypes:
    return PublishedTypes({})


def test_names_are_the_full_ones() -> None:
    assert schemas.full_name("core.v1.Pod") == f"{CORE}.Pod"
    assert schemas.full_name("meta.v1.ObjectMeta") == f"{META}.ObjectMeta"
    assert schemas.full_name("apiextensions.v1.JSON") == f"{CRD}.JSON"
    raw = "io.k8s.apimachinery.pkg.runtime.RawExtension"
    assert schemas.full_name("runtime.RawExtension") == raw
    service = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService"
    assert schemas.full_name("apiregistration.v1.APIService") == service


def test_containers_are_merged_by_name(published: PublishedTypes) -> None:
    spec = published.schema(f"{CORE}.PodSpec")
    containers = spec.fields["containers"]
    assert spec.required == ("containers",)
    assert (containers.type, containers.list_type, containers.list_keys) == (
        "list",
        "map",
        ("name",),
    )
    assert (containers.merge, containers.merge_key, containers.retain_keys) == (True, "name", False)
    assert containers.items is published.schema(f"{CORE}.Container")


def test_marks_of_a_field_do_not_reach_the_type(published: PublishedTypes) -> None:
    claim = published.schema(f"{CORE}.PersistentVolumeSpec").fields["claimRef"]
    reference = published.schema(f"{CORE}.ObjectReference")
    assert (claim.atomic, reference.atomic) == (False, True)
    assert claim.fields is reference.fields


def test_lists_maps_and_scalars(published: PublishedTypes) -> None:
    meta = published.schema(f"{META}.ObjectMeta").fields
    assert (meta["finalizers"].list_type, meta["finalizers"].merge) == ("set", True)
    assert meta["labels"].type == "map"
    assert meta["labels"].items is not None
    assert meta["labels"].items.type == "string"
    assert meta["creationTimestamp"].type == "time"
    assert (meta["generation"].type, meta["generation"].format) == ("integer", "int64")
    volumes = published.schema(f"{CORE}.PodSpec").fields["volumes"]
    assert (volumes.merge_key, volumes.retain_keys) == ("name", True)
    secret = published.schema(f"{CORE}.Secret").fields["data"].items
    assert secret is not None
    assert secret.type == "bytes"
    port = published.schema(f"{CORE}.ServicePort").fields["targetPort"]
    assert port.type == "int-or-string"
    lease = published.schema("io.k8s.api.coordination.v1.LeaseSpec")
    assert lease.fields["renewTime"].type == "micro-time"
    overhead = published.schema("io.k8s.api.node.v1.Overhead").fields["podFixed"].items
    assert overhead is not None
    assert overhead.type == "quantity"
    extra = published.schema("io.k8s.api.authentication.v1.UserInfo").fields["extra"].items
    assert extra is not None
    assert extra.type == "list"


def test_some_types_hold_any_json(published: PublishedTypes) -> None:
    assert published.schema(f"{META}.FieldsV1").type == "any"
    data = published.schema("io.k8s.api.apps.v1.ControllerRevision").fields["data"]
    assert (data.type, data.name) == ("any", "io.k8s.apimachinery.pkg.runtime.RawExtension")


def test_types_may_hold_themselves(published: PublishedTypes) -> None:
    props = published.schema(f"{CRD}.JSONSchemaProps")
    assert props.fields["properties"].items is props
    assert props.fields["not"] is props


def test_selector_of_a_budget_is_replaced_as_a_whole(published: PublishedTypes) -> None:
    spec = published.schema("io.k8s.api.policy.v1.PodDisruptionBudgetSpec")
    assert spec.fields["selector"].keywords == {"x-kubernetes-patch-strategy": "replace"}


class Box(Model):
    """Things with owners."""

    metadata: ObjectMeta = ObjectMeta()
    owners: Annotated[list[OwnerReference] | None, keyed("uid")] = None
    named: Mapping[str, OwnerReference] = {}


def test_structs_take_the_place_of_what_they_describe() -> None:
    found = described([Box])
    assert found[f"{META}.ObjectMeta"] is ObjectMeta
    assert found[f"{META}.OwnerReference"] is OwnerReference
    pod = PublishedTypes(found).schema(f"{CORE}.Pod")
    assert pod.fields["metadata"].fields["name"].description != ""
    assert pod.fields["spec"].description == ""


def test_every_reference_in_the_table_leads_somewhere(published: PublishedTypes) -> None:
    for name in schemas.table():
        assert published.schema(name).name == name


def test_every_kind_of_the_list_is_in_the_table(published: PublishedTypes) -> None:
    for resource in (*RESOURCES, *REVIEWS):
        assert "metadata" in resource.schema.fields, resource.kind
        assert resource.schema.name in published
