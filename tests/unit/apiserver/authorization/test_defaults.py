from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kedge.api.rbac_v1.cluster_role import ClusterRole
from kedge.api.rbac_v1.role import PolicyRule
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
        roles[roles.index(each)] = replace(each, rules=gathered(each, others))
    for made in roles:
        known.put_role(RoleName(made.metadata.namespace, made.metadata.name), made.rules)
    for given in defaults.bindings():
        meta = given.metadata
        known.put_binding(meta.namespace, meta.name, given.roleRef, given.subjects)
    expected.fill(known)
    assert list(expected.wrong(known.decide)) == []
