"""Custom resources from their definition to their end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Api, Kubectl

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names:
    plural: boats
    singular: boat
    kind: Boat
    shortNames: [PREFIXbo]
    categories: [PREFIXfleet]
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.sails
        statusReplicasPath: .status.sails
        labelSelectorPath: .status.selector
    additionalPrinterColumns:
    - {name: Sails, type: integer, jsonPath: .spec.sails}
    - {name: Owner, type: string, jsonPath: .spec.owner, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A boat that somebody owns.
        required: [spec]
        properties:
          spec:
            type: object
            required: [owner]
            properties:
              owner: {type: string, minLength: 2, description: Whose it is.}
              sails: {type: integer, minimum: 0, maximum: 9, default: 1}
              rig: {type: string, enum: [sloop, ketch]}
              cargo: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              sails: {type: integer}
              selector: {type: string}
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
"""


@pytest.fixture
def group(api: Api, any_kubectl: Kubectl) -> Iterator[str]:
    """The group in which there are boats now."""
    prefix = any_kubectl.namespace.removeprefix("t-")
    group = f"x{prefix}.example.com"
    definition = DEFINITION.replace("GROUP", group).replace("PREFIX", f"x{prefix}")
    any_kubectl("create -f -", input=definition)
    any_kubectl(f"wait --for=condition=Established crd/boats.{group} --timeout=10s")
    yield group
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.{group}"
    if api.exists(path):
        api.delete(path)


def boat(group: str, name: str = "ann", version: str = "v1", **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": f"{group}/{version}",
            "kind": "Boat",
            "metadata": {"name": name},
            "spec": {"owner": "joe"} | spec,
        }
    )


def test_names_columns_and_categories(kubectl: Kubectl, group: str) -> None:
    short = group.partition(".")[0]
    said = kubectl.says("create -f -", input=boat(group, sails=2))
    assert said == f"boat.{group}/ann created"
    for what in (f"boats.{group}", f"boat.{group}", f"{short}bo", f"{short}fleet"):
        assert kubectl.says(f"get {what} -o name") == f"boat.{group}/ann"
    (row,) = kubectl.table(f"get boats.{group}")
    assert {**row, "AGE": ""} == {"NAME": "ann", "SAILS": "2", "AGE": ""}
    (row,) = kubectl.table(f"get boats.{group} -o wide")
    assert list(row) == ["NAME", "SAILS", "OWNER", "AGE"]
    assert row["OWNER"] == "joe"
    (line,) = kubectl.says(f"api-resources --api-group={group} --no-headers").splitlines()
    assert line.split() == ["boats", f"{short}bo", f"{group}/v1", "true", "Boat"]


def test_values_are_defaulted_pruned_and_checked(kubectl: Kubectl, group: str) -> None:
    manifest = boat(group, cargo={"any": {"thing": 1}}, paint="red")
    refused = kubectl.fails("create -f -", input=manifest)
    assert 'strict decoding error: unknown field "spec.paint"' in refused
    done = kubectl("create -f - --validate=warn", input=manifest)
    assert done.stderr == 'Warning: unknown field "spec.paint"\n'
    assert kubectl.json(f"get boat.{group} ann")["spec"] == {
        "owner": "joe",
        "sails": 1,
        "cargo": {"any": {"thing": 1}},
    }
    refused = kubectl.fails(
        "create -f -", input=boat(group, "bob", owner="x", sails=10, rig="raft")
    )
    assert refused.startswith('The Boat "bob" is invalid: \n')
    assert (
        '* spec.owner: Invalid value: "x": spec.owner in body should be at least 2 chars long'
        in refused
    )
    assert (
        "* spec.sails: Invalid value: 10: spec.sails in body should be less than or equal to 9"
        in refused
    )
    assert '* spec.rig: Unsupported value: "raft": supported values: "sloop", "ketch"' in refused
    manifest = json.dumps({**json.loads(boat(group)), "metadata": {"name": "eve"}, "spec": {}})
    refused = kubectl.fails("create -f -", input=manifest)
    assert 'The Boat "eve" is invalid: spec.owner: Required value' in refused


