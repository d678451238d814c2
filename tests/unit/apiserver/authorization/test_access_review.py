from copy import copy
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization import access_review
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response

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
    response = answer(server, plural, spec, namespace)
    assert response.status == 201
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


def answer(
    server: LocalServer,
    plural: str,
    spec: Any,
    namespace: str = "",
    accept: str = "*/*",
    query: str = "",
) -> Response:
    resource = server.app.api.catalog.find(GROUP, "v1", plural)
    assert resource is not None
    headers = {"content-type": "application/json", "accept": accept}
    http = HttpRequest("POST", "/", query, headers, msgspec.json.encode({"spec": spec}))
    request = Request(http, ANNA, resource, "create", namespace)
    api = copy(server.app.api)
    api.authorizer = authorizer()
    return HANDLERS[plural](api, request)


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


async def test_an_answer_has_the_form_that_is_asked_for(server: LocalServer) -> None:
    spec = {"resourceAttributes": GET_PODS}
    response = answer(server, "selfsubjectaccessreviews", spec, accept="application/yaml")
    assert (response.status, response.content_type) == (201, "application/yaml")
    assert isinstance(response.body, bytes)
    assert yaml.safe_load(response.body)["status"] == {"allowed": True, "reason": BECAUSE}
    with pytest.raises(StatusError) as refusal:
        answer(server, "selfsubjectaccessreviews", spec, accept="text/html")
    assert refusal.value.code == 406


@pytest.mark.parametrize("plural", HANDLERS)
async def test_an_unknown_dry_run_is_refused(server: LocalServer, plural: str) -> None:
    spec = {"namespace": "red", "user": "anna", "resourceAttributes": GET_PODS}
    with pytest.raises(StatusError, match="dryRun") as refusal:
        answer(server, plural, spec, "red", query="dryRun=Some")
    assert refusal.value.code == 422


def test_a_review_is_about_a_user_with_groups_and_extras() -> None:
    spec = {"user": "anna", "groups": ["team"], "uid": "u1", "extra": {"scope": ["a", "b"]}}
    assert access_review.subject(spec) == User("anna", ("team",), "u1", (("scope", ("a", "b")),))
    assert access_review.subject({}) == User("")


async def test_what_may_i(server: LocalServer) -> None:
    answer = reviewed(server, "selfsubjectrulesreviews", {"namespace": "red"})
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    assert answer["status"] == {
        "resourceRules": [rule],
        "nonResourceRules": [],
        "incomplete": False,
    }


PATH = {"path": "/x", "verb": "get"}
SELECTOR = "spec.resourceAttributes.fieldSelector"
EXISTS = {"key": "a", "operator": "Exists"}


def selecting(selector: dict[str, Any]) -> dict[str, Any]:
    """A review about objects that a selector chooses."""
    return {"user": "anna", "resourceAttributes": GET_PODS | {"fieldSelector": selector}}


@pytest.mark.parametrize(
    "requirement",
    [
        EXISTS,
        {"key": "a", "operator": "In", "values": ["b"]},
        {"key": "a", "operator": "NotIn", "values": ["b"]},
    ],
)
async def test_a_question_about_a_selection_is_answered(
    server: LocalServer, requirement: dict[str, Any]
) -> None:
    spec = selecting({"requirements": [requirement]})
    assert reviewed(server, "subjectaccessreviews", spec)["status"]["allowed"] is True


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
        (
            "subjectaccessreviews",
            selecting({"rawSelector": "a=b", "requirements": [EXISTS]}),
            f'{SELECTOR}.rawSelector: Invalid value: "a=b": may not specified at the same time as '
            "requirements",
        ),
        (
            "subjectaccessreviews",
            selecting({"requirements": [EXISTS, {"operator": "Exists"}]}),
            f"{SELECTOR}.requirements[1].key: Required value: must be specified",
        ),
        *(
            (
                "subjectaccessreviews",
                selecting({"requirements": [{"key": "a", "operator": operator}]}),
                f"{SELECTOR}.requirements[0].values: Required value: must be specified when "
                "`operator` is 'In' or 'NotIn'",
            )
            for operator in ("In", "NotIn")
        ),
        *(
            (
                "subjectaccessreviews",
                selecting({"requirements": [{"key": "a", "operator": operator, "values": ["b"]}]}),
                f"{SELECTOR}.requirements[0].values: Forbidden: may not be specified when "
                "`operator` is 'Exists' or 'DoesNotExist'",
            )
            for operator in ("Exists", "DoesNotExist")
        ),
        (
            "localsubjectaccessreviews",
            {"user": "anna", "resourceAttributes": {"verb": "get", "resource": "pods"}},
            'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace',
        ),
        (
            "localsubjectaccessreviews",
            {"user": "anna", "nonResourceAttributes": {}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":""}: disallowed on this '
            "kind of request",
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
