from typing import Any

import msgspec

from kedge.api.apiextensions_v1.definition import (
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionVersion,
)
from kedge.apiserver.crd.naming import Condition, accepted_names


def definition(
    plural: str, kind: str, *, group: str = "example.com", held: bool = False, **names: Any
) -> CustomResourceDefinition:
    words = {
        "plural": plural,
        "singular": kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
        **names,
    }
    status = {"acceptedNames": words} if held else {}
    document = {"spec": {"group": group, "names": words}, "status": status}
    return msgspec.convert(document, CustomResourceDefinition)


def said(conditions: list[Condition]) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in conditions]


def test_free_names_are_accepted_and_the_kind_established() -> None:
    crd = definition("tabs", "Tab", shortNames=["t"])
    other = definition("tabs", "Tab", group="other.com", held=True)
    names, conditions = accepted_names(crd, [other])
    assert names == crd.spec.names
    assert said(conditions) == [
        ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        (
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    ]


def test_names_that_others_use_are_not() -> None:
    crd = definition("tabs", "Tab", shortNames=["t", "x", "y"], categories=["all"])
    other = definition("taps", "Tap", held=True, singular="x", shortNames=["y"])
    names, conditions = accepted_names(crd, [other])
    assert names == CustomResourceDefinitionNames(
        plural="tabs", singular="tab", kind="Tab", listKind="TabList", categories=["all"]
    )
    assert said(conditions) == [
        (
            "NamesAccepted",
            "False",
            "ShortNamesConflict",
            '["x" is already in use, "y" is already in use]',
        ),
        ("Established", "False", "NotAccepted", "not all names are accepted"),
    ]


def test_the_last_conflict_is_the_one_told() -> None:
    other = definition("tabs", "Tab", held=True)
    _, (naming, _) = accepted_names(definition("tabs", "Tab"), [other])
    assert (naming.reason, naming.message) == ("ListKindConflict", '"TabList" is already in use')


def test_names_once_held_are_kept_and_so_is_the_moment() -> None:
    held = definition("tabs", "Tab", held=True)
    known = [
        Condition(type="NamesAccepted", status="True", lastTransitionTime="2026-01-01T00:00:00Z"),
        Condition(type="Established", status="True", lastTransitionTime="2026-01-01T00:00:01Z"),
        Condition(type="Terminating", status="False"),
    ]
    held = msgspec.structs.replace(
        held, status=msgspec.structs.replace(held.status, conditions=known)
    )
    names, conditions = accepted_names(held, [])
    assert names == held.spec.names
    assert [each.lastTransitionTime for each in conditions] == [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
        "",
    ]


def test_a_schema_from_elsewhere_may_not_be_structural() -> None:
    crd = definition("tabs", "Tab")
    document = {"name": "v1", "schema": {"openAPIV3Schema": {"type": "string"}}}
    version = msgspec.convert(document, CustomResourceDefinitionVersion)
    spec = msgspec.structs.replace(crd.spec, versions=[version])
    _, conditions = accepted_names(msgspec.structs.replace(crd, spec=spec), [])
    assert said(conditions)[2] == (
        "NonStructuralSchema",
        "True",
        "Violations",
        'spec.versions[0].schema.openAPIV3Schema.type: Invalid value: "string": '
        "must be object at the root",
    )


def test_groups_of_the_project_show_their_approval() -> None:
    crd = definition("tabs", "Tab", group="x.k8s.io")
    (_, _, missing) = accepted_names(crd, [])[1]
    assert (missing.type, missing.status, missing.reason) == (
        "KubernetesAPIApprovalPolicyConformant",
        "False",
        "MissingAnnotation",
    )
    note = {"api-approved.kubernetes.io": "https://example.com/approval"}
    metadata = msgspec.structs.replace(crd.metadata, annotations=note)
    (_, _, given) = accepted_names(msgspec.structs.replace(crd, metadata=metadata), [])[1]
    assert (given.status, given.message) == ("True", "approved in https://example.com/approval")
