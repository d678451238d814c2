from collections.abc import Callable

import pytest

from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver import route
from kedge.apiserver.authorization import policy as kept
from kedge.apiserver.authorization.attributes import Attributes, of_path, of_resource
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import ANONYMOUS, User
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

Question = Callable[[User, str], Attributes]

NODE = User("system:node:n1", ("system:nodes",))
ROOT = User("root", ("system:masters",))


@pytest.fixture
def authorizer() -> Authorizer:
    policy = Policy()
    policy.put_role(
        RoleName("", "agent"), [PolicyRule(apiGroups=["apps"], resources=["*"], verbs=["list"])]
    )
    ref = RoleRef(kind="ClusterRole", name="agent")
    policy.put_binding("", "agents", ref, [Subject(kind="Group", name="system:nodes")])
    return Authorizer(policy, NodeAuthorizer(Graph()))


def test_superusers_may_do_everything_without_any_role(
    authorizer: Authorizer, question: Question
) -> None:
    for text in ("frobnicate things.example.com", "delete /", "get secrets x in red"):
        assert authorizer.decide(question(ROOT, text)).allowed


def test_a_node_has_its_own_rights_and_those_it_was_given(
    authorizer: Authorizer, question: Question
) -> None:
    assert authorizer.decide(question(NODE, "get nodes n1")).allowed
    assert authorizer.decide(question(NODE, "list deployments.apps")).allowed


def test_all_reasons_of_a_refusal_are_told(authorizer: Authorizer, question: Question) -> None:
    ref = RoleRef(kind="ClusterRole", name="gone")
    authorizer.policy.put_binding("", "gone", ref, [Subject(kind="Group", name="system:nodes")])
    decision = authorizer.decide(question(NODE, "get nodes n2"))
    assert decision.reason == (
        "node 'n1' cannot read 'n2', only its own Node object\n"
        'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'
    )


def test_a_request_that_is_not_allowed_is_answered_with_403(authorizer: Authorizer) -> None:
    path = "/api/v1/namespaces/red/secrets/x"
    http, target = HttpRequest("GET", path), route.parse(path)
    assert target is not None
    with pytest.raises(StatusError) as refusal:
        authorizer.require(of_resource(NODE, "get", target, http))
    assert refusal.value.message == (
        'secrets "x" is forbidden: User "system:node:n1" cannot get resource "secrets" in API '
        'group "" in the namespace "red": no relationship found between node \'n1\' '
        "and this object"
    )
    authorizer.require(of_resource(ROOT, "get", target, http))
    with pytest.raises(StatusError, match='User "system:anonymous" cannot get path "/metrics"'):
        authorizer.require(of_path(ANONYMOUS, "GET", "/metrics"))


def test_rules_are_listed_for_a_review(authorizer: Authorizer) -> None:
    rule = {"verbs": ["list"], "apiGroups": ["apps"], "resources": ["*"]}
    member = User("member", ("system:nodes",))
    assert authorizer.rules_for(member, "red") == {
        "resourceRules": [rule],
        "nonResourceRules": [],
        "incomplete": False,
    }
    assert authorizer.rules_for(NODE, "red") == {
        "resourceRules": [rule],
        "nonResourceRules": [],
        "incomplete": True,
        "evaluationError": "node authorizer does not support user rule resolution",
    }


async def test_strangers_only_learn_how_the_server_is(
    server: LocalServer, question: Question
) -> None:
    api = server.app.api
    authorizer = Authorizer.following(api.cache, api.catalog)
    await kept.ensure(api)
    assert authorizer.decide(question(ANONYMOUS, "get /healthz")).allowed
    assert not authorizer.decide(question(ANONYMOUS, "get /api")).allowed
    assert not authorizer.decide(question(ANONYMOUS, "list pods")).allowed
