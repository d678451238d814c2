from copy import copy
from typing import Any

import msgspec
import pytest

from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization import access_review
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

GROUP = "authorization.k8s.io"
ANNA = User("anna")
READ = PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get"])
GET_PODS = {"verb": "get", "resource": "pods", "namespace": "red"}
BECAUSE = 'RBAC: allowed by RoleBinding "readers/red" of Role "reader" to User "anna"'


HANDLERS = {
    "localsubjectaccessreviews": access_review.serve_local,
    "selfsubjectaccessreviews": access_review.serve_self,
    "selfsubjectrulesreviews": access_review.serve_rules,
    "subjectaccessreviews": access_review.serve_subject,
}


def authorizer() -> Authorizer:
    policy = Policy()
    policy.put_role(RoleName("red", "reader"), [READ])
    ref = RoleRef(kind="Role", name="reader")
    policy.put_binding("red", "readers", ref, [Subject(kind="User", name="anna")])
    return Authorizer(policy, NodeAuthorizer(Graph()))


def reviewed(server: LocalServer, plural: str, spec: Any, namespace: str = "") -> Any:
    """The answer to a review that anna posts."""
    resource = server.app.api.catalog.find(GROUP, "v1", plural)
    assert resource is not None
    headers = {"content-type": "application/json"}
    http = HttpRequest("POST", "/", "", headers, msgspec.json.encode({"spec": spec}))
    request = Request(http, ANNA, resource, "create", namespace)
    api = copy(server.app.api)
    api.authorizer = authorizer()
    response = HANDLERS[plural](api, request)
    assert response.status == 201
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


async def test_may_i(server: LocalServer) -> None:
    answer = reviewed(server, "selfsubjectaccessreviews", {"resourceAttributes": GET_PODS})
    assert answer["status"] == {"allowed": True, "reason": BECAUSE}
    assert answer["spec"] == {"resourceAttributes": GET_PODS}
    elsewhere = {"resourceAttributes": GET_PODS | {"namespace": "blue"}}
    answer = reviewed(server, "selfsubjectaccessreviews", elsewhere)
    assert answer["status"] == {"allowed": False}


async def test_may_they(server: LocalServer) -> None:
    about = {"resourceAttributes": GET_PODS, "user": "berta"}
    assert reviewed(server, "subjectaccessreviews", about)["status"] == {"allowed": False}
    boss = about | {"groups": ["system:masters"]}
    assert reviewed(server, "subjectaccessreviews", boss)["status"] == {"allowed": True}
    local = reviewed(server, "localsubjectaccessreviews", about | {"user": "anna"}, "red")
    assert local["status"]["allowed"] is True
    assert local["metadata"]["namespace"] == "red"


async def test_what_may_i(server: LocalServer) -> None:
    answer = reviewed(server, "selfsubjectrulesreviews", {"namespace": "red"})
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    assert answer["status"] == {
        "resourceRules": [rule],
        "nonResourceRules": [],
        "incomplete": False,
    }


PATH = {"path": "/x", "verb": "get"}


@pytest.mark.parametrize(
    ("plural", "spec", "message"),
    [
        (
            "selfsubjectaccessreviews",
            {},
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes "
            "or resourceAttributes must be specified",
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": GET_PODS, "nonResourceAttributes": PATH},
            '[spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be '
            'specified in combination with resourceAttributes, spec.user: Invalid value: "": '
            "at least one of user or group must be specified]",
        ),
        (
            "localsubjectaccessreviews",
            {"user": "anna", "resourceAttributes": GET_PODS | {"namespace": "blue"}},
            'spec.resourceAttributes.namespace: Invalid value: "blue": must match '
            "metadata.namespace",
        ),
        (
            "localsubjectaccessreviews",
            {"user": "anna", "nonResourceAttributes": PATH},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on '
            "this kind of request",
        ),
        (
            "subjectaccessreviews",
            {"user": "anna", "resourceAttributes": GET_PODS | {"labelSelector": {}}},
            "spec.resourceAttributes.labelSelector.requirements: Required value: when "
            "spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is "
            "required",
        ),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    server: LocalServer, plural: str, spec: Any, message: str
) -> None:
    with pytest.raises(StatusError) as refusal:
        reviewed(server, plural, spec, "red" if plural.startswith("local") else "")
    assert refusal.value.code == 422
    assert refusal.value.message == f'.authorization.k8s.io "" is invalid: {message}'


async def test_rules_are_those_of_one_namespace(server: LocalServer) -> None:
    with pytest.raises(StatusError, match="no namespace on request"):
        reviewed(server, "selfsubjectrulesreviews", {})