def test_status_and_scale(kubectl: Kubectl, group: str) -> None:
    kubectl("create -f -", input=boat(group))
    what = f"boat.{group}"
    assert kubectl.says(f"scale {what} ann --replicas=5") == f"boat.{group}/ann scaled"
    status = '{"spec": {"sails": 9}, "status": {"sails": 4, "selector": "on=ann"}}'
    kubectl("patch", what, "ann", "--subresource=status", "--type=merge", "-p", status)
    stored = kubectl.json("get", what, "ann")
    assert stored["spec"]["sails"] == 5
    assert stored["status"] == {"sails": 4, "selector": "on=ann"}
    assert stored["metadata"]["generation"] == 2
    scale = kubectl.json("get", what, "ann", "--subresource=scale")
    assert scale["kind"] == "Scale"
    assert scale["status"] == {"replicas": 4, "selector": "on=ann"}
    kubectl("patch", what, "ann", "--type=merge", "-p", '{"status": {"sails": 1}}')
    assert kubectl.json("get", what, "ann")["status"]["sails"] == 4


def test_versions(kubectl: Kubectl, group: str) -> None:
    kubectl("create -f -", input=boat(group, version="v1beta1"))
    assert kubectl.json(f"get boats.v1.{group} ann")["apiVersion"] == f"{group}/v1"
    assert kubectl.json(f"get boats.v1beta1.{group} ann")["apiVersion"] == f"{group}/v1beta1"
    assert kubectl.json(f"get boats.{group} ann")["apiVersion"] == f"{group}/v1"


def test_explain_and_describe(kubectl: Kubectl, group: str) -> None:
    kubectl("create -f -", input=boat(group))
    text = kubectl(f"explain boats.{group}").stdout
    assert text.startswith(f"GROUP:      {group}\nKIND:       Boat\nVERSION:    v1\n")
    assert "A boat that somebody owns." in text
    text = kubectl(f"explain boat.spec --api-version={group}/v1").stdout
    assert "  owner\t<string> -required-\n    Whose it is.\n" in text
    assert "  Owner:" in kubectl(f"describe boat.{group} ann").stdout


def test_strategic_patches_are_for_built_in_kinds(kubectl: Kubectl, group: str) -> None:
    kubectl("create -f -", input=boat(group))
    refused = kubectl.fails("patch", f"boat.{group}", "ann", "-p", '{"spec": {"sails": 2}}')
    assert refused.startswith(
        f"error: application/strategic-merge-patch+json is not supported by {group}/v1, Kind=Boat:"
    )
    kubectl("patch", f"boat.{group}", "ann", "--type=json", "-p",
            '[{"op": "replace", "path": "/spec/sails", "value": 3}]')  # fmt: skip
    kubectl(f"label boat.{group} ann painted=yes")
    stored = kubectl.json(f"get boat.{group} ann")
    assert stored["spec"]["sails"] == 3
    assert stored["metadata"]["labels"] == {"painted": "yes"}


def test_watching(kubectl: Kubectl, group: str) -> None:
    with kubectl.start(f"get boats.{group} -w --output-watch-events -v=6") as lines:
        lines.until("watch=true")
        kubectl("create -f -", input=boat(group))
        assert lines.until("ADDED").split()[1:3] == ["ann", "1"]
        kubectl(f"scale boat.{group} ann --replicas=3")
        assert lines.until("MODIFIED").split()[1:3] == ["ann", "3"]
        kubectl(f"delete boat.{group} ann")
        assert lines.until("DELETED").split()[1:3] == ["ann", "3"]


def test_a_definition_that_goes_takes_its_objects_along(
    kubectl: Kubectl, api: Api, group: str, eventually: Callable[..., Any]
) -> None:
    kubectl("create -f -", input=boat(group))
    path = f"/apis/{group}/v1/namespaces/{kubectl.namespace}/boats/ann"
    api.merge(path, {"metadata": {"finalizers": ["example.com/wait"]}})
    kubectl(f"delete crd boats.{group} --wait=false")
    eventually(lambda: "deletionTimestamp" in api.get(path)["metadata"])
    assert "NonStructuralSchema" not in kubectl.says(f"get crd boats.{group} -o yaml")
    api.merge(path, {"metadata": {"finalizers": None}})
    kubectl(f"wait --for=delete crd/boats.{group} --timeout=10s")
    eventually(lambda: not api.exists(f"/apis/{group}/v1/boats"))


def test_a_definition_is_checked(kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "cars.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Everywhere",
            "names": {"plural": "trains", "kind": "Train"},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    refused = kubectl.fails("create -f -", input=json.dumps(manifest))
    assert 'The CustomResourceDefinition "cars.example.com" is invalid: ' in refused
    assert (
        'metadata.name: Invalid value: "cars.example.com": must be spec.names.plural+"."+spec.group'
        in refused
    )
    assert (
        'spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"'
        in refused
    )
    assert "spec.versions[0].schema.openAPIV3Schema: Required value" in refused
