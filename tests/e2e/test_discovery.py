"""What the cluster says that it offers: api-resources, api-versions, cluster-info, version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

UPSTREAM = Path(__file__).with_name("api-resources.txt")
"""What `kubectl api-resources -o wide` says of Kubernetes 1.36 with its default settings."""

VERSIONS = [
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apiregistration.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "certificates.k8s.io/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1",
    "networking.k8s.io/v1",
    "node.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "resource.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
    "v1",
]


def test_api_resources_are_those_of_upstream(kubectl: Kubectl) -> None:
    told = [" ".join(line.split()) for line in kubectl.says("api-resources -o wide").splitlines()]
    expected = UPSTREAM.read_text().splitlines()
    assert [line for line in expected if line not in told] == []
    kinds = {line.split()[0] for line in expected}
    added = [line for line in told if line.split()[0] in kinds and line not in expected]
    assert [line for line in added if ".example.com/" not in line and " metrics" not in line] == []


def test_api_resources_are_chosen_by_category_verb_scope_and_group(kubectl: Kubectl) -> None:
    def names(selection: str) -> set[str]:
        return set(kubectl.says(f"api-resources {selection} -o name").split())

    assert names("--categories=all") == {
        "pods",
        "replicationcontrollers",
        "services",
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "horizontalpodautoscalers.autoscaling",
        "cronjobs.batch",
        "jobs.batch",
    }
    assert "customresourcedefinitions.apiextensions.k8s.io" in names("--categories=api-extensions")
    assert "bindings" not in names("--verbs=list,get")
    assert {"namespaces", "nodes"} <= names("--namespaced=false --api-group=")
    assert names("--api-group=batch") == {"cronjobs.batch", "jobs.batch"}


def test_api_versions(kubectl: Kubectl) -> None:
    told = kubectl.says("api-versions").split()
    assert [version for version in VERSIONS if version not in told] == []


def test_cluster_info(kubectl: Kubectl, api: Api) -> None:
    said = re.sub(r"\x1b\[[0-9;]*m", "", kubectl.says("cluster-info -n kube-system"))
    assert said.splitlines()[0] == f"Kubernetes control plane is running at {api.url}"


def test_version(kubectl: Kubectl) -> None:
    version = kubectl.json("version")["serverVersion"]
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


def test_both_flavours_of_discovery_agree(api: Api) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    aggregated = {}
    for root in ("/api", "/apis"):
        for group in api("GET", root, Accept=accept)["items"]:
            for version in group["versions"]:
                prefix = f"{root}/{group['metadata']['name']}" if root == "/apis" else root
                for resource in version["resources"]:
                    key = f"{prefix}/{version['version']}/{resource['resource']}"
                    aggregated[key] = sorted(resource["verbs"])
                    for part in resource.get("subresources", []):
                        aggregated[f"{key}/{part['subresource']}"] = sorted(part["verbs"])
    legacy = {}
    groups = api.get("/apis/")["groups"]
    paths = [f"/apis/{v['groupVersion']}" for g in groups for v in g["versions"]]
    for path in ["/api/v1", *paths]:
        for resource in api.get(path)["resources"]:
            legacy[f"{path}/{resource['name']}"] = sorted(resource["verbs"])
    assert aggregated == legacy


def test_health(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        with api.open(api.request("GET", path)) as answer:
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert answer.read() == b"ok"
