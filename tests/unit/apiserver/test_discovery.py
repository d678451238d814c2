"""Discovery in both dialects."""

from typing import Any

import pytest

from kedge.api.builtin.resources import RESOURCES
from kedge.api.model import Document
from kedge.api.presentation import Presentation
from kedge.api.resource import SCALE, STATUS, Resource, StoredAs, Subresource
from kedge.apiserver import discovery


def kind(
    name: str, plural: str, group: str = "", version: str = "v1", **more: Any
) -> Resource[Document]:
    return Resource(type=Document, kind=name, plural=plural, group=group, version=version, **more)


PODS = kind(
    "Pod",
    "pods",
    presentation=Presentation(short_names=("po",), categories=("all",)),
    subresources=(
        Subresource("log", ("get",)),
        Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
    ),
)
NODES = kind("Node", "nodes", namespaced=False, presentation=Presentation(short_names=("no",)))
HPA2 = kind("HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling", "v2")
HPA1 = kind(
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "autoscaling",
    store_as=StoredAs(HPA2, dict, dict),
)
CRON = kind("CronTab", "crontabs", "example.com", "v1beta1", subresources=(STATUS, SCALE))
APPS = kind("Deployment", "deployments", "apps")
ALL = [CRON, HPA1, NODES, PODS, HPA2, APPS]


def test_core_is_told_in_one_document() -> None:
    document = discovery.aggregated_core(ALL)
    (group,) = document["items"]
    assert document["kind"] == "APIGroupDiscoveryList"
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert group["metadata"] == {}
    (version,) = group["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    assert [each["resource"] for each in version["resources"]] == ["nodes", "pods"]
    pods = version["resources"][1]
    assert pods == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
        "shortNames": ["po"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": "eviction",
                "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
                "verbs": ["create"],
            },
            {
                "subresource": "log",
                "responseKind": {"group": "", "version": "", "kind": "Pod"},
                "verbs": ["get"],
            },
        ],
    }


def test_groups_come_in_upstreams_order_and_newer_versions_first() -> None:
    items = discovery.aggregated(ALL)["items"]
    assert [item["metadata"]["name"] for item in items] == ["apps", "autoscaling", "example.com"]
    assert [each["version"] for each in items[1]["versions"]] == ["v2", "v1"]


def test_legacy_documents_say_the_same() -> None:
    groups = discovery.group_list(ALL)["groups"]
    assert [each["name"] for each in groups] == ["apps", "autoscaling", "example.com"]
    assert discovery.group(ALL, "autoscaling") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "autoscaling",
        "versions": [
            {"groupVersion": "autoscaling/v2", "version": "v2"},
            {"groupVersion": "autoscaling/v1", "version": "v1"},
        ],
        "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"},
    }
    assert discovery.group(ALL, "nowhere.io") is None
    assert discovery.api_versions("10.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}
        ],
    }


def test_subresources_are_lines_of_their_own() -> None:
    listed = discovery.resource_list(ALL, "", "v1")
    assert listed is not None
    assert listed["groupVersion"] == "v1"
    assert [line["name"] for line in listed["resources"]] == [
        "nodes",
        "pods",
        "pods/eviction",
        "pods/log",
    ]
    assert listed["resources"][2] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert discovery.resource_list(ALL, "apps", "v2") is None


def test_versions_of_one_store_have_one_hash() -> None:
    # The values that kube-apiserver 1.36 gives.
    assert discovery.storage_version_hash(HPA1) == "qwQve8ut294="
    assert discovery.storage_version_hash(HPA2) == "qwQve8ut294="
    volumes = next(each for each in RESOURCES if each.kind == "PersistentVolume")
    assert discovery.storage_version_hash(volumes) == "HN/zwEC+JgM="


@pytest.mark.parametrize(
    ("mixed", "ordered"),
    [
        (["v1", "v2", "v10"], ["v10", "v2", "v1"]),
        (["v1alpha1", "v1", "v1beta2", "v2alpha1"], ["v1", "v1beta2", "v2alpha1", "v1alpha1"]),
        (["foo10", "v1beta1", "foo1"], ["v1beta1", "foo1", "foo10"]),
    ],
)
def test_stable_versions_are_preferred(mixed: list[str], ordered: list[str]) -> None:
    assert sorted(mixed, key=discovery.version_order) == ordered
