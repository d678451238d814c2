from typing import Any

import pytest

from kedge.apiserver.fairness.flow_rules import RequestDigest, in_order, schema_of
from kedge.apiserver.flow_control import default_objects

SCHEMAS = in_order(schema_of(each) for each in default_objects() if each["kind"] == "FlowSchema")
EVERYBODY = ("system:authenticated",)
STRANGERS = ("system:unauthenticated",)
NODES = ("system:nodes",)


def digest(
    user: str, verb: str, what: str, namespace: str = "", groups: tuple[str, ...] = EVERYBODY
) -> RequestDigest:
    """A request for a path, or for GROUP/RESOURCE with an empty core group."""
    if what.startswith("/"):
        return RequestDigest(user, groups, verb, "", "", "", what)
    group, _, resource = what.rpartition(":")
    return RequestDigest(user, groups, verb, group, resource, namespace, "")


@pytest.mark.parametrize(
    ("request_", "schema"),
    [
        (digest("root", "get", "pods", "a", ("system:masters",)), "exempt"),
        (digest("ann", "get", "/healthz"), "probes"),
        (digest("ann", "post", "/healthz"), "global-default"),
        (
            digest("system:anonymous", "get", "/x", groups=STRANGERS),
            "global-default",
        ),
        (
            digest("system:kube-scheduler", "update", "coordination.k8s.io:leases", "kube-system"),
            "system-leader-election",
        ),
        (digest("system:kube-scheduler", "list", "pods"), "kube-scheduler"),
        (
            digest("system:node:n", "update", "nodes/status", "", NODES),
            "system-node-high",
        ),
        (digest("system:node:n", "get", "nodes/proxy", "", NODES), "system-nodes"),
        (
            digest("system:serviceaccount:kube-system:gc", "list", "pods"),
            "kube-system-service-accounts",
        ),
        (
            digest("system:serviceaccount:a:b", "list", "pods", "a", ("system:serviceaccounts",)),
            "service-accounts",
        ),
        (digest("ann", "list", "apps:deployments", "a"), "global-default"),
    ],
)
def test_a_request_belongs_to_the_first_schema_that_matches(
    request_: RequestDigest, schema: str
) -> None:
    assert next(each.name for each in SCHEMAS if each.matches(request_)) == schema


def schema(**spec: Any) -> Any:
    subject = {"kind": "User", "user": {"name": "ann"}}
    rules = spec.pop("rules", {})
    return schema_of(
        {"metadata": {"name": "s"}, "spec": spec | {"rules": [{"subjects": [subject]} | rules]}}
    )


def test_namespaces_and_cluster_scope_are_told_apart() -> None:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["a"]}
    inside = schema(rules={"resourceRules": [rule]})
    assert inside.matches(digest("ann", "get", "pods", "a"))
    assert not inside.matches(digest("ann", "get", "pods", "b"))
    assert not inside.matches(digest("ann", "get", "pods"))
    assert not inside.matches(digest("bob", "get", "pods", "a"))
    wide = schema(rules={"resourceRules": [rule | {"clusterScope": True}]})
    assert wide.matches(digest("ann", "get", "pods"))


def test_a_star_at_the_end_of_a_path_stands_for_the_rest() -> None:
    paths = schema(rules={"nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/a/*"]}]})
    assert paths.matches(digest("ann", "get", "/a/b"))
    assert not paths.matches(digest("ann", "get", "/b"))


def test_flows_are_told_apart_by_user_or_namespace() -> None:
    asked = digest("ann", "get", "pods", "a")
    assert schema(distinguisherMethod={"type": "ByUser"}).flow_of(asked) == "ann"
    assert schema(distinguisherMethod={"type": "ByNamespace"}).flow_of(asked) == "a"
    assert schema().flow_of(asked) == ""
