from typing import Any

from kedge.api.apiextensions_v1 import custom_resource_definition
from kedge.api.model import Document
from kedge.api.presentation import Age
from kedge.api.resource import Resource
from kedge.apiserver.crd.resources import resources_of
from kedge.apiserver.crd.rule_cache import RuleCache
from kedge.testing.custom_resources import no_webhook

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["color"],
            "properties": {
                "color": {"type": "string"},
                "replicas": {"type": "integer", "default": 3},
            },
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    },
}


def resources(*versions: dict[str, Any], **spec: Any) -> list[Resource[Document]]:
    kind = custom_resource_definition.RESOURCE
    document = {
        "metadata": {"name": "tabs.a.example.com"},
        "spec": {
            "group": "a.example.com",
            "scope": "Namespaced",
            "names": {"plural": "tabs", "kind": "Tab", "shortNames": ["t"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": True, "schema": {"openAPIV3Schema": SCHEMA}, **version}
                for version in versions
            ],
            **spec,
        },
    }
    return resources_of(
        kind.strategy.default(kind.from_document(document)), RuleCache(), no_webhook
    )


def one(**version: Any) -> Resource[Document]:
    (resource,) = resources({"storage": True, **version})
    return resource


def tab(resource: Resource[Document], **content: Any) -> Document:
    metadata = {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return resource.from_document({"metadata": metadata, **content})


def test_how_the_kind_is_called_and_stored() -> None:
    resource = one()
    assert resource.api_version == "a.example.com/v1"
    assert (resource.kind, resource.list_kind, resource.singular) == ("Tab", "TabList", "tab")
    assert resource.key("default", "x") == "/registry/a.example.com/tabs/default/x"
    assert resource.schema.name == "com.example.a.v1.Tab"
    assert (resource.custom, resource.strategy.allows_unconditional_update) == (True, False)
    assert (tuple(resource.presentation.short_names), tuple(resource.presentation.categories)) == (
        ("t",),
        ("all",),
    )


def test_a_kind_may_live_in_no_namespace() -> None:
    (resource,) = resources({"storage": True}, scope="Cluster")
    assert not resource.namespaced


def test_an_object_is_defaulted_and_judged() -> None:
    resource = one()
    obj = resource.strategy.default(tab(resource, spec={}))
    assert obj.content == {"spec": {"replicas": 3}}
    assert [str(error) for error in resource.strategy.validate_new(obj)] == [
        "spec.color: Required value"
    ]


def test_a_name_can_be_restricted() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 0}}}
    schema = {"type": "object", "properties": {"metadata": metadata}}
    resource = one(schema={"openAPIV3Schema": schema})
    found = [str(error) for error in resource.strategy.validate_new(tab(resource))]
    assert found == ["metadata.name: Too long: may not be more than 0 bytes"]


def test_a_write_to_status_is_judged_by_the_schema_of_status_alone() -> None:
    resource = one(subresources={"status": {}})
    obj = tab(resource, status={"replicas": "many"})
    assert resource.has_status
    before = tab(resource, status={"replicas": 1})
    assert [str(error) for error in resource.strategy.validate_status(obj, before)] == [
        'status.replicas: Invalid value: "string": '
        'replicas in body must be of type integer: "string"'
    ]


def test_scale_is_where_the_author_says() -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    resource = one(subresources={"scale": scale})
    assert resource.scale is not None
    assert resource.scale.selector == ""
    assert resource.subresource("scale") is not None
    obj = tab(resource, spec={"color": "red", "replicas": -1})
    found = [str(error) for error in resource.strategy.validate_new(obj)]
    assert found == [".spec.replicas: Invalid value: -1: should be a non-negative integer"]


def cells(type_: str, path: str, **content: Any) -> object:
    column = {"name": "X", "type": type_, "jsonPath": path}
    resource = one(additionalPrinterColumns=[column])
    return resource.presentation.columns[1].cell(tab(resource, **content))


def test_columns_show_what_their_path_finds() -> None:
    spec = {"n": 5, "f": 1.5, "b": True, "s": "text", "o": {"a": [1]}, "l": [{"x": "y"}]}
    assert cells("string", ".spec.s", spec=spec) == "text"
    assert cells("string", ".spec.n", spec=spec) == "5"
    assert cells("string", ".spec.b", spec=spec) == "true"
    assert cells("string", ".spec.o", spec=spec) == '{"a":[1]}'
    assert cells("string", ".spec.l[0].x", spec=spec) == "y"
    assert cells("integer", ".spec.f", spec=spec) == 1
    assert cells("number", ".spec.n", spec=spec) == 5.0
    assert cells("boolean", ".spec.b", spec=spec) is True
    assert cells("integer", ".spec.s", spec=spec) is None
    assert cells("string", ".spec.none", spec=spec) is None


def test_a_date_is_shown_as_an_age() -> None:
    created = cells("date", ".metadata.creationTimestamp")
    assert created == Age("2026-01-02T03:04:05Z")
    assert cells("date", ".spec.s", spec={"s": "soon"}) == "<invalid>"


def test_without_columns_of_its_own_a_kind_shows_ages() -> None:
    resource = one()
    name, age = resource.presentation.columns
    assert (name.name, age.name, age.type) == ("Name", "Age", "date")
    assert age.cell(tab(resource)) == Age("2026-01-02T03:04:05Z")


def test_objects_are_selected_by_the_fields_the_author_names() -> None:
    fields = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.replicas"}]
    resource = one(selectableFields=fields)
    obj = tab(resource, spec={"color": "red"})
    found = {name: select(obj) for name, select in resource.presentation.fields.items()}
    assert found == {"spec.color": "red", "spec.replicas": ""}


def test_all_versions_are_views_of_the_one_that_is_stored() -> None:
    beta, stable = {"name": "v1beta1"}, {"name": "v1", "storage": True}
    stored, view = resources(beta, stable)
    assert (stored.version, stored.store_as) == ("v1", None)
    assert view.store_as is not None
    assert view.store_as.resource is stored
    document = {"apiVersion": "a.example.com/v1", "spec": {"color": "red"}}
    seen = view.store_as.from_stored(document)
    assert seen == {"apiVersion": "a.example.com/v1beta1", "spec": {"color": "red"}}
    assert view.store_as.to_stored(seen) == document


def test_a_stored_version_need_not_be_served() -> None:
    (view,) = resources({"name": "v2"}, {"name": "v1", "storage": True, "served": False})
    assert view.version == "v2"
    assert view.store_as is not None
    assert view.store_as.resource.version == "v1"


def test_writers_of_an_old_version_are_warned() -> None:
    _, old, odd = resources(
        {"name": "v1", "storage": True},
        {"name": "v1beta1", "deprecated": True},
        {"name": "v1alpha1", "deprecated": True, "deprecationWarning": "go away"},
    )
    assert list(old.strategy.warnings(tab(old))) == [
        "a.example.com/v1beta1 Tab is deprecated; use a.example.com/v1 Tab"
    ]
    assert list(odd.strategy.warnings(tab(odd))) == ["go away"]


def test_finalizers_should_have_a_domain() -> None:
    resource = one()
    obj = resource.from_document({"metadata": {"finalizers": ["a.com/x", "a.com", "b", "orphan"]}})
    assert list(resource.strategy.warnings(obj)) == [
        'metadata.finalizers: "a.com": prefer a domain-qualified finalizer name including a path '
        "(/) to avoid accidental conflicts with other finalizer writers",
        'metadata.finalizers: "b": prefer a domain-qualified finalizer name '
        "to avoid accidental conflicts with other finalizer writers",
    ]
