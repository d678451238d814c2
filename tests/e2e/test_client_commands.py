"""`kedge get`, `describe`, `create`, `apply`, `delete` and `namespace`, against a real cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Cluster, Kubectl

LIMIT_RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "limits"},
    "spec": {
        "limits": [
            {
                "type": "Pod",
                "max": {"memory": "1Gi", "cpu": "2"},
                "min": {"memory": "1Mi", "cpu": "250m"},
            },
            {
                "type": "Container",
                "max": {"cpu": "2", "memory": "1Gi"},
                "min": {"cpu": "250m", "memory": "1Mi"},
            },
        ]
    },
}

WEB = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  labels: {app: web}
data: {colour: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: nginx}]
"""


class Kedge:
    """The client at work, with a kubeconfig of its own that names a namespace."""

    def __init__(self, cluster: Cluster, home: Path, namespace: str) -> None:
        self.home = home
        self.namespace = namespace
        self.kubeconfig = home / "kubeconfig"
        shutil.copy(cluster.kubeconfig, self.kubeconfig)
        self.environment = cluster.environment | {"KUBECONFIG": str(self.kubeconfig)}
        (home / "limit-range.json").write_text(json.dumps(LIMIT_RANGE))
        (home / "web.yaml").write_text(WEB)

    def run(self, line: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kedge", *line.split()],
            input=input,
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, line: str, input: str | None = None) -> str:
        done = self.run(line, input)
        assert done.returncode == 0, f"kedge {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def fails(self, line: str, input: str | None = None) -> str:
        done = self.run(line, input)
        assert done.returncode == 1, f"kedge {line}\n{done.stdout}{done.stderr}"
        return done.stderr


@pytest.fixture
def kedge(cluster: Cluster, namespace: str, tmp_path: Path) -> Kedge:
    kedge = Kedge(cluster, tmp_path, namespace)
    kedge(f"namespace {namespace}")
    return kedge


SEED = """\
Name:   limits
Type    Resource  Min Max
----    --------  --- ---
Pod   memory    1Mi 1Gi
Pod   cpu   250m  2
Container cpu   250m  2
Container memory    1Mi 1Gi
"""
"""As the proposal shows it: tabs were made blanks by somebody with a stop every two columns."""


def test_the_transcript_of_the_proposal(kedge: Kedge, api: Api) -> None:
    myspace = f"{kedge.namespace}-myspace"
    try:
        assert kedge(f"namespace {myspace}").startswith(f"namespace/{myspace} created\n")
        assert kedge("create -f limit-range.json") == "limitrange/limits created\n"
        assert kedge("get limits") == "NAME\nlimits\n"
        assert kedge("describe limits limits").expandtabs(2) == SEED
        assert api.exists(f"/api/v1/namespaces/{myspace}/limitranges/limits")
    finally:
        api.delete(f"/api/v1/namespaces/{myspace}")


def test_kubectl_goes_to_the_namespace_that_kedge_chose(kedge: Kedge, any_kubectl: Kubectl) -> None:
    kedge("create -f limit-range.json")
    told = subprocess.check_output(
        [any_kubectl.program, "get", "limits", "-o=name"], env=kedge.environment, text=True
    )
    assert told == "limitrange/limits\n"
    assert kedge("namespace") == f"{kedge.namespace}\n"
    assert kedge.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_wide_limits_are_described_as_kubectl_describes_them(
    kedge: Kedge, any_kubectl: Kubectl
) -> None:
    kedge("create -f limit-range.json")
    ours = kedge("describe limits limits -o wide")
    theirs = any_kubectl("describe limits limits").stdout
    # kubectl shows the resources of an item in no fixed order.
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


