"""Decisions of a webhook, on a whole server: in order, remembered, and when it fails."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.authorizer import Decide
from kedge.apiserver.authorization.configuration import (
    MatchCondition,
    WebhookAuthorizerConfiguration,
)
from kedge.apiserver.authorization.webhook import WebhookAuthorizer, review_spec
from kedge.apiserver.request import User
from kedge.apiserver.review_webhook import ReviewFailed
from kedge.machinery.cel import CelCondition
from kedge.machinery.selectors import parse_fields
from kedge.machinery.tenant import current_tenant
from kedge.testing.local_server import LocalServer

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published_authorizers.yaml").read_text())
JANE = {"impersonate-user": "jane", "impersonate-group": "devs"}
PODS = "/api/v1/namespaces/default/pods"


class ScriptedAuthorizer:
    """Answers as a test says, and remembers the specs."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: dict[str, Any] | str = {"allowed": True, "reason": "friend"}

    async def status(self, review: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(review["spec"])
        if isinstance(self.answer, str):
            raise ReviewFailed(self.answer)
        return self.answer


def configured(server: LocalServer, *conditions: str, **fields: Any) -> ScriptedAuthorizer:
    """Ask a webhook before RBAC."""
    webhook = ScriptedAuthorizer()
    hook = WebhookAuthorizerConfiguration(
        subject_access_review_version="v1",
        match_conditions=[MatchCondition(expression=each) for each in conditions],
        **{"failure_policy": "NoOpinion", "timeout": "3s", **fields},
    )
    decide: Decide = WebhookAuthorizer("hook", hook, webhook, server.clock).decide
    server.app.api.authorizer.configure([decide, "Node", "RBAC"])
    return webhook


async def status(server: LocalServer, path: str = PODS) -> int:
    return (await server.call("GET", path, headers=JANE)).status


async def test_a_webhook_allows_and_its_answer_is_remembered(server: LocalServer) -> None:
    assert await status(server) == 403
    webhook = configured(server)
    assert await status(server) == 200
    assert await status(server) == 200
    assert webhook.asked == [
        {
            "resourceAttributes": {
                "namespace": "default",
                "verb": "list",
                "version": "v1",
                "resource": "pods",
            },
            "user": "jane",
            "groups": ["devs", "system:authenticated"],
        }
    ]
    await server.clock.advance(301)
    assert await status(server) == 200
    assert len(webhook.asked) == 2


async def test_a_denial_is_final_and_no_opinion_is_not(server: LocalServer) -> None:
    webhook = configured(server)
    webhook.answer = {"allowed": False, "reason": "no idea"}
    assert await status(server, "/version") == 200  # RBAC allows it
    answer = await server.call("GET", PODS, headers=JANE)
    assert answer.message.endswith('in the namespace "default": no idea')
    webhook.answer = {"denied": True, "reason": "enemy"}
    await server.clock.advance(31)
    answer = await server.call("GET", "/version", headers=JANE)
    assert (answer.status, answer.message) == (
        403,
        'forbidden: User "jane" cannot get path "/version": enemy',
    )
    assert await status(server, "/livez") == 200


@pytest.mark.parametrize(("policy", "code"), [("NoOpinion", 200), ("Deny", 403)])
async def test_a_failure_counts_as_the_policy_says(
    server: LocalServer, policy: str, code: int
) -> None:
    webhook = configured(server, failure_policy=policy)
    webhook.answer = "down"
    assert await status(server, "/version") == code
    webhook.answer = {"allowed": True, "denied": True}
    assert await status(server, "/version") == code


async def test_conditions_decide_whether_the_webhook_is_asked(server: LocalServer) -> None:
    condition = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'a'"
    webhook = configured(server, condition, "request.user != 'root'")
    assert await status(server) == 403
    assert webhook.asked == []
    assert await status(server, "/api/v1/namespaces/a/pods") == 200
    broken = configured(server, "request.extra['x'] == []", failure_policy="Deny")
    assert await status(server, "/version") == 403
    assert broken.asked == []


@pytest.mark.parametrize("case", PUBLISHED["requests"], ids=lambda case: case["case"])
async def test_published_conditions(server: LocalServer, case: dict[str, Any]) -> None:
    hook = PUBLISHED["authorizers"][0]["webhook"]
    conditions = [each["expression"] for each in hook["matchConditions"]]
    webhook = configured(server, *conditions, failure_policy=hook["failurePolicy"])
    headers = JANE | {"impersonate-group": case["group"]}
    answer = await server.call("GET", case["path"], headers=headers)
    assert (len(webhook.asked), answer.status) == (case["asked"], case["code"])


async def test_conditions_take_turns_with_those_of_other_users(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants: list[str] = []
    holds = CelCondition.holds

    def noting(condition: CelCondition, values: dict[str, Any]) -> bool:
        tenants.append(current_tenant())
        return holds(condition, values)

    monkeypatch.setattr(CelCondition, "holds", noting)
    configured(server, "true")
    assert await status(server) == 200
    assert tenants == ["jane"]


async def test_answers_that_are_not_cached_count_for_one_request(server: LocalServer) -> None:
    webhook = configured(server, cache_authorized_requests=False)
    for _ in range(2):
        assert await status(server) == 200
    assert len(webhook.asked) == 2


async def test_a_request_may_impersonate_many_groups(server: LocalServer) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await server.post(accounts, {"metadata": {"name": "agent"}})
    token = (await server.post(f"{accounts}/agent/token", {"spec": {}}))["status"]["token"]
    groups = "\n".join(f"group-{number}" for number in range(300))
    headers = {"impersonate-user": "jane", "impersonate-group": groups}
    webhook = configured(server)
    assert (await server.call("GET", PODS, token=token, headers=headers)).status == 200
    # The permission for each group, for the user and for the request, and the request itself.
    assert len(webhook.asked) == 300 + 3
    await server.clock.advance(301)
    webhook.asked.clear()
    webhook.answer = {"denied": True}
    assert (await server.call("GET", PODS, token=token, headers=headers)).status == 403
    assert len(webhook.asked) == 2  # one for each way to impersonate


async def test_superusers_and_reviews(server: LocalServer) -> None:
    webhook = configured(server)
    assert (await server.call("GET", PODS)).status == 200
    assert webhook.asked == []
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    review = await server.post(path, {"spec": spec})
    assert review["status"] == {"allowed": True, "reason": "friend"}


def test_reviews_have_selectors_and_extra_fields() -> None:
    user = User("jane", extra=(("X.org/a", ("b",)),))
    fields = parse_fields("metadata.name=n,spec.nodeName!=m")
    assert review_spec(Attributes(user, "list", plural="pods", fields=fields)) == {
        "resourceAttributes": {
            "verb": "list",
            "resource": "pods",
            "fieldSelector": {
                "requirements": [
                    {"key": "metadata.name", "operator": "In", "values": ["n"]},
                    {"key": "spec.nodeName", "operator": "NotIn", "values": ["m"]},
                ]
            },
        },
        "user": "jane",
        "extra": {"x.org/a": ["b"]},
    }
    assert review_spec(Attributes(user, "get", path="/x"))["nonResourceAttributes"] == {
        "path": "/x",
        "verb": "get",
    }
