from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.model import LabelSelector
from kedge.api.rbac_v1.cluster_role import AggregationRule, ClusterRole
from kedge.api.rbac_v1.cluster_role_binding import ClusterRoleBinding
from kedge.api.rbac_v1.role import PolicyRule, Role
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization import defaults, policy
from kedge.apiserver.authorization.defaults import AUTOUPDATE
from kedge.apiserver.authorization.policy import reconcile
from kedge.testing.local_server import LocalServer

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def role(name: str) -> ClusterRole:
    found = next(each for each in defaults.roles() if each.metadata.name == name)
    assert isinstance(found, ClusterRole)
    return found


def binding(name: str) -> ClusterRoleBinding:
    found = next(each for each in defaults.bindings() if each.metadata.name == name)
    assert isinstance(found, ClusterRoleBinding)
    return found


def test_what_is_missing_is_made_and_what_is_whole_is_left() -> None:
    wanted = role("system:basic-user")
    assert reconcile(None, wanted) is wanted
    assert reconcile(wanted, wanted) is None


def test_rights_that_were_taken_away_come_back_and_others_stay() -> None:
    wanted = role("system:basic-user")
    extra = PolicyRule(apiGroups=["x"], resources=["y"], verbs=["z"])
    mended = reconcile(replace(wanted, rules=[wanted.rules[0], extra]), wanted)
    assert mended is not None
    assert mended.rules[:2] == [wanted.rules[0], extra]
    assert mended.rules[2:] == [
        PolicyRule(
            apiGroups=("authentication.k8s.io",),
            resources=("selfsubjectreviews",),
            verbs=("create",),
        )
    ]


def test_rights_that_are_spelled_otherwise_are_not_missing() -> None:
    wanted = role("system:basic-user")
    stars = [PolicyRule(apiGroups=["*"], resources=["*"], verbs=["*"])]
    assert reconcile(replace(wanted, rules=stars), wanted) is None


def test_labels_come_back_and_what_others_say_stays() -> None:
    wanted = role("view")
    said = {"mine": "yes", "kubernetes.io/bootstrapping": "no"}
    stripped = replace(wanted, metadata=replace(wanted.metadata, labels=said, annotations={}))
    mended = reconcile(stripped, wanted)
    assert mended is not None
    assert mended.metadata.labels == {
        "mine": "yes",
        "kubernetes.io/bootstrapping": "no",
        "rbac.authorization.k8s.io/aggregate-to-edit": "true",
    }
    assert mended.metadata.annotations == {AUTOUPDATE: "true"}


def test_whoever_does_not_want_to_be_mended_is_not() -> None:
    wanted = role("system:basic-user")
    meta = replace(wanted.metadata, annotations={AUTOUPDATE: "false"})
    assert reconcile(replace(wanted, metadata=meta, rules=()), wanted) is None


def test_a_sum_stays_one_and_keeps_the_selectors_of_others() -> None:
    wanted = role("view")
    own = LabelSelector(matchLabels={"mine": "yes"})
    other = replace(wanted, aggregationRule=AggregationRule(clusterRoleSelectors=[own]))
    mended = reconcile(other, wanted)
    assert mended is not None
    assert mended.aggregationRule is not None
    assert wanted.aggregationRule is not None
    selectors = mended.aggregationRule.clusterRoleSelectors
    assert selectors == [own, *wanted.aggregationRule.clusterRoleSelectors]
    plain = replace(wanted, aggregationRule=None)
    assert reconcile(plain, wanted) == wanted
    assert reconcile(wanted, plain) == plain


def test_a_role_or_binding_keeps_what_is_right_when_only_its_labels_are_mended() -> None:
    wanted: Any
    local = next(each for each in defaults.roles() if isinstance(each, Role))
    for wanted in (local, role("view"), role("system:basic-user"), binding("system:basic-user")):
        meta = replace(wanted.metadata, labels={}, uid="u1")
        mended = reconcile(replace(wanted, metadata=meta), wanted)
        assert mended == replace(wanted, metadata=replace(wanted.metadata, uid="u1"))


def test_lost_subjects_come_back_and_others_stay() -> None:
    wanted = binding("system:public-info-viewer")
    own = Subject(kind="User", name="mine")
    mended = reconcile(replace(wanted, subjects=[wanted.subjects[1], own]), wanted)
    assert mended is not None
    assert mended.subjects == [wanted.subjects[1], own, wanted.subjects[0]]


def test_a_binding_to_another_role_is_made_anew() -> None:
    wanted = binding("system:basic-user")
    ref = RoleRef(apiGroup=wanted.roleRef.apiGroup, kind="ClusterRole", name="cluster-admin")
    assert reconcile(replace(wanted, roleRef=ref), wanted) is wanted


# The writing.


async def test_a_new_cluster_gets_all_of_them_and_a_second_start_writes_nothing(
    server: LocalServer,
) -> None:
    api = server.app.api
    await policy.ensure(api)
    for wanted in (*defaults.roles(), *defaults.bindings()):
        kind, meta = type(wanted).__name__.lower() + "s", wanted.metadata
        place = f"namespaces/{meta.namespace}/" if meta.namespace else ""
        found = await server.get(f"{RBAC}/{place}{kind}/{meta.name}")
        assert found["metadata"]["labels"] == wanted.metadata.labels
    revision = server.store.revision
    await policy.ensure(api)
    assert server.store.revision == revision


@pytest.mark.parametrize("name", ["system:discovery", "system:basic-user"])
async def test_what_was_lost_or_spoilt_is_there_again_after_a_restart(
    server: LocalServer, name: str
) -> None:
    api = server.app.api
    await policy.ensure(api)
    role_path, binding_path = f"{RBAC}/clusterroles/{name}", f"{RBAC}/clusterrolebindings/{name}"
    whole = await server.get(role_path)
    await server.merge(role_path, {"rules": None, "metadata": {"labels": {"mine": "yes"}}})
    await server.delete(binding_path)
    wrong = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "mallory"}],
    }
    await server.post(f"{RBAC}/clusterrolebindings", wrong)
    await policy.ensure(api)
    mended = await server.get(role_path)
    verbs = {verb for rule in mended["rules"] for verb in rule["verbs"]}
    assert verbs == {verb for rule in whole["rules"] for verb in rule["verbs"]}
    assert mended["metadata"]["labels"]["mine"] == "yes"
    bound = await server.get(binding_path)
    assert bound["roleRef"]["name"] == name
    assert [subject["name"] for subject in bound["subjects"]] == ["system:authenticated"]
    assert bound["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"


async def test_a_binding_to_another_role_is_replaced_in_one_write(server: LocalServer) -> None:
    api = server.app.api
    await policy.ensure(api)
    path = f"{RBAC}/clusterrolebindings/system:basic-user"
    await server.delete(path)
    wrong = {
        "metadata": {"name": "system:basic-user"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
    }
    made = await server.post(f"{RBAC}/clusterrolebindings", wrong)
    revision = server.store.revision
    await policy.ensure(api)
    assert server.store.revision == revision + 1
    bound = await server.get(path)
    assert bound["metadata"]["uid"] == made["metadata"]["uid"]
    assert bound["roleRef"]["name"] == "system:basic-user"


async def test_defaults_are_written_by_the_server_itself(server: LocalServer) -> None:
    api = server.app.api
    await policy.ensure(api)
    found = await server.get(f"{RBAC}/clusterroles/system:basic-user")
    (entry,) = found["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kube-apiserver", "Update")
