"""Types as OpenAPI components, in both versions."""

from typing import Any

import pytest

from kedge.api.builtin.resources import RESOURCES
from kedge.api.model import Document
from kedge.api.openapi_schemas import Components
from kedge.api.resource import Resource
from kedge.machinery.schema import Schema

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
INGRESS = next(each for each in RESOURCES if each.kind == "Ingress")


def custom(root: Schema) -> Resource[Document]:
    return Resource(
        type=Document,
        group="stable.example.com",
        kind="Foo",
        plural="foos",
        schema_source=lambda: root,
        custom=True,
    )


def published(root: Schema, *, v2: bool = False) -> dict[str, Any]:
    """A CRD's own part of what is published for its kind."""
    components = Components(v2=v2)
    components.add_kind(custom(root))
    written = dict(components.written["com.example.stable.v1.Foo"])
    properties = {
        name: field
        for name, field in written.get("properties", {}).items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    del written["x-kubernetes-group-version-kind"]
    return {**written, "properties": properties} if "properties" in written else written


def test_kinds_come_with_their_list_and_all_they_are_made_of() -> None:
    components = Components(v2=False)
    assert components.add_kind(INGRESS) == {
        "$ref": "#/components/schemas/io.k8s.api.networking.v1.Ingress"
    }
    kind = components.written["io.k8s.api.networking.v1.Ingress"]
    assert kind["x-kubernetes-group-version-kind"] == [
        {"group": "networking.k8s.io", "kind": "Ingress", "version": "v1"}
    ]
    listed = components.written["io.k8s.api.networking.v1.IngressList"]
    assert listed["required"] == ["items"]
    assert listed["x-kubernetes-group-version-kind"][0]["kind"] == "IngressList"
    assert f"{META}.ObjectMeta" in components.written
    assert "io.k8s.api.networking.v1.HTTPIngressPath" in components.written


def test_references_carry_what_the_field_says_in_both_versions() -> None:
    name = "io.k8s.api.core.v1.PersistentVolumeSpec"
    for v2, prefix in ((True, "#/definitions/"), (False, "#/components/schemas/")):
        components = Components(v2=v2)
        components.ref(name)
        claim = components.written[name]["properties"]["claimRef"]
        reference = {"$ref": f"{prefix}io.k8s.api.core.v1.ObjectReference"}
        granular = {"x-kubernetes-map-type": "granular"}
        assert claim == (reference | granular if v2 else {"allOf": [reference], **granular})


def test_merge_keys_and_list_keys_are_published() -> None:
    components = Components(v2=False)
    components.ref("io.k8s.api.admissionregistration.v1.MutatingWebhook")
    written = components.written["io.k8s.api.admissionregistration.v1.MutatingWebhook"]
    conditions = written["properties"]["matchConditions"]
    assert {word: value for word, value in conditions.items() if word.startswith("x-")} == {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-patch-strategy": "merge",
    }
    assert written["properties"]["rules"]["x-kubernetes-list-type"] == "atomic"


def test_scalars_of_kubernetes_are_components() -> None:
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    either = {"oneOf": [{"type": "string"}, {"type": "number"}]}
    for v2, written in ((True, {"type": "string"}), (False, either)):
        components = Components(v2=v2)
        components.ref("io.k8s.api.node.v1.Overhead")
        assert components.written[quantity] == written
        components.ref(f"{META}.ObjectMeta")
        assert components.written[f"{META}.Time"] == {"type": "string", "format": "date-time"}


def test_types_that_hold_themselves_end() -> None:
    name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    components = Components(v2=False)
    components.ref(name)
    properties = components.written[name]["properties"]["properties"]
    assert properties["additionalProperties"] == {"$ref": f"#/components/schemas/{name}"}


BARS = Schema(
    type="list",
    description="List of Bars.",
    items=Schema(
        type="object",
        required=("name",),
        fields={
            "name": Schema(type="string", description="Name of Bar."),
            "feeling": Schema(type="string", keywords={"enum": ["Great", "Down"]}),
            "extra": Schema(type="object"),
        },
    ),
)
FOO = Schema(
    type="object",
    description="Foo for testing",
    fields={"spec": Schema(type="object", fields={"bars": BARS})},
)


@pytest.mark.parametrize("v2", [True, False])
def test_schema_of_a_crd_is_published_as_it_was_written(v2: bool) -> None:
    assert published(FOO, v2=v2) == {
        "type": "object",
        "description": "Foo for testing",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "bars": {
                        "type": "array",
                        "description": "List of Bars.",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "description": "Name of Bar."},
                                "feeling": {"type": "string", "enum": ["Great", "Down"]},
                                "extra": {"type": "object"},
                            },
                        },
                    }
                },
            }
        },
    }


def test_custom_kinds_have_what_every_object_has() -> None:
    components = Components(v2=False)
    components.add_kind(custom(FOO))
    properties = components.written["com.example.stable.v1.Foo"]["properties"]
    assert properties["apiVersion"]["description"].startswith("APIVersion defines")
    assert properties["metadata"]["description"].startswith("Standard object's metadata")
    assert properties["metadata"]["allOf"] == [{"$ref": f"#/components/schemas/{META}.ObjectMeta"}]


def test_open_kind_has_no_properties_in_version_2() -> None:
    root = Schema(type="object", open=True, description="d", fields={"a": Schema(type="string")})
    assert published(root, v2=True) == {"type": "object"}
    assert published(root) == {
        "type": "object",
        "description": "d",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"a": {"type": "string"}},
    }


def test_version_2_leaves_out_what_kubectl_takes_wrongly() -> None:
    inner = {"a": Schema(type="string")}
    root = Schema(
        type="object",
        required=("maybe", "sure"),
        fields={
            "open": Schema(type="object", open=True, fields=inner),
            "maybe": Schema(type="object", nullable=True, fields=inner),
            "sure": Schema(type="int-or-string", keywords={"anyOf": [{}], "maximum": 3}),
        },
    )
    assert published(root, v2=True) == {
        "type": "object",
        "required": ["sure"],
        "properties": {
            "open": {"x-kubernetes-preserve-unknown-fields": True},
            "maybe": {},
            "sure": {"x-kubernetes-int-or-string": True, "maximum": 3},
        },
    }
    assert published(root)["properties"]["maybe"] == {
        "type": "object",
        "nullable": True,
        "properties": {"a": {"type": "string"}},
    }


def test_embedded_objects_are_whole_objects() -> None:
    root = Schema(
        type="object", fields={"template": Schema(type="object", embedded=True, fields={})}
    )
    template = published(root)["properties"]["template"]
    assert template["x-kubernetes-embedded-resource"] is True
    assert sorted(template["properties"]) == ["apiVersion", "kind", "metadata"]
    assert template["required"] == ["kind", "apiVersion"]
