"""Commands that change what is there: edit, patch, replace, label, annotate, set, taint, scale."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Api, Kubectl


@pytest.fixture
def config_map(api: Api, namespace: str) -> str:
    """A config map's path."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(path, {"metadata": {"name": "one"}, "data": {"a": "1", "b": "1"}})
    return f"{path}/one"


@pytest.fixture
def deployment(api: Api, namespace: str) -> str:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    containers = [{"name": "main", "image": "nginx:1"}, {"name": "helper", "image": "redis:7"}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 0, "selector": selector, "template": template}
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    return f"{path}/web"


@pytest.fixture
def node(api: Api, namespace: str) -> str:
    api.create("/api/v1/nodes", {"metadata": {"name": namespace}})
    return namespace


def editor(directory: Path, old: str, new: str) -> str:
    """An editor that replaces a text once, and keeps what it was shown in a file named `seen`."""
    script = directory / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "text = file.read_text()\n"
        f"pathlib.Path({str(directory / 'seen')!r}).write_text(text)\n"
        f"file.write_text(text.replace({old!r}, {new!r}, 1))\n"
    )
    return f"{sys.executable} {script}"


def test_edit(kubectl: Kubectl, api: Api, config_map: str, tmp_path: Path) -> None:
    kubectl.environment["KUBE_EDITOR"] = editor(tmp_path, '"1"', '"2"')
    assert kubectl.says("edit cm one") == "configmap/one edited"
    assert api.get(config_map)["data"] == {"a": "2", "b": "1"}
    managers = [e["manager"] for e in api.get(config_map)["metadata"]["managedFields"]]
    assert "kubectl-edit" in managers


def test_an_edit_that_changes_nothing_is_cancelled(
    kubectl: Kubectl, config_map: str, tmp_path: Path
) -> None:
    kubectl.environment["KUBE_EDITOR"] = editor(tmp_path, "", "")
    assert kubectl("edit cm one").stderr == "Edit cancelled, no changes made.\n"


def test_an_edit_that_is_refused_comes_back_with_the_reason(
    kubectl: Kubectl, deployment: str, tmp_path: Path
) -> None:
    kubectl.environment["KUBE_EDITOR"] = editor(tmp_path, "replicas: 0", "replicas: -1")
    assert 'deployments.apps "web" is invalid' in kubectl.fails("edit deployment web")
    seen = (tmp_path / "seen").read_text()
    assert '# deployments.apps "web" was not valid:\n' in seen
    assert "# * spec.replicas: Invalid value: -1: must be greater than or equal to 0\n" in seen


def test_editing_a_status(kubectl: Kubectl, api: Api, tmp_path: Path) -> None:
    kubectl("run web --image=nginx")
    kubectl.environment["KUBE_EDITOR"] = editor(tmp_path, "phase: Pending", "phase: Running")
    assert kubectl.says("edit pod web --subresource=status") == "pod/web edited"
    assert kubectl.table("get pod web")[0]["STATUS"] == "Running"


def test_the_four_patches(kubectl: Kubectl, api: Api, deployment: str) -> None:
    def patch(kind: str, content: object) -> str:
        return kubectl.says(
            "patch", "deployment", "web", f"--type={kind}", "-p", json.dumps(content)
        )

    def images() -> dict[str, str]:
        containers = api.get(deployment)["spec"]["template"]["spec"]["containers"]
        return {c["name"]: c["image"] for c in containers}

    named = {"name": "helper", "image": "redis:8"}
    strategic = {"spec": {"template": {"spec": {"containers": [named]}}}}
    assert patch("strategic", strategic) == "deployment.apps/web patched"
    assert images() == {"main": "nginx:1", "helper": "redis:8"}
    assert patch("strategic", strategic) == "deployment.apps/web patched (no change)"

    removal = {"name": "helper", "$patch": "delete"}
    patch("strategic", {"spec": {"template": {"spec": {"containers": [removal]}}}})
    assert images() == {"main": "nginx:1"}

    patch("merge", {"spec": {"template": {"spec": {"containers": [named]}}}})
    assert images() == {"helper": "redis:8"}

    path = "/spec/template/spec/containers/0/image"
    test = {"op": "test", "path": path, "value": "redis:8"}
    patch("json", [test, {"op": "replace", "path": path, "value": "redis:9"}])
    assert images() == {"helper": "redis:9"}

    refused = kubectl.fails("patch", "deployment", "web", "--type=json", "-p", json.dumps([test]))
    assert refused == (
        "The request is invalid: the server rejected our request due to an error in our request\n"
    )
    generation = api.get(deployment)["metadata"]["generation"]
    assert generation == 5


