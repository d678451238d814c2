"""Paths to what they ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver import route
from kedge.web.message import Query


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/api/v1/pods", ("", "v1", "pods", "", "", "")),
        ("/api/v1/pods/", ("", "v1", "pods", "", "", "")),
        ("/api/v1/namespaces/ns/pods/p/log", ("", "v1", "pods", "ns", "p", "log")),
        ("/api/v1/namespaces", ("", "v1", "namespaces", "", "", "")),
        ("/api/v1/namespaces/ns", ("", "v1", "namespaces", "", "ns", "")),
        ("/api/v1/namespaces/ns/finalize", ("", "v1", "namespaces", "", "ns", "finalize")),
        ("/api/v1/namespaces/ns/status", ("", "v1", "namespaces", "", "ns", "status")),
        ("/apis/apps/v1/deployments", ("apps", "v1", "deployments", "", "", "")),
        ("/api/v1/nodes/a%2Fb", ("", "v1", "nodes", "", "a/b", "")),
        ("/api", None),
        ("/api/v1", None),
        ("/apis/apps/v1", None),
        ("/api/v1//pods", None),
        ("/version", None),
        ("", None),
    ],
)
def test_a_path_is_taken_apart(path: str, wanted: tuple[str, ...] | None) -> None:
    target = route.parse(path)
    if wanted is None:
        assert target is None
    else:
        assert target is not None
        parts = (target.group, target.version, target.plural)
        assert (*parts, target.namespace, target.name, target.subresource) == wanted


def test_what_follows_a_proxy_is_kept() -> None:
    target = route.parse("/api/v1/namespaces/ns/services/s:80/proxy/a/b")
    assert target is not None
    assert (target.name, target.subresource, target.rest) == ("s:80", "proxy", "a/b")


@given(st.text(st.sampled_from("/apisv1%2Fwatchnames.\x00é"), max_size=1000))
def test_no_path_is_too_strange(path: str) -> None:
    assert route.parse(path) == route.parse(path)


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", "/api/v1/pods", "", "list"),
        ("GET", "/api/v1/pods", "watch=true", "watch"),
        ("GET", "/api/v1/pods", "watch=1", "watch"),
        ("GET", "/api/v1/pods", "watch=0", "list"),
        ("GET", "/api/v1/pods", "watch=FALSE", "list"),
        ("GET", "/api/v1/watch/pods", "", "watch"),
        ("GET", "/api/v1/nodes/n", "watch=true", "get"),
        ("GET", "/api/v1/watch/nodes/n", "", "watch"),
        ("POST", "/api/v1/pods", "", "create"),
        ("PUT", "/api/v1/nodes/n", "", "update"),
        ("PATCH", "/api/v1/nodes/n", "", "patch"),
        ("DELETE", "/api/v1/nodes/n", "", "delete"),
        ("DELETE", "/api/v1/nodes", "", "deletecollection"),
        ("HEAD", "/api/v1/nodes/n/proxy/x", "", "get"),
        ("OPTIONS", "/api/v1/nodes/n/proxy", "", ""),
    ],
)
def test_a_method_is_a_verb(method: str, path: str, query: str, verb: str) -> None:
    target = route.parse(path)
    assert target is not None
    assert route.verb(method, target, Query(query)) == verb
