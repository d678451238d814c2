from collections.abc import Callable
from typing import Any

import pytest

from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization import rbac
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.rbac import Policy, RbacAuthorizer, RoleName
from kedge.apiserver.request import User
from kedge.testing.local_server import LocalServer

Question = Callable[[User, str], Attributes]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ANNA = User("anna", ("team",))
READ = [PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get"])]
REF = RoleRef(kind="Role", name="reader")


def bind(policy: Policy, *subjects: Subject, namespace: str = "red", ref: RoleRef = REF) -> None:
    policy.put_binding(namespace, "binding", ref, subjects)


def test_every_question_of_the_table_is_answered_as_there(table: Callable[[str], Any]) -> None:
    policy, questions = Policy(), table("rbac.yaml")
    questions.fill(policy)
    assert list(questions.wrong(policy.decide)) == []


def test_a_role_that_comes_after_its_binding_counts(question: Question) -> None:
    policy, asked = Policy(), question(ANNA, "get pods web in red")
    bind(policy, Subject(kind="User", name="anna"))
    assert not policy.decide(asked).allowed
    policy.put_role(RoleName("red", "reader"), READ)
    assert policy.decide(asked).allowed


def test_whatever_goes_takes_its_rights_along(question: Question) -> None:
    policy, asked = Policy(), question(ANNA, "get pods web in red")

    def give() -> None:
        policy.put_role(RoleName("red", "reader"), READ)
        bind(policy, Subject(kind="Group", name="team"))
        assert policy.decide(asked).allowed

    give()
    policy.drop_binding("red", "binding")
    assert not policy.decide(asked).allowed
    give()
    policy.drop_role(RoleName("red", "reader"))
    assert not policy.decide(asked).allowed
    give()
    policy.put_role(RoleName("red", "reader"), [])
    assert not policy.decide(asked).allowed
    give()
    bind(policy, Subject(kind="User", name="berta"))
    assert not policy.decide(asked).allowed


def test_dropping_a_binding_leaves_grants_in_other_namespaces_and_of_other_bindings(
    question: Question,
) -> None:
    policy, anna = Policy(), Subject(kind="User", name="anna")
    for namespace in ("red", "blue"):
        policy.put_role(RoleName(namespace, "reader"), READ)
        bind(policy, anna, namespace=namespace)
    policy.put_binding("red", "second", REF, [anna])
    policy.drop_binding("red", "binding")
    assert policy.decide(question(ANNA, "get pods web in red")).allowed
    assert policy.decide(question(ANNA, "get pods web in blue")).allowed
    policy.drop_binding("red", "second")
    assert not policy.decide(question(ANNA, "get pods web in red")).allowed
    assert policy.decide(question(ANNA, "get pods web in blue")).allowed


@pytest.mark.parametrize("role_first", [True, False])
def test_nothing_is_left_of_roles_and_bindings_that_are_gone(role_first: bool) -> None:
    policy = Policy()
    policy.put_role(RoleName("red", "reader"), READ)
    subjects = [Subject(kind="User", name="anna"), Subject(kind="Group", name="team")]
    bind(policy, *subjects)
    bind(policy, *subjects)
    policy.put_binding("red", "second", REF, subjects)
    drops: list[Callable[[], None]] = [
        lambda: policy.drop_role(RoleName("red", "reader")),
        lambda: policy.drop_binding("red", "binding"),
        lambda: policy.drop_binding("red", "second"),
    ]
    for drop in drops if role_first else reversed(drops):
        assert vars(policy) != vars(Policy())
        drop()
    assert vars(policy) == vars(Policy())


def test_a_role_is_missing_until_it_exists_and_again_when_it_is_gone() -> None:
    policy, name = Policy(), RoleName("red", "reader")
    assert policy.rules_of(name) is None
    bind(policy, Subject(kind="User", name="anna"))
    assert policy.rules_of(name) is None
    assert policy.missing_roles(ANNA, "red") == [name]
    policy.put_role(name, READ)
    assert policy.rules_of(name) == tuple(READ)
    assert policy.missing_roles(ANNA, "red") == []
    policy.drop_role(name)
    assert policy.rules_of(name) is None
    assert policy.missing_roles(ANNA, "red") == [name]


def test_subjects_that_can_be_nobody_are_not_indexed() -> None:
    policy, empty = Policy(), Policy()
    account, robot = Subject(kind="ServiceAccount", name="bot"), Subject(kind="Robot", name="r2")
    bind(policy, account, robot, namespace="", ref=RoleRef(kind="ClusterRole", name="reader"))
    for index in ("_users", "_groups"):
        assert vars(policy)[index] == vars(empty)[index]


def test_the_memory_of_who_holds_what_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac, "REMEMBERED", 2)
    policy = Policy()
    for number in range(5):
        assert policy.rules_for(User(f"user-{number}"), "red") == []
        assert 1 <= len(vars(policy)["_remembered"]) <= 2