def test_a_patch_is_validated(kubectl: Kubectl, config_map: str, deployment: str) -> None:
    refused = kubectl.fails("patch", "deployment", "web", "-p", '{"spec": {"replicas": -1}}')
    assert refused == (
        'The Deployment "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or'
        " equal to 0\n"
    )
    refused = kubectl.fails("patch", "cm", "one", "-p", '{"metadata": {"name": "two"}}')
    assert refused == (
        "Error from server (BadRequest): the name of the object (two) does not match the name on"
        " the URL (one)\n"
    )


def test_patching_subresources(kubectl: Kubectl, api: Api, deployment: str) -> None:
    status = '{"spec": {"replicas": 5}, "status": {"observedGeneration": 1, "replicas": 3}}'
    said = kubectl.says("patch", "deployment", "web", "--subresource=status", "-p", status)
    assert said.startswith("deployment.apps/web patched")
    assert api.get(deployment)["spec"]["replicas"] == 0
    assert api.get(deployment)["metadata"]["generation"] == 1
    scale = '{"spec": {"replicas": 0}}'
    said = kubectl.says(
        "patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", scale
    )
    assert said.startswith("scale.autoscaling/web patched")


def test_replace(kubectl: Kubectl, api: Api, config_map: str) -> None:
    manifest = kubectl.json("get cm one")
    manifest["data"] = {"c": "3"}
    assert kubectl.says("replace -f -", input=json.dumps(manifest)) == "configmap/one replaced"
    assert api.get(config_map)["data"] == {"c": "3"}
    refused = kubectl.fails("replace -f -", input=json.dumps(manifest))
    assert refused == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled'
        ' on configmaps "one": the object has been modified; please apply your changes to the'
        " latest version and try again\n"
    )
    manifest["metadata"]["name"] = "ghost"
    assert '(NotFound): error when replacing "STDIN": configmaps "ghost" not found' in (
        kubectl.fails("replace -f -", input=json.dumps(manifest))
    )


def test_replace_by_force(kubectl: Kubectl, api: Api, config_map: str) -> None:
    uid = api.get(config_map)["metadata"]["uid"]
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one"},
        "immutable": True,
    }
    said = kubectl.says("replace --force -f -", input=json.dumps(manifest))
    assert said.splitlines()[-1] == "configmap/one replaced"
    assert api.get(config_map)["metadata"]["uid"] != uid


def test_labels(kubectl: Kubectl, api: Api, config_map: str) -> None:
    assert kubectl.says("label cm one app=web tier=front") == "configmap/one labeled"
    refused = kubectl.fails("label cm one app=other")
    assert "'app' already has a value (web), and --overwrite is false" in refused
    kubectl("label cm one app=other --overwrite tier-")
    assert api.get(config_map)["metadata"]["labels"] == {"app": "other"}
    assert kubectl.says("label cm one app=other --overwrite") == "configmap/one not labeled"
    assert kubectl.says("label cm one --list") == "app=other"
    assert 'metadata.labels: Invalid value: "-x"' in kubectl.fails(
        "patch", "cm", "one", "-p", '{"metadata": {"labels": {"a": "-x"}}}'
    )


def test_annotations(kubectl: Kubectl, api: Api, config_map: str) -> None:
    assert kubectl.says("annotate", "cm", "one", "note=some text") == "configmap/one annotated"
    assert api.get(config_map)["metadata"]["annotations"] == {"note": "some text"}
    kubectl("annotate cm --all note-")
    assert "annotations" not in api.get(config_map)["metadata"]


