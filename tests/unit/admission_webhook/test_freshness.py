"""What the webhook does once it cannot follow the LimitRanges any more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
import pytest
from tests.unit.admission_webhook.test_app import GREEDY, review

from kedge.admission_webhook.app import AdmissionWebhookApp
from kedge.admission_webhook.freshness import STALE_SECONDS, LimitRangeFreshness
from kedge.admission_webhook.limit_ranges import RESOURCE, LimitRangesByNamespace
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.transport import Body, Call, LocalSink, LocalTransport
from kedge.client.view import objects
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest

LIMIT = {
    "apiVersion": "kedge.dev/v1",
    "kind": "LimitRange",
    "metadata": {"name": "max", "namespace": "shop", "resourceVersion": "5"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
}
HEAD = {"content-type": "application/json"}


@dataclass
class Answer:
    body: Body
    status: int = 200
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


class Cluster:
    """An API server that refuses everything once the token has expired."""

    def __init__(self) -> None:
        self.has_expired = False
        self.ended = asyncio.Event()

    def __call__(self, call: Call) -> Answer:
        if self.has_expired:
            error = StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
            return Answer(msgspec.json.encode(error.status()), 401)
        if "watch=true" not in call.query:
            meta = {"resourceVersion": "5"}
            return Answer(msgspec.json.encode({"metadata": meta, "items": [LIMIT]}))

        async def pour(sink: LocalSink) -> None:
            await self.ended.wait()

        return Answer(pour)


class Webhook:
    """The webhook without its listener."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.cluster = Cluster()
        ranges = LimitRangesByNamespace()
        client = Client(LocalTransport(self.cluster))
        self.informer = Informer(client, objects(RESOURCE), ranges, clock, silence=1000)
        self._app = AdmissionWebhookApp(ranges, LimitRangeFreshness(self.informer, clock).problem)

    async def ask(self, path: str) -> tuple[int, str]:
        method = "GET" if path == "/readyz" else "POST"
        answer = await self._app.handle(HttpRequest(method, path, "", HEAD, review(GREEDY)))
        assert isinstance(answer.body, bytes)
        return answer.status, answer.body.decode()

    async def expire(self) -> None:
        """Let the token expire, and the watch end."""
        self.cluster.has_expired = True
        self.cluster.ended.set()
        await self.clock.advance(0)


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    made = Webhook(FakeClock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.informer.run())
        await made.clock.advance(0)
        yield made
        running.cancel()


async def test_a_view_that_is_old_for_long_decides_nothing(webhook: Webhook) -> None:
    status, body = await webhook.ask("/validate")
    assert status == 200
    assert "maximum cpu" in body
    await webhook.expire()
    await webhook.clock.advance(STALE_SECONDS - 1)
    assert (await webhook.ask("/validate"))[0] == 200
    assert (await webhook.ask("/readyz"))[0] == 200
    await webhook.clock.advance(2)
    status, body = await webhook.ask("/validate")
    assert status == 503
    assert "token" in body
    status, body = await webhook.ask("/readyz")
    assert status == 500
    assert "not been heard of for 301 s" in body


async def test_a_view_that_is_followed_again_decides_again(webhook: Webhook) -> None:
    await webhook.expire()
    await webhook.clock.advance(STALE_SECONDS + 1)
    webhook.cluster.has_expired = False
    webhook.cluster.ended.clear()
    await webhook.clock.advance(31)
    assert (await webhook.ask("/readyz"))[0] == 200
    assert (await webhook.ask("/validate"))[0] == 200
