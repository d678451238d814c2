"""Tokens that a webhook knows, on a whole server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kedge.apiserver.authentication.token_webhook import TokenWebhook
from kedge.apiserver.identities import OutsideIdentities
from kedge.apiserver.review_webhook import ReviewFailed
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
JANE = {"username": "jane", "uid": "7", "groups": ["devs"], "extra": {"x.org/a": ["b"]}}


class ScriptedWebhook:
    """Answers as a test says, and remembers the reviews."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.failure = ""

    async def status(self, review: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(review)
        if self.failure:
            raise ReviewFailed(self.failure)
        known = review["spec"]["token"] == "good"
        return {"authenticated": True, "user": JANE} if known else {"error": "who is that"}


@asynccontextmanager
async def cluster(seconds: float = 120) -> AsyncIterator[tuple[LocalServer, ScriptedWebhook]]:
    webhook, clock = ScriptedWebhook(), FakeClock()
    known = TokenWebhook(webhook, "v1", seconds, clock)
    outside = OutsideIdentities(authenticators=[known])
    async with LocalServer.running(clock=clock, outside=outside) as server:
        yield server, webhook


async def test_a_webhook_tells_the_user_of_a_token() -> None:
    async with cluster() as (server, webhook):
        answer = await server.call("POST", SELF, {}, token="good")
        assert answer.document["status"]["userInfo"] == {
            **JANE,
            "groups": ["devs", "system:authenticated"],
        }
        assert webhook.asked[0]["apiVersion"] == "authentication.k8s.io/v1"
        assert webhook.asked[0]["spec"]["token"] == "good"
        await server.call("POST", SELF, {}, token="good")
        assert len(webhook.asked) == 1
        await server.clock.advance(121)
        assert (await server.call("POST", SELF, {}, token="good")).status == 201
        assert len(webhook.asked) == 2


async def test_a_refusal_is_remembered_and_told_in_reviews() -> None:
    async with cluster() as (server, webhook):
        assert (await server.call("POST", SELF, {}, token="bad")).status == 401
        assert (await server.call("POST", SELF, {}, token="bad")).status == 401
        assert len(webhook.asked) == 1
        review = await server.post(REVIEWS, {"spec": {"token": "bad"}})
        assert review["status"]["error"] == "[invalid bearer token, who is that]"


async def test_a_webhook_that_fails_is_asked_again() -> None:
    async with cluster() as (server, webhook):
        webhook.failure = "down"
        assert (await server.call("POST", SELF, {}, token="good")).status == 401
        webhook.failure = ""
        assert (await server.call("POST", SELF, {}, token="good")).status == 201


async def test_without_a_cache_every_request_asks() -> None:
    async with cluster(0) as (server, webhook):
        for _ in range(3):
            assert (await server.call("POST", SELF, {}, token="good")).status == 201
        assert len(webhook.asked) == 3


async def test_tokens_of_the_cluster_do_not_reach_the_webhook() -> None:
    async with cluster() as (server, webhook):
        assert (await server.call("POST", SELF, {})).status == 201
        assert webhook.asked == []
