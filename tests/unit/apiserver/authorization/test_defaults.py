from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kedge.api.rbac_v1.cluster_role import ClusterRole
from kedge.api.rbac_v1.cluster_role_binding import ClusterRoleBinding
from kedge.api.rbac_v1.role import PolicyRule, Role
from kedge.apiserver.authorization import defaults
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.controllers.access.cluster_role_aggregation import gathered


def role(name: str) -> ClusterRole:
    found = next(each for each in defaults.roles() if each.metadata.name == name)
    assert isinstance(found, ClusterRole)
    return found


def test_there_are_as_many_as_upstream_has_and_two_readers() -> None:
    kinds = [type(each).__name__ for each in (*defaults.roles(), *defaults.bindings())]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == {"ClusterRole": 71, "Role": 7, "ClusterRoleBinding": 50, "RoleBinding": 7}


def test_a_rule_is_read_as_it_is_meant() -> None:
    rules = role("system:kube-scheduler").rules
    assert rules[2] == PolicyRule(
        apiGroups=["coordination.k8s.io"],
        resources=["leases"],
        resourceNames=["kube-scheduler"],
        verbs=["get", "list", "update", "watch"],
    )
    assert rules[0].apiGroups == ["", "events.k8s.io"]
    assert role("cluster-admin").rules[1] == PolicyRule(nonResourceURLs=["*"], verbs=["*"])


def test_what_the_defaults_give_is_what_upstreams_give(table: Callable[[str], Any]) -> None:
    known, expected = Policy(), table("defaults.yaml")
    roles = list(defaults.roles())
    # First the sum that is no part of a sum: view, edit, admin.
    sums = [each for each in roles if isinstance(each, ClusterRole) and each.aggregationRule]
    for each in reversed(sums):
        others = [other for other in roles if isinstance(other, ClusterRole)]
        rules = [rule for rule in gathered(each, others) if rule is not None]
        roles[roles.index(each)] = replace(each, rules=rules)
    for made in roles:
        known.put_role(RoleName(made.metadata.namespace, made.metadata.name), made.rules)
    for given in defaults.bindings():
        meta = given.metadata
        known.put_binding(meta.namespace, meta.name, given.roleRef, given.subjects)
    expected.fill(known)
    assert list(expected.wrong(known.decide)) == []


def test_readers_of_metrics_are_part_of_view_edit_and_admin() -> None:
    (name,) = (each.metadata.name for each in defaults.roles() if "metrics" in each.metadata.name)
    parts = [f"rbac.authorization.k8s.io/aggregate-to-{sum_}" for sum_ in ("view", "edit", "admin")]
    assert role(name).metadata.labels == dict.fromkeys(parts, "true") | {
        "kubernetes.io/bootstrapping": "rbac-defaults"
    }


def test_roles_and_bindings_of_a_namespace_are_there() -> None:
    found = [
        (each.metadata.namespace, each.metadata.name)
        for each in defaults.roles()
        if isinstance(each, Role)
    ]
    assert ("kube-public", "system:controller:bootstrap-signer") in found
    assert {namespace for namespace, _ in found} == {"kube-system", "kube-public"}
    for given in defaults.bindings():
        assert given.roleRef.apiGroup == "rbac.authorization.k8s.io"
        if isinstance(given, ClusterRoleBinding):
            assert given.roleRef.kind == "ClusterRole"
        else:
            assert given.roleRef.kind == "Role"
            assert (given.metadata.namespace, given.roleRef.name) in found


def test_rules_of_nodes_are_those_of_their_role_and_of_proxy_dns_and_policies() -> None:
    upstream = list(role("system:node").rules)
    rules = defaults.node_rules()
    assert [*rules[: len(upstream)]] == upstream
    added = {(*each.apiGroups, *each.resources, *each.verbs) for each in rules[len(upstream) :]}
    assert added == {
        ("discovery.k8s.io", "endpointslices", "list", "watch"),
        ("", "namespaces", "list", "watch"),
        ("networking.k8s.io", "networkpolicies", "list", "watch"),
        ("storage.k8s.io", "storageclasses", "get", "list", "watch"),
    }


def test_a_rule_that_goes_on_in_the_next_line_is_one() -> None:
    verbs = {verb for each in defaults.roles() for rule in each.rules for verb in rule.verbs}
    assert all(verb.isalpha() or verb == "*" for verb in verbs)
    names = [
        text
        for each in defaults.roles()
        for rule in each.rules
        for text in (*rule.apiGroups, *rule.resources, *rule.resourceNames)
    ]
    assert not [text for text in names if " " in text or "!" in text]
