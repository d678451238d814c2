from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.apiextensions_v1.custom_resource_definition import RESOURCE
from kedge.api.apiextensions_v1.definition import CustomResourceDefinition
from kedge.machinery.patch import apply_merge

CASES = yaml.safe_load(Path(__file__).with_name("definition_rules.yaml").read_text())
VERSION: dict[str, Any] = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
        }
    },
}
DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "crontabs.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [VERSION],
    },
}


def definition(
    change: dict[str, Any] | None = None, versions: list[dict[str, Any]] | None = None
) -> CustomResourceDefinition:
    document = apply_merge(DOCUMENT, change or {})
    if versions is not None:
        found = [apply_merge(VERSION, version) for version in versions]
        document = apply_merge(document, {"spec": {"versions": found}})
    return RESOURCE.strategy.default(RESOURCE.from_document(document))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_rules_of_definitions(case: dict[str, Any]) -> None:
    crd = definition(case.get("change"), case.get("versions"))
    assert [str(error) for error in RESOURCE.strategy.validate_new(crd)] == case["errors"]


def established(crd: CustomResourceDefinition) -> CustomResourceDefinition:
    document = {"conditions": [{"type": "Established", "status": "True"}]}
    status = msgspec.convert(document, type(crd.status))
    return msgspec.structs.replace(crd, status=status)


def test_what_names_the_stored_objects_cannot_change() -> None:
    change = {"spec": {"group": "b.com", "scope": "Cluster", "names": {"plural": "b", "kind": "B"}}}
    named = change | {"metadata": {"name": "b.b.com"}}
    found = RESOURCE.strategy.validate_update(definition(named), definition())
    assert [str(error) for error in found] == [
        'spec.group: Invalid value: "b.com": field is immutable',
        'spec.names.plural: Invalid value: "b": field is immutable',
    ]


def test_once_served_neither_scope_nor_kind_can_change() -> None:
    change = {"spec": {"scope": "Cluster", "names": {"kind": "B"}}}
    found = RESOURCE.strategy.validate_update(definition(change), established(definition()))
    assert [str(error) for error in found] == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "B": field is immutable',
    ]


def test_no_more_than_eight_fields_to_select_by() -> None:
    names = [f"f{i}" for i in range(9)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    version = {
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
        "selectableFields": [{"jsonPath": f".spec.{name}"} for name in names],
    }
    found = RESOURCE.strategy.validate_new(definition(versions=[version]))
    assert [str(error) for error in found] == [
        "spec.selectableFields: Too many: 9: must have at most 8 items"
    ]


def ruled(rule: str, **change: Any) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": rule}]}
    whole = {"type": "object", "properties": {"spec": schema}}
    return {"schema": {"openAPIV3Schema": whole}, **change}


def test_rules_of_a_schema_that_does_not_change_are_not_compiled_again() -> None:
    old = definition(versions=[ruled("self.nothing")])
    assert len(list(RESOURCE.strategy.validate_new(old))) == 1
    label = {"metadata": {"labels": {"a": "b"}}}
    labelled = definition(label, versions=[ruled("self.nothing")])
    assert list(RESOURCE.strategy.validate_update(labelled, old)) == []


def test_rules_of_a_changed_version_are_compiled() -> None:
    old = definition(versions=[ruled("self.nothing")])
    second = ruled("self.nobody", name="v2", storage=False)
    new = definition(versions=[ruled("self.nothing"), second])
    (error,) = RESOURCE.strategy.validate_update(new, old)
    assert str(error).startswith("spec.versions[1].schema.openAPIV3Schema.properties[spec]")
