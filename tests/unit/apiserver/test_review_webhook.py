"""Reviews over HTTPS, by a kubeconfig."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import pki, review_webhook
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.review_webhook import ReviewFailed, ReviewWebhook
from kedge.machinery.clock import SystemClock
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest, Response, json_response
from kedge.web.server import HttpServer

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: hook, cluster: {{server: "{url}/review", certificate-authority-data: {ca}}}}}]
users: [{{name: me, user: {{token: secret}}}}]
contexts: [{{name: c, context: {{cluster: hook, user: me}}}}]
current-context: c
"""


async def test_a_review_is_posted_and_retried(tmp_path: Path) -> None:
    seen: list[HttpRequest] = []
    answers: list[Callable[[], Response]] = [
        lambda: Response(503),
        lambda: json_response({"status": {"allowed": True}}),
        lambda: Response(403),
        lambda: json_response([]),
        lambda: Response(200, body=b"x" * (review_webhook.ANSWER_BYTES + 1)),
    ]

    def handle(http: HttpRequest) -> Response:
        seen.append(http)
        return answers[len(seen) - 1]()

    identity = pki.ensure(tmp_path / "pki", ("127.0.0.1",))
    server = HttpServer(handle, SystemClock())
    port = await server.listen("127.0.0.1", 0, identity.context)
    path, clock = tmp_path / "config", FakeClock()
    ca = base64.b64encode(identity.ca_pem).decode()
    path.write_text(KUBECONFIG.format(url=f"https://127.0.0.1:{port}", ca=ca))
    webhook = ReviewWebhook(path, clock, 30)
    try:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(webhook.status({"spec": {}}))
            while not first.done():
                await clock.advance(1)
                await asyncio.to_thread(lambda: None)
        assert first.result() == {"allowed": True}
        assert [http.path for http in seen] == ["/review", "/review"]
        assert seen[1].headers["authorization"] == "Bearer secret"
        assert msgspec.json.decode(seen[1].body) == {"spec": {}}
        for why in ("status 403", "not a review", "longer than"):
            with pytest.raises(ReviewFailed, match=why):
                await webhook.status({})
    finally:
        await webhook.close()
        await server.close(grace=0.1)


def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with pytest.raises(ConfigurationFileError, match="there is no kubeconfig"):
        ReviewWebhook(path, FakeClock(), 1)
    path.write_text("current-context: x")
    with pytest.raises(ConfigurationFileError, match='context "x" does not exist'):
        ReviewWebhook(path, FakeClock(), 1)