def test_set(kubectl: Kubectl, api: Api, deployment: str) -> None:
    def container(index: int) -> dict[str, object]:
        found: dict[str, object] = api.get(deployment)["spec"]["template"]["spec"]["containers"][
            index
        ]
        return found

    assert kubectl.says("set image deployment/web main=nginx:2") == (
        "deployment.apps/web image updated"
    )
    assert [container(i)["image"] for i in (0, 1)] == ["nginx:2", "redis:7"]
    kubectl("set env deployment/web -c main A=1 B=2")
    assert container(0)["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert "env" not in container(1)
    kubectl("set env deployment/web A-")
    assert container(0)["env"] == [{"name": "B", "value": "2"}]
    kubectl("set resources deployment web -c main --limits=cpu=200m,memory=64Mi")
    assert container(0)["resources"] == {"limits": {"cpu": "200m", "memory": "64Mi"}}
    kubectl("set serviceaccount deployment web robot")
    spec = api.get(deployment)["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("robot", "robot")


def test_set_selector_and_subject(kubectl: Kubectl, api: Api) -> None:
    base = f"/api/v1/namespaces/{kubectl.namespace}"
    kubectl("create service clusterip web --tcp=80")
    kubectl("set selector service web app=other")
    assert api.get(f"{base}/services/web")["spec"]["selector"] == {"app": "other"}
    kubectl("create rolebinding who --clusterrole=view --user=eve")
    kubectl("set subject rolebinding who --user=ann")
    assert kubectl.table("get rolebinding who -o wide")[0]["USERS"] == "eve, ann"


def test_taint_and_cordon(kubectl: Kubectl, api: Api, node: str) -> None:
    path = f"/api/v1/nodes/{node}"
    assert kubectl.says(f"taint node {node} gpu=yes:NoSchedule") == f"node/{node} tainted"
    assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in api.get(path)["spec"]["taints"]
    assert kubectl.says(f"taint node {node} gpu-") == f"node/{node} untainted"
    assert kubectl.says(f"cordon {node}") == f"node/{node} cordoned"
    assert api.get(path)["spec"]["unschedulable"] is True
    (row,) = kubectl.table(f"get node {node}")
    assert row["STATUS"].endswith(",SchedulingDisabled")
    selected = kubectl.says("get nodes -o name --field-selector=spec.unschedulable=true")
    assert f"node/{node}" in selected.split()
    assert kubectl.says(f"uncordon {node}") == f"node/{node} uncordoned"
    assert "unschedulable" not in api.get(path)["spec"]
    api.delete(path)


def test_scale(kubectl: Kubectl, api: Api, deployment: str) -> None:
    api.merge(deployment, {"spec": {"paused": True}})
    assert kubectl.says("scale deployment web --replicas=2") == "deployment.apps/web scaled"
    assert api.get(deployment)["spec"]["replicas"] == 2
    assert api.get(f"{deployment}/scale")["spec"] == {"replicas": 2}
    entries = api.get(deployment)["metadata"]["managedFields"]
    assert [e["subresource"] for e in entries if e["manager"] == "kubectl"] == ["scale"]
    refused = kubectl.fails("scale deployment web --replicas=3 --current-replicas=1")
    assert refused == "error: Expected replicas to be 1, was 2\n"
    kubectl("scale deployment web --replicas=0 --current-replicas=2")
    assert api.get(deployment)["spec"]["replicas"] == 0


def test_rollout(kubectl: Kubectl, api: Api, deployment: str) -> None:
    assert kubectl.says("rollout pause deployment/web") == "deployment.apps/web paused"
    assert api.get(deployment)["spec"]["paused"] is True
    assert kubectl.fails("rollout pause deployment/web") == (
        'error: deployments.apps "web" is already paused\n'
    )
    assert kubectl.says("rollout resume deployment/web") == "deployment.apps/web resumed"
    assert "paused" not in api.get(deployment)["spec"]
    assert kubectl.says("rollout restart deployment/web") == "deployment.apps/web restarted"
    annotations = api.get(deployment)["spec"]["template"]["metadata"]["annotations"]
    assert list(annotations) == ["kubectl.kubernetes.io/restartedAt"]


def test_rollout_history(kubectl: Kubectl, api: Api, deployment: str) -> None:
    """As a controller would have left it: two replica sets, one per revision."""
    api.merge(deployment, {"spec": {"paused": True}})
    found = api.get(deployment)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    for revision, image in (("11", "nginx:1"), ("12", "nginx:2")):
        template = {
            "metadata": {"labels": {"app": "web", "hash": revision}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        }
        api.create(
            f"/apis/apps/v1/namespaces/{kubectl.namespace}/replicasets",
            {
                "metadata": {
                    "name": f"web-{revision}",
                    "labels": {"app": "web"},
                    "ownerReferences": [owner],
                    "annotations": {"deployment.kubernetes.io/revision": revision},
                },
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"app": "web", "hash": revision}},
                    "template": template,
                },
            },
        )
    lines = kubectl.says("rollout history deployment/web").splitlines()
    assert lines[:2] == ["deployment.apps/web ", "REVISION  CHANGE-CAUSE"]
    assert {"11        <none>", "12        <none>"} <= set(lines)
    assert "nginx:2" in kubectl.says("rollout history deployment/web --revision=12")


