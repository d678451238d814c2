"""`kubectl apply` on the client's side and on the server's, and `diff`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

BOTH = pytest.mark.parametrize("side", ["", "--server-side"], ids=["client", "server"])


def config_map(name: str = "one", **data: str) -> str:
    return json.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    )


def deployment(*containers: dict[str, Any], replicas: int | None = 0) -> str:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": list(containers)},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    )


def managers(obj: dict[str, Any]) -> set[tuple[str, str]]:
    return {(e["manager"], e["operation"]) for e in obj["metadata"]["managedFields"]}


def test_on_the_clients_side(kubectl: Kubectl) -> None:
    assert kubectl.says("apply -f -", input=config_map(a="1")) == "configmap/one created"
    version = kubectl.json("get cm one")["metadata"]["resourceVersion"]
    assert kubectl.says("apply -f -", input=config_map(a="1")) == "configmap/one unchanged"
    assert kubectl.json("get cm one")["metadata"]["resourceVersion"] == version
    assert kubectl.says("apply -f -", input=config_map(b="2")) == "configmap/one configured"
    stored = kubectl.json("get cm one --show-managed-fields")
    assert stored["data"] == {"b": "2"}
    assert managers(stored) == {("kubectl-client-side-apply", "Update")}


def test_on_the_servers_side(kubectl: Kubectl) -> None:
    apply = "apply --server-side -f -"
    assert kubectl.says(apply, input=config_map(a="1")) == "configmap/one serverside-applied"
    version = kubectl.json("get cm one")["metadata"]["resourceVersion"]
    assert kubectl.says(apply, input=config_map(a="1")) == "configmap/one serverside-applied"
    assert kubectl.json("get cm one")["metadata"]["resourceVersion"] == version
    kubectl(apply, input=config_map(b="2"))
    stored = kubectl.json("get cm one --show-managed-fields")
    assert stored["data"] == {"b": "2"}
    assert managers(stored) == {("kubectl", "Apply")}
    (entry,) = stored["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {"f:b": {}}}


def test_conflicts_are_named_and_may_be_forced(kubectl: Kubectl) -> None:
    kubectl("apply --server-side -f -", input=config_map(a="1"))
    refused = kubectl.fails(
        "apply --server-side --field-manager=other -f -", input=config_map(a="2")
    )
    assert refused.startswith(
        'error: Apply failed with 1 conflict: conflict with "kubectl": .data.a\n'
    )
    assert "--force-conflicts" in refused
    assert kubectl.json("get cm one")["data"] == {"a": "1"}
    kubectl(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        input=config_map(a="2"),
    )
    stored = kubectl.json("get cm one --show-managed-fields")
    assert stored["data"] == {"a": "2"}
    assert managers(stored) == {("other", "Apply")}


def test_managers_share_what_they_agree_on(kubectl: Kubectl) -> None:
    kubectl("apply --server-side --field-manager=m1 -f -", input=config_map(a="1", b="1"))
    kubectl("apply --server-side --field-manager=m2 -f -", input=config_map(b="1", c="1"))
    kubectl("apply --server-side --field-manager=m1 -f -", input=config_map(a="1"))
    assert kubectl.json("get cm one")["data"] == {"a": "1", "b": "1", "c": "1"}
    kubectl("apply --server-side --field-manager=m2 -f -", input=config_map(c="1"))
    assert kubectl.json("get cm one")["data"] == {"a": "1", "c": "1"}


def test_another_writer_takes_a_field_over(kubectl: Kubectl) -> None:
    kubectl("apply --server-side -f -", input=config_map(a="1"))
    kubectl("patch", "cm", "one", "--type=merge", "-p", '{"data": {"a": "2"}}')
    refused = kubectl.fails("apply --server-side -f -", input=config_map(a="1"))
    assert 'conflict with "kubectl-patch" using v1: .data.a' in refused


@BOTH
def test_list_items_are_merged_by_their_key(kubectl: Kubectl, side: str) -> None:
    main = {"name": "main", "image": "nginx:1", "env": [{"name": "A", "value": "1"}]}
    helper = {"name": "helper", "image": "redis:7"}
    kubectl(f"apply {side} -f -", input=deployment(main, helper))
    kubectl("set image deployment/web helper=redis:8")
    main["env"] = [{"name": "B", "value": "2"}]
    kubectl(f"apply {side} -f -", input=deployment(main, helper | {"image": "redis:8"}))
    containers = kubectl.json("get deployment web")["spec"]["template"]["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [
        ("main", "nginx:1"),
        ("helper", "redis:8"),
    ]
    assert containers[0]["env"] == [{"name": "B", "value": "2"}]
    kubectl(f"apply {side} -f -", input=deployment(main))
    containers = kubectl.json("get deployment web")["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in containers] == ["main"]


@BOTH
def test_a_field_left_out_is_left_to_others(kubectl: Kubectl, side: str) -> None:
    main = {"name": "main", "image": "nginx:1"}
    kubectl(f"apply {side} -f -", input=deployment(main, replicas=None))
    kubectl("scale deployment web --replicas=0")
    kubectl(f"apply {side} -f -", input=deployment(main | {"image": "nginx:2"}, replicas=None))
    spec = kubectl.json("get deployment web")["spec"]
    assert spec["replicas"] == 0
    assert spec["template"]["spec"]["containers"][0]["image"] == "nginx:2"


def test_from_the_clients_side_to_the_servers(kubectl: Kubectl) -> None:
    kubectl("apply -f -", input=config_map(a="1", b="1"))
    done = kubectl("apply --server-side -f -", input=config_map(a="2"))
    assert done.stdout == "configmap/one serverside-applied\n"
    stored = kubectl.json("get cm one --show-managed-fields")
    assert stored["data"] == {"a": "2"}
    assert managers(stored) == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")} or (
        managers(stored) == {("kubectl", "Apply")}
    )


@BOTH
def test_dry_runs_change_nothing(kubectl: Kubectl, side: str) -> None:
    kubectl(f"apply {side} -f -", input=config_map(a="1"))
    said = kubectl.says(f"apply {side} --dry-run=server -f -", input=config_map(a="2"))
    assert said.endswith("(server dry run)")
    assert kubectl.json("get cm one")["data"] == {"a": "1"}


@BOTH
def test_diff_tells_by_its_exit_code(kubectl: Kubectl, side: str) -> None:
    kubectl(f"apply {side} -f -", input=config_map(a="1"))
    assert kubectl(f"diff {side} -f -", input=config_map(a="1")).stdout == ""
    done = kubectl(f"diff {side} -f -", input=config_map(a="2"), check=False)
    assert done.returncode == 1
    assert '\n-  a: "1"\n+  a: "2"\n' in done.stdout
    assert kubectl.json("get cm one")["data"] == {"a": "1"}
    done = kubectl(f"diff {side} -f -", input=config_map("two", a="2"), check=False)
    assert done.returncode == 1
    assert "+  name: two\n" in done.stdout
    assert kubectl("get cm two --ignore-not-found").stdout == ""


def test_what_was_applied_last(kubectl: Kubectl) -> None:
    kubectl("create configmap one --from-literal=a=1")
    done = kubectl("apply -f -", input=config_map(a="1"))
    assert "missing the kubectl.kubernetes.io/last-applied-configuration annotation" in done.stderr
    last = kubectl.json("apply view-last-applied configmap/one")
    assert (last["metadata"]["name"], last["data"]) == ("one", {"a": "1"})
    kubectl("apply set-last-applied -f -", input=config_map(b="2"))
    assert kubectl.json("apply view-last-applied cm/one")["data"] == {"b": "2"}


@BOTH
def test_files_of_several_documents(kubectl: Kubectl, side: str) -> None:
    both = f"---\n{config_map('one', a='1')}\n---\n{config_map('two', a='1')}\n"
    said = kubectl.says(f"apply {side} -f -", input=both)
    assert [line.split()[0] for line in said.splitlines()] == ["configmap/one", "configmap/two"]
    listed = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [json.loads(config_map("two", a="2")), json.loads(config_map("three"))],
        }
    )
    said = kubectl.says(f"apply {side} -f -", input=listed)
    assert [line.split()[0] for line in said.splitlines()] == ["configmap/two", "configmap/three"]


def test_pruning_deletes_what_is_no_longer_there(kubectl: Kubectl) -> None:
    def labelled(*names: str) -> str:
        text = ""
        for name in names:
            document = json.loads(config_map(name, a="1"))
            document["metadata"]["labels"] = {"set": "x"}
            text += f"---\n{json.dumps(document)}\n"
        return text

    prune = "apply --prune -l set=x --prune-allowlist=core/v1/ConfigMap -f -"
    kubectl("apply -f -", input=labelled("one", "two"))
    said = kubectl.says(prune, input=labelled("two")).splitlines()
    assert said == ["configmap/two unchanged", "configmap/one pruned"]


@BOTH
def test_custom_resources(kubectl: Kubectl, api: Api, side: str) -> None:
    group = f"{kubectl.namespace}.example.com"
    definition = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: boats.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: boats, singular: boat, kind: Boat}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              crew:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {{name: {{type: string}}, role: {{type: string}}}}
"""
    kubectl(f"apply {side} -f -", input=definition)
    kubectl(f"wait --for=condition=established crd/boats.{group} --timeout=10s")

    def boat(*crew: str) -> str:
        return json.dumps(
            {
                "apiVersion": f"{group}/v1",
                "kind": "Boat",
                "metadata": {"name": "ann"},
                "spec": {"crew": [{"name": name, "role": "sailor"} for name in crew]},
            }
        )

    def crew() -> list[str]:
        found = kubectl.json(f"get boats.{group} ann")["spec"]["crew"]
        return [member["name"] for member in found]

    kubectl(f"apply {side} -f -", input=boat("joe", "jim"))
    assert crew() == ["joe", "jim"]
    kubectl(f"apply {side} -f -", input=boat("jim"))
    assert crew() == ["jim"]
    if side:
        kubectl("apply --server-side --field-manager=other -f -", input=boat("kim"))
        assert crew() == ["jim", "kim"]
    api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.{group}")


def test_an_empty_list_is_taken_from_its_owner_only_by_force(kubectl: Kubectl) -> None:
    def policy(ingress: list[object]) -> str:
        return json.dumps(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": "web"},
                "spec": {"podSelector": {}, "ingress": ingress},
            }
        )

    apply = "apply --server-side -f - --field-manager"
    kubectl(f"{apply}=one", input=policy([{"ports": [{"port": 80}]}]))
    refused = kubectl.fails(f"{apply}=two", input=policy([]))
    assert 'conflict with "one": .spec.ingress' in refused
    kubectl(f"{apply}=two --force-conflicts", input=policy([]))
    assert "ingress" not in kubectl.json("get networkpolicy web -o json")["spec"]
