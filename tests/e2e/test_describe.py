"""`kubectl describe`: for every kind it works, and for those people look at it tells the facts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

MINIMAL = Path(__file__).with_name("manifests").joinpath("minimal.yaml")


def described(kubectl: Kubectl, what: str) -> str:
    """The description, its columns separated by one space so that widths do not matter."""
    return re.sub(r"[ \t]+", " ", kubectl("describe", *what.split()).stdout)


def test_every_kind_can_be_described(any_kubectl: Kubectl) -> None:
    kubectl = any_kubectl
    manifests: list[dict[str, Any]] = []
    text = MINIMAL.read_text().replace("NAMESPACE", kubectl.namespace)
    text = text.replace("ADDRESS", "10.9.8.7")
    for number, manifest in enumerate(yaml.safe_load_all(text)):
        name = f"{kubectl.namespace}-{number}"
        manifest.setdefault("metadata", {}).setdefault("name", name)
        manifests.append(manifest)
    text = "".join(f"---\n{json.dumps(manifest)}\n" for manifest in manifests)
    created = kubectl.says("create -o name -f -", input=text).split()
    assert len(created) == len(manifests)
    done = kubectl("describe", *created)
    names = [manifest["metadata"]["name"] for manifest in manifests]
    told = re.findall(r"^Name:\s+(\S+)$", done.stdout, re.MULTILINE)
    assert [name for name in told if name in names] == names
    kubectl("delete", "--wait=false", *created)


def test_a_pod(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx:1.27 --port=80 --env=A=b --labels=app=web")
    pod = kubectl.json("get pod web")
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": {
            "kind": "Pod",
            "name": "web",
            "namespace": kubectl.namespace,
            "uid": pod["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "Tested",
        "message": "somebody looked",
        "source": {"component": "tester"},
        "firstTimestamp": pod["metadata"]["creationTimestamp"],
        "lastTimestamp": pod["metadata"]["creationTimestamp"],
        "count": 1,
    }
    api.create(f"/api/v1/namespaces/{kubectl.namespace}/events", event)
    text = described(kubectl, "pod web")
    assert text.startswith(f"Name: web\nNamespace: {kubectl.namespace}\n")
    for fact in (
        "Node: <none>\n",
        "Labels: app=web\n",
        "Status: Pending\n",
        " Image: nginx:1.27\n",
        " Port: 80/TCP\n",
        " A: b\n",
        "QoS Class: BestEffort\n",
    ):
        assert fact in text
    assert re.search(r"Warning Tested \S+ tester somebody looked", text)


def test_a_deployment(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=nginx:1.27 --replicas=0")
    text = described(kubectl, "deployment web")
    for fact in (
        "Selector: app=web\n",
        "Replicas: 0 desired | 0 updated | 0 total | 0 available | 0 unavailable\n",
        "StrategyType: RollingUpdate\n",
        "RollingUpdateStrategy: 25% max unavailable, 25% max surge\n",
        " Image: nginx:1.27\n",
    ):
        assert fact in text


def test_a_service(kubectl: Kubectl, api: Api) -> None:
    kubectl("create service nodeport web --tcp=80:8080")
    text = described(kubectl, "service web")
    spec = kubectl.json("get service web")["spec"]
    for fact in (
        "Type: NodePort\n",
        f"IP: {spec['clusterIP']}\n",
        "Port: 80-8080 80/TCP\n",
        "TargetPort: 8080/TCP\n",
        f"NodePort: 80-8080 {spec['ports'][0]['nodePort']}/TCP\n",
        "Session Affinity: None\n",
    ):
        assert fact in text


def test_a_node(kubectl: Kubectl, api: Api) -> None:
    name = kubectl.namespace
    taint = {"key": "gpu", "effect": "NoSchedule"}
    api.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": [taint]}})
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    api.merge(f"/api/v1/nodes/{name}/status", {"status": status})
    container = {
        "name": "main",
        "image": "nginx",
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
    }
    api.create(
        f"/api/v1/namespaces/{name}/pods",
        {"metadata": {"name": "web"}, "spec": {"nodeName": name, "containers": [container]}},
    )
    text = described(kubectl, f"node {name}")
    assert "gpu:NoSchedule\n" in text
    assert " cpu 500m (25%) 0 (0%)\n" in text
    assert " memory 1Gi (25%) 1Gi (25%)\n" in text
    assert f" {name} web 500m (25%) 0 (0%) 1Gi (25%) 1Gi (25%)" in text
    api.delete(f"/api/v1/nodes/{name}")


def test_a_limit_range(kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "box"},
        "spec": {
            "limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}],
        },
    }
    kubectl("create -f -", input=json.dumps(manifest))
    text = described(kubectl, "limits box")
    assert "Type Resource Min Max Default Request Default Limit Max Limit/Request Ratio\n" in text
    assert "Container cpu 100m 2 2 2 -" in text


@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_data(kubectl: Kubectl, kind: str) -> None:
    kubectl(f"create {kind.replace('secret', 'secret generic')} one --from-literal=key=value")
    text = described(kubectl, f"{kind} one")
    assert ("key:\n----\nvalue\n" if kind == "configmap" else "key: 5 bytes\n") in text


def test_a_namespace_with_its_quota(kubectl: Kubectl) -> None:
    kubectl("create quota box --hard=cpu=2")
    text = described(kubectl, f"namespace {kubectl.namespace}")
    assert "Status: Active\n" in text
    assert " Name: box\n" in text


def test_what_is_not_there(kubectl: Kubectl) -> None:
    assert kubectl.fails("describe pod ghost") == (
        'Error from server (NotFound): pods "ghost" not found\n'
    )