LINES = [
    "get configmaps,deployments",
    "get configmaps,deployments --show-labels",
    "get deployment web -o wide",
    "get deployments --no-headers",
    "get deployment/web configmap/web -o name",
    "get deployment web -o yaml",
    "get deployments -o json",
    "get cm,deploy -o yaml",
    "get cm -l app=web -o jsonpath={.items[*].metadata.name}",
    "get cm --field-selector metadata.name=web -o jsonpath={.items[0].data}",
    "get pods",
    "get pods -A -l no=such",
    "get priorityclasses -l no=such",
    "get pods nope",
    "get nonsense",
    "get secrets -o name",
]


def test_what_is_shown_is_what_kubectl_shows(kedge: Kedge, any_kubectl: Kubectl) -> None:
    kedge("apply -f web.yaml")
    for line in LINES:
        ours, theirs = kedge.run(line), any_kubectl(line, check=False)
        assert ageless(ours.stdout) == ageless(theirs.stdout), line
        assert ours.stderr == theirs.stderr, line
        assert ours.returncode == theirs.returncode, line


def ageless(text: str) -> str:
    return re.sub(r"\b\d+s\b", "0s", text)


def test_an_object_is_created_applied_and_deleted(kedge: Kedge) -> None:
    both = "configmap/web {}\ndeployment.apps/web {}\n"
    gone = f'configmap "web" deleted from {kedge.namespace} namespace\n'
    assert kedge("create -f web.yaml --dry-run=server") == both.format(
        *["created (server dry run)"] * 2
    )
    assert kedge("create -f web.yaml") == both.format("created", "created")
    assert 'configmaps "web" already exists' in kedge.fails("create -f web.yaml")
    kedge("apply -f web.yaml")
    assert kedge("apply -f web.yaml") == both.format("unchanged", "unchanged")
    green = WEB.replace("blue", "green")
    assert kedge("apply -f -", green) == both.format("configured", "unchanged")
    assert kedge("apply --server-side -f -", green) == both.format(*["serverside-applied"] * 2)
    assert kedge("get cm web -o jsonpath={.data.colour}") == "green"
    assert kedge("delete cm web") == gone
    assert kedge.fails("delete cm web") == (
        'Error from server (NotFound): configmaps "web" not found\n'
    )
    assert kedge("delete cm web --ignore-not-found") == ""
    kedge("delete -f web.yaml --ignore-not-found")
    assert kedge.run("get deploy").stderr == (
        f"No resources found in {kedge.namespace} namespace.\n"
    )


def test_fields_of_others_are_not_taken_unasked(kedge: Kedge, any_kubectl: Kubectl) -> None:
    kedge("apply -f web.yaml")
    any_kubectl("apply --server-side --force-conflicts -f -", input=WEB.replace("blue", "red"))
    said = kedge.fails("apply -f web.yaml")
    assert "Apply failed with 1 conflict" in said
    assert ".data.colour" in said
    kedge("apply -f web.yaml --force-conflicts")
    assert kedge("get cm web -o jsonpath={.data.colour}") == "blue"


def test_all_and_selected_objects_are_deleted(kedge: Kedge, api: Api) -> None:
    path = f"/api/v1/namespaces/{kedge.namespace}/configmaps"
    for name in ("a", "b", "c"):
        api.create(path, {"metadata": {"name": name, "labels": {"app": name}}})
    assert "no name was specified" in kedge.fails("delete cm")
    assert kedge("delete cm -l app=a -o name") == "configmap/a\n"
    assert kedge("get cm -l app -o name") == "configmap/b\nconfigmap/c\n"
    kedge("delete cm -l app")
    assert kedge("get cm -l app -o name") == ""


def test_what_is_wrong_with_an_object_is_listed(kedge: Kedge) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    said = kedge.fails("create -f -", json.dumps({**pod, "spec": {"containers": [{}]}}))
    assert said.splitlines()[0] == 'The Pod "x" is invalid: '
    assert "* spec.containers[0].name: Required value" in said.splitlines()
    said = kedge.fails("create -f -", json.dumps({**pod, "spec": {}, "spac": {}}))
    assert said.startswith('Error from server (BadRequest): error when creating "STDIN": ')
    assert 'unknown field "spac"' in said


