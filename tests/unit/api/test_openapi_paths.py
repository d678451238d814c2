"""Paths and operations as clients look for them."""

from typing import Any

import pytest

from kedge.api.builtin.resources import RESOURCES, REVIEWS
from kedge.api.model import Document
from kedge.api.openapi_paths import Paths, in_v2
from kedge.api.openapi_schemas import Components
from kedge.api.resource import SCALE, STATUS, Resource
from kedge.machinery.schema import Schema

KINDS = {each.kind: each for each in (*RESOURCES, *REVIEWS)}
CUSTOM = Resource(
    type=Document,
    group="stable.example.com",
    kind="CronTab",
    plural="crontabs",
    subresources=(STATUS, SCALE),
    schema_source=lambda: Schema(type="object"),
    custom=True,
)
BASE = "/apis/networking.k8s.io/v1"


def paths_of(resource: Resource[Any], *, v2: bool = False) -> dict[str, Any]:
    paths = Paths(Components(v2=v2))
    paths.add(resource)
    return in_v2(paths.written) if v2 else paths.written


def methods(paths: dict[str, Any]) -> dict[str, list[str]]:
    return {path: sorted(item.keys() - {"parameters"}) for path, item in paths.items()}


def test_namespaced_kind_has_upstreams_paths() -> None:
    assert methods(paths_of(KINDS["Ingress"])) == {
        f"{BASE}/namespaces/{{namespace}}/ingresses": ["delete", "get", "post"],
        f"{BASE}/namespaces/{{namespace}}/ingresses/{{name}}": ["delete", "get", "patch", "put"],
        f"{BASE}/namespaces/{{namespace}}/ingresses/{{name}}/status": ["get", "patch", "put"],
        f"{BASE}/ingresses": ["get"],
    }


def test_kinds_that_can_only_be_created_have_one_operation() -> None:
    assert methods(paths_of(KINDS["TokenReview"])) == {
        "/apis/authentication.k8s.io/v1/tokenreviews": ["post"]
    }


@pytest.mark.parametrize(
    ("kind", "path", "method", "name"),
    [
        ("Ingress", f"{BASE}/ingresses", "get", "listNetworkingV1IngressForAllNamespaces"),
        (
            "Ingress",
            f"{BASE}/namespaces/{{namespace}}/ingresses",
            "delete",
            "deleteNetworkingV1CollectionNamespacedIngress",
        ),
        (
            "Ingress",
            f"{BASE}/namespaces/{{namespace}}/ingresses/{{name}}/status",
            "put",
            "replaceNetworkingV1NamespacedIngressStatus",
        ),
        (
            "FlowSchema",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{name}",
            "get",
            "readFlowcontrolApiserverV1FlowSchema",
        ),
        ("PersistentVolume", "/api/v1/persistentvolumes", "post", "createCoreV1PersistentVolume"),
    ],
)
def test_operations_have_upstreams_names(kind: str, path: str, method: str, name: str) -> None:
    operation = paths_of(KINDS[kind])[path][method]
    assert operation["operationId"] == name


def test_kubectl_finds_field_validation_on_the_patch() -> None:
    item = paths_of(KINDS["Ingress"])[f"{BASE}/namespaces/{{namespace}}/ingresses/{{name}}"]
    patch = item["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "networking.k8s.io",
        "kind": "Ingress",
        "version": "v1",
    }
    assert ("fieldValidation", "query") in [(p["name"], p["in"]) for p in patch["parameters"]]
    assert sorted(patch["requestBody"]["content"]) == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ]
    assert [(p["name"], p["in"]) for p in item["parameters"]] == [
        ("name", "path"),
        ("namespace", "path"),
        ("pretty", "query"),
    ]


def test_custom_kinds_take_no_strategic_patches() -> None:
    base = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"
    paths = paths_of(CUSTOM)
    assert (
        "application/strategic-merge-patch+json"
        not in (paths[base]["patch"]["requestBody"]["content"])
    )
    assert paths[base]["get"]["operationId"] == "readStableExampleComV1NamespacedCronTab"
    scale = paths[f"{base}/scale"]["get"]
    assert scale["x-kubernetes-group-version-kind"] == {
        "group": "autoscaling",
        "kind": "Scale",
        "version": "v1",
    }
    assert scale["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/io.k8s.api.autoscaling.v1.Scale"
    }


def test_version_2_says_the_same_in_its_own_words() -> None:
    item = paths_of(KINDS["Ingress"], v2=True)[f"{BASE}/namespaces/{{namespace}}/ingresses"]
    post = item["post"]
    assert post["parameters"][0] == {
        "in": "body",
        "name": "body",
        "schema": {"$ref": "#/definitions/io.k8s.api.networking.v1.Ingress"},
        "required": True,
    }
    assert post["responses"]["201"]["schema"] == {
        "$ref": "#/definitions/io.k8s.api.networking.v1.Ingress"
    }
    assert "requestBody" not in post
    limit = next(each for each in item["get"]["parameters"] if each["name"] == "limit")
    assert (limit["type"], limit["in"]) == ("integer", "query")
    assert "schema" not in limit
