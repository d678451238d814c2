from typing import Any

import pytest

from kedge.apiserver import route
from kedge.apiserver.authorization.attributes import (
    Attributes,
    denied,
    of_path,
    of_resource,
    of_review,
)
from kedge.apiserver.request import User
from kedge.web.message import HttpRequest

ANNA = User("anna")


def attributes(method: str, url: str) -> Attributes:
    path, _, query = url.partition("?")
    http, target = HttpRequest(method, path, query), route.parse(path)
    if target is None:
        return of_path(ANNA, method, path)
    return of_resource(ANNA, route.verb(method, target, http.query), target, http)


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("GET", "/api/v1/namespaces/red/pods/web/log", ("get", "", "pods/log", "red", "web")),
        ("GET", "/apis/apps/v1/deployments", ("list", "apps", "deployments", "", "")),
        ("DELETE", "/api/v1/namespaces/red/pods", ("deletecollection", "", "pods", "red", "")),
        ("GET", "/api/v1/namespaces", ("list", "", "namespaces", "", "")),
        # Aggregated usage is the usage of all pods of its namespace.
        (
            "GET",
            "/apis/metrics/v1alpha1/namespaces/red/deployments/web",
            ("list", "metrics", "pods", "red", ""),
        ),
        (
            "GET",
            "/apis/metrics/v1alpha1/services?watch=1",
            ("watch", "metrics", "pods", "", ""),
        ),
        ("GET", "/apis/metrics/v1alpha1/nodes/n1", ("get", "metrics", "nodes", "", "n1")),
        # A namespace lives in itself, so that it can be read by those who have rights there.
        ("GET", "/api/v1/namespaces/red", ("get", "", "namespaces", "red", "red")),
        (
            "PUT",
            "/api/v1/namespaces/red/finalize",
            ("update", "", "namespaces/finalize", "red", "red"),
        ),
        (
            "GET",
            "/api/v1/namespaces/red/pods?fieldSelector=metadata.name%3Dweb",
            ("list", "", "pods", "red", "web"),
        ),
        (
            "GET",
            "/api/v1/namespaces/red/pods?watch=1&fieldSelector=spec.nodeName%3Dn,metadata.name%3Dweb",
            ("watch", "", "pods", "red", "web"),
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%21%3Dweb",
            ("list", "", "pods", "", ""),
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Da/b",
            ("list", "", "pods", "", ""),
        ),
        (
            "DELETE",
            "/api/v1/namespaces/red/pods?fieldSelector=metadata.name%3Dweb",
            ("deletecollection", "", "pods", "red", ""),
        ),
        ("GET", "/api/v1/pods?fieldSelector=nonsense", ("list", "", "pods", "", "")),
    ],
)
def test_a_request_is_put_into_the_words_of_rules(
    method: str, url: str, expected: tuple[str, ...]
) -> None:
    found = attributes(method, url)
    assert (found.verb, found.group, found.resource, found.namespace, found.name) == expected


def test_paths_are_compared_decoded() -> None:
    assert attributes("GET", "/met%72ics").path == "/metrics"
    assert attributes("HEAD", "/healthz").verb == "head"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"resourceAttributes": {"verb": "get", "group": "apps", "resource": "deployments"}},
            Attributes(ANNA, "get", group="apps", plural="deployments"),
        ),
        (
            {
                "resourceAttributes": {
                    "verb": "get",
                    "group": "apps",
                    "version": "v1",
                    "resource": "deployments",
                    "subresource": "scale",
                    "namespace": "red",
                    "name": "web",
                }
            },
            Attributes(ANNA, "get", "apps", "v1", "deployments", "scale", "red", "web"),
        ),
        ({}, Attributes(ANNA, "")),
        ({"nonResourceAttributes": {}}, Attributes(ANNA, "", path="")),
        (
            {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
            Attributes(ANNA, "get", path="/metrics"),
        ),
    ],
)
def test_a_review_asks_in_the_same_words(spec: dict[str, Any], expected: Attributes) -> None:
    assert of_review(ANNA, spec) == expected


@pytest.mark.parametrize(
    "selector",
    [
        {"rawSelector": "spec.nodeName=n1"},
        {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
    ],
)
def test_a_review_can_be_about_a_selection(selector: dict[str, Any]) -> None:
    asked = {"verb": "list", "resource": "pods", "fieldSelector": selector}
    assert of_review(ANNA, {"resourceAttributes": asked}).fields.exact("spec.nodeName") == "n1"


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "spec.nodeName", "operator": "NotIn", "values": ["n1"]},
        {"key": "spec.nodeName", "operator": "In", "values": ["n1", "n2"]},
        {"key": "spec.nodeName", "operator": "In"},
    ],
)
def test_only_a_single_value_selects_exactly(requirement: dict[str, Any]) -> None:
    selector = {"requirements": [requirement]}
    asked = {"verb": "list", "resource": "pods", "fieldSelector": selector}
    assert of_review(ANNA, {"resourceAttributes": asked}).fields.exact("spec.nodeName") is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            Attributes(ANNA, "get", plural="pods", namespace="red", name="web"),
            'pods "web" is forbidden: User "anna" cannot get resource "pods" '
            'in API group "" in the namespace "red"',
        ),
        (
            Attributes(ANNA, "list", group="apps", plural="deployments", subresource="scale"),
            'deployments.apps is forbidden: User "anna" cannot list resource "deployments/scale" '
            'in API group "apps" at the cluster scope',
        ),
        (
            Attributes(ANNA, "get", path="/<script>"),
            'forbidden: User "anna" cannot get path "/&lt;script&gt;"',
        ),
        (
            Attributes(User("jürgen"), "get", path="/a&b"),
            'forbidden: User "jürgen" cannot get path "/a&amp;b"',
        ),
    ],
)
def test_a_refusal_is_worded_as_upstream_words_it(asked: Attributes, message: str) -> None:
    refusal = denied(asked)
    assert (refusal.code, refusal.reason) == (403, "Forbidden")
    assert refusal.message == message
    assert denied(asked, "because").message == f"{message}: because"