def test_pods_change_only_where_they_may(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx:1")
    assert kubectl.says("set image pod/web web=nginx:2") == "pod/web image updated"
    refused = kubectl.fails("patch", "pod", "web", "-p", '{"spec": {"hostname": "x"}}')
    assert refused.startswith(
        'The Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than'
    )


def test_debugging_adds_an_ephemeral_container(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx:1")
    kubectl("debug web --image=busybox --container=look --attach=false")
    stored = api.get(f"/api/v1/namespaces/{kubectl.namespace}/pods/web")
    (added,) = stored["spec"]["ephemeralContainers"]
    assert (added["name"], added["image"]) == ("look", "busybox")


def test_an_object_without_a_name_replaces_nothing(
    kubectl: Kubectl, api: Api, namespace: str
) -> None:
    kubectl("create configmap w --from-literal=a=1")
    kubectl("create deployment w --image=nginx:1 --replicas=2")
    unnamed = "the name of the object (w based on URL) was undeterminable: name must be provided"
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    scale = f"/apis/apps/v1/namespaces/{namespace}/deployments/w/scale"
    refused = kubectl.fails("replace", "--raw", f"{maps}/w", "-f", "-", input="{}")
    assert unnamed in refused
    assert unnamed in kubectl.fails("replace", "--raw", scale, "-f", "-", input="{}")
    for sort in ("merge", "strategic"):
        patch = '{"metadata": null}' if sort == "merge" else '{"$patch": "delete"}'
        assert unnamed in kubectl.fails("patch", "configmap/w", f"--type={sort}", "-p", patch)
    assert api.get(f"{maps}/w")["data"] == {"a": "1"}
    assert api.get(scale)["spec"]["replicas"] == 2


def test_a_collection_is_deleted_in_pages(kubectl: Kubectl, api: Api, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    for name in ("p", "q", "r"):
        kubectl(f"create secret generic {name}")
    page = api.delete(f"{secrets}?limit=1")
    assert [each["metadata"]["name"] for each in page["items"]] == ["p"]
    left = [each["metadata"]["name"] for each in api.get(secrets)["items"]]
    assert left == ["q", "r"]


def test_a_patch_to_a_wrong_type_is_invalid(kubectl: Kubectl, api: Api, namespace: str) -> None:
    kubectl("create deployment w --image=nginx:1 --replicas=2")
    patch = '{"spec": {"replicas": "many"}}'
    for sort in ("merge", "strategic"):
        refused = kubectl.fails("patch", "deployment/w", f"--type={sort}", "-p", patch)
        assert refused.startswith("The request is invalid: patch: Invalid value: ")
    assert api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/w")["spec"]["replicas"] == 2
    refused = kubectl.fails("patch", "deployment/none", "--type=json", "-p", "[{}]")
    assert "NotFound" in refused