def test_warnings_of_the_server_are_passed_on(kedge: Kedge) -> None:
    containers = [{"name": "c", "image": "nginx"}]
    spec = {"containers": containers, "nodeSelector": {"beta.kubernetes.io/os": "linux"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    done = kedge.run("create -f - --dry-run=server", json.dumps(pod))
    assert done.stdout == "pod/x created (server dry run)\n"
    assert done.stderr.startswith("Warning: spec.nodeSelector[beta.kubernetes.io/os]: deprecated")


def test_custom_resources_are_known_as_soon_as_they_are_defined(kedge: Kedge, api: Api) -> None:
    group = f"{kedge.namespace}.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"backups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "backups", "kind": "Backup", "shortNames": ["bk"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                        }
                    },
                }
            ],
        },
    }
    kedge("apply -f -", json.dumps(crd))
    backup = {
        "apiVersion": f"{group}/v1",
        "kind": "Backup",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 2 * * *", "keepDays": 7},
    }
    try:
        kedge("apply -f -", json.dumps(backup))
        assert kedge(f"get bk.{group} -o name") == f"backup.{group}/nightly\n"
        told = kedge(f"describe backups.{group} night")
        assert re.search(r"^  Keep Days: +7$", told, re.MULTILINE)
        assert re.search(r"^  Schedule: +0 2 \* \* \*$", told, re.MULTILINE)
    finally:
        kedge(f"delete crd backups.{group}")


def test_a_pod_is_described_as_kubectl_does_it(kedge: Kedge, any_kubectl: Kubectl) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"note": "one"}},
        "spec": {
            "automountServiceAccountToken": False,
            "schedulerName": "nobody",
            "containers": [
                {
                    "name": "web",
                    "image": "nginx",
                    "command": ["sh", "-c", "true\nfalse"],
                    "ports": [{"containerPort": 80}],
                    "env": [{"name": "A", "value": "b"}],
                    "envFrom": [{"configMapRef": {"name": "c"}}],
                    "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                    "readinessProbe": {"httpGet": {"port": 80, "path": "/"}},
                }
            ],
        },
    }
    kedge("create -f -", json.dumps(pod))
    assert kedge("describe pod web").strip() == any_kubectl("describe pod web").stdout.strip()


def test_a_watch_shows_changes_as_they_happen(kedge: Kedge, api: Api) -> None:
    path = f"/api/v1/namespaces/{kedge.namespace}/configmaps"
    api.create(path, {"metadata": {"name": "a-rather-long-name", "labels": {"app": "x"}}})
    command = [sys.executable, "-m", "kedge", "get", "cm", "-w", "-l", "app=x"]
    with subprocess.Popen(
        command, env=kedge.environment, stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        heads, first = watch.stdout.readline(), watch.stdout.readline()
        assert heads.split() == ["NAME", "DATA", "AGE"]
        assert first.split()[:2] == ["a-rather-long-name", "0"]
        api.create(path, {"metadata": {"name": "b", "labels": {"app": "x"}}, "data": {"k": "v"}})
        second = watch.stdout.readline()
        assert second.split()[:2] == ["b", "1"]
        assert second.index("1") == heads.index("DATA")
        watch.terminate()


def test_another_context_another_file_and_nobody_there(
    kedge: Kedge, cluster: Cluster, tmp_path: Path
) -> None:
    content = yaml.safe_load(kedge.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    other = tmp_path / "other"
    other.write_text(yaml.safe_dump(content))
    said = kedge.fails(f"get pods --kubeconfig {other}")
    assert said.startswith("Unable to connect to the server https://127.0.0.1:1: ")
    assert 'context "nope" does not exist' in kedge.fails("get pods --context nope")
    current = content["current-context"]
    assert kedge(f"get ns default -o name --context {current}") == "namespace/default\n"