@pytest.mark.parametrize(("namespace", "named"), [("blue", "blue"), (None, "red")])
def test_the_reason_names_the_account_with_its_namespace(
    question: Question, namespace: str | None, named: str
) -> None:
    policy = Policy()
    policy.put_role(RoleName("red", "reader"), READ)
    bind(policy, Subject(kind="ServiceAccount", name="bot", namespace=namespace or ""))
    asked = question(User(f"system:serviceaccount:{named}:bot"), "get pods in red")
    assert policy.decide(asked).reason == (
        'RBAC: allowed by RoleBinding "binding/red" of Role "reader" to'
        f' ServiceAccount "bot/{named}"'
    )


def test_one_person_named_twice_is_unbound_once(question: Question) -> None:
    policy, asked = Policy(), question(User("system:serviceaccount:red:bot"), "get pods in red")
    policy.put_role(RoleName("red", "reader"), READ)
    account = Subject(kind="ServiceAccount", name="bot")
    bind(policy, account, Subject(kind="User", name="system:serviceaccount:red:bot"))
    assert policy.decide(asked).allowed
    policy.drop_binding("red", "binding")
    assert not policy.decide(asked).allowed


def test_roles_of_the_same_name_are_told_apart(question: Question) -> None:
    policy, asked = Policy(), question(ANNA, "get pods in red")
    policy.put_role(RoleName("blue", "reader"), READ)
    policy.put_role(RoleName("", "reader"), READ)
    bind(policy, Subject(kind="User", name="anna"))
    assert not policy.decide(asked).allowed
    bind(policy, Subject(kind="User", name="anna"), ref=RoleRef(kind="ClusterRole", name="reader"))
    assert policy.decide(asked).allowed


def test_the_rules_that_apply_to_somebody_can_be_listed() -> None:
    policy = Policy()
    log = [PolicyRule(apiGroups=[""], resources=["pods/log"], verbs=["get"])]
    policy.put_role(RoleName("red", "reader"), READ)
    policy.put_role(RoleName("", "logs"), log)
    bind(policy, Subject(kind="User", name="anna"))
    ref = RoleRef(kind="ClusterRole", name="logs")
    bind(policy, Subject(kind="Group", name="team"), namespace="", ref=ref)
    assert policy.rules_for(ANNA, "red") == [*READ, *log]
    assert policy.rules_for(ANNA, "blue") == log
    assert policy.rules_for(User("other"), "red") == []


async def test_what_is_written_counts_with_the_next_request(
    server: LocalServer, question: Question
) -> None:
    policy = RbacAuthorizer(server.app.api.cache).policy
    asked = question(ANNA, "get pods web in default")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    roles, bindings = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
    await server.post(roles, {"metadata": {"name": "r"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"kind": "User", "name": "anna"}]
    given = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": subjects}
    await server.post(bindings, given)
    assert policy.decide(asked).allowed
    await server.merge(f"{roles}/r", {"rules": []})
    assert not policy.decide(asked).allowed
    await server.merge(f"{roles}/r", {"rules": rules})
    assert policy.decide(asked).allowed
    await server.delete(f"{roles}/r")
    assert not policy.decide(asked).allowed
    await server.post(roles, {"metadata": {"name": "r"}, "rules": rules})
    assert policy.decide(asked).allowed
    await server.delete(f"{bindings}/b")
    assert not policy.decide(asked).allowed


async def test_what_was_there_before_the_start_counts(
    server: LocalServer, question: Question
) -> None:
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    given = {
        "metadata": {"name": "b"},
        "roleRef": ref,
        "subjects": [{"kind": "User", "name": "anna"}],
    }
    await server.post(f"{RBAC}/clusterrolebindings", given)
    policy = RbacAuthorizer(server.app.api.cache).policy
    assert policy.decide(question(ANNA, "get /metrics")).allowed
