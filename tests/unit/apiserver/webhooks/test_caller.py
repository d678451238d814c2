"""How webhooks are called: whom they must prove to be, and how connections are kept."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import pki
from kedge.apiserver.webhooks.answer_budget import AnswerBudget
from kedge.apiserver.webhooks.caller import Caller, CallFailed
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.machinery.errors import not_found
from kedge.machinery.turns import next_turn
from kedge.testing.webhook_server import WebhookServer, webhook_server
from kedge.web.message import Response

BODY = msgspec.json.encode(
    {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}}
)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def hook(keys: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(keys) as running:
        yield running


def nowhere(namespace: str, name: str, port: int) -> tuple[str, int]:
    raise not_found("", "service", name)


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    calling = Caller(nowhere)
    yield calling
    await calling.close()


async def failure(caller: Caller, client: WebhookEndpoint) -> str:
    with pytest.raises(CallFailed) as failed:
        await ask(caller, client)
    return str(failed.value)


async def ask(caller: Caller, client: WebhookEndpoint) -> None:
    async with caller.answered(client, BODY, 5):
        pass


async def test_connection_is_used_again(hook: WebhookServer, caller: Caller) -> None:
    client = WebhookEndpoint(url=hook.url, ca_bundle=hook.ca_bundle)
    for _ in range(3):
        await ask(caller, client)
    assert len(hook.asked) == 3
    assert hook.connections == 1


async def test_connection_that_ended_meanwhile_is_replaced(
    hook: WebhookServer, caller: Caller
) -> None:
    client = WebhookEndpoint(url=hook.url, ca_bundle=hook.ca_bundle)
    await ask(caller, client)
    hook.drop_connections()
    await ask(caller, client)
    assert len(hook.asked) == 2


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", "/"),
        ("//hook", "/hook"),
        ("/a/./../b//c/", "/b/c"),
        ("/a%20b(%C3%BC%2F)", "/a%20b%28%C3%BC/%29"),
    ],
)
async def test_path_is_cleaned(hook: WebhookServer, caller: Caller, given: str, sent: str) -> None:
    await ask(caller, WebhookEndpoint(url=hook.url + given, ca_bundle=hook.ca_bundle))
    assert [path for path, _ in hook.asked] == [sent]


async def test_path_at_a_service_is_not_decoded(hook: WebhookServer) -> None:
    caller = Caller(lambda namespace, name, port: ("127.0.0.1", hook.port))
    client = WebhookEndpoint(
        namespace="default", service="hook", path="x%20y/", ca_bundle=hook.ca_bundle
    )
    await ask(caller, client)
    await caller.close()
    assert [path for path, _ in hook.asked] == ["/x%2520y"]


def moved(status: int, location: str) -> Response:
    return Response(status, b"", headers=[("Location", location)])


@pytest.mark.parametrize("status", [307, 308])
async def test_server_may_name_another_path(
    hook: WebhookServer, caller: Caller, status: int
) -> None:
    hook.decisions["/here"] = lambda _: moved(status, "/there/?x=a b")
    await ask(caller, WebhookEndpoint(url=f"{hook.url}/here", ca_bundle=hook.ca_bundle))
    assert hook.asked == [("/here", {"uid": "u"}), ("/there/", {"uid": "u"})]
    assert hook.queries == ["timeout=5s", "x=a%20b"]
    assert hook.connections == 1
    assert caller.budget.size == 0


async def test_redirects_end(hook: WebhookServer, caller: Caller) -> None:
    client = WebhookEndpoint(url=f"{hook.url}/here", ca_bundle=hook.ca_bundle)
    hook.decisions["/here"] = lambda _: moved(307, "here")
    told = await failure(caller, client)
    assert told == "failed to call webhook: stopped after 10 redirects"
    assert len(hook.asked) == 10


@pytest.mark.parametrize(
    ("status", "location"),
    [(307, "https://127.0.0.1:1/"), (307, "http:/x"), (307, "//["), (307, ""), (302, "/there")],
)
async def test_redirects_to_others_are_not_followed(
    hook: WebhookServer, caller: Caller, status: int, location: str
) -> None:
    client = WebhookEndpoint(url=f"{hook.url}/here", ca_bundle=hook.ca_bundle)
    hook.decisions["/here"] = lambda _: moved(status, location)
    told = await failure(caller, client)
    why = f"the server responded with the status code {status} but did not return more information"
    assert told == f"failed to call webhook: {why}"
    assert len(hook.asked) == 1


async def test_server_s_own_certificate_can_be_the_bundle(
    hook: WebhookServer, caller: Caller, keys: Path
) -> None:
    own = base64.b64encode((keys / "server.crt").read_bytes()).decode()
    await ask(caller, WebhookEndpoint(url=hook.url, ca_bundle=own))
    assert len(hook.asked) == 1


async def test_server_of_another_authority_is_not_trusted(
    hook: WebhookServer, caller: Caller, tmp_path: Path
) -> None:
    stranger = base64.b64encode(pki.ensure(tmp_path / "other", ()).ca_pem).decode()
    told = await failure(caller, WebhookEndpoint(url=hook.url, ca_bundle=stranger))
    assert told.endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )
    assert hook.asked == []


async def test_machines_own_authorities_do_not_vouch_for_it(
    hook: WebhookServer, caller: Caller
) -> None:
    told = await failure(caller, WebhookEndpoint(url=hook.url))
    assert "x509: certificate signed by unknown authority" in told


async def test_certificate_must_be_for_the_name_that_is_called(
    hook: WebhookServer, keys: Path
) -> None:
    caller = Caller(lambda namespace, name, port: ("127.0.0.1", hook.port))
    client = WebhookEndpoint(namespace="default", service="impostor", ca_bundle=hook.ca_bundle)
    try:
        told = await failure(caller, client)
    finally:
        await caller.close()
    assert "tls: failed to verify certificate: x509: Hostname mismatch" in told


async def test_nobody_listening_is_said_plainly(caller: Caller) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        told = await failure(caller, WebhookEndpoint(url=f"https://127.0.0.1:{port}/p"))
    assert told == (
        f'failed to call webhook: Post "https://127.0.0.1:{port}/p?timeout=5s": '
        f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    )


async def test_bundle_that_is_no_certificate_is_named_as_the_fault(caller: Caller) -> None:
    bundle = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n?\n").decode()
    told = await failure(caller, WebhookEndpoint(url="https://127.0.0.1:1", ca_bundle=bundle))
    assert told.startswith("could not get REST client: unable to load root certificates")


async def test_unknown_service_is_named(caller: Caller) -> None:
    told = await failure(caller, WebhookEndpoint(namespace="ns", service="s", path="p"))
    assert told == (
        'failed to call webhook: Post "https://s.ns.svc:443/p?timeout=5s": service "s" not found'
    )


async def test_answers_of_many_webhooks_share_their_memory(hook: WebhookServer) -> None:
    """Each answer may have 6 MiB, and there may be one per request."""
    budget = AnswerBudget(10 << 20)
    caller = Caller(nowhere, budget=budget)
    client = WebhookEndpoint(url=hook.url, ca_bundle=hook.ca_bundle)
    hook.decisions["/"] = lambda review: Response(200, b"x" * (4 << 20))
    failures: list[str] = []

    async def hold(until: asyncio.Event) -> None:
        try:
            async with caller.answered(client, BODY, 30):
                await until.wait()
        except CallFailed as error:
            failures.append(str(error))

    is_over = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(hold(is_over))
        while len(failures) < 6:
            assert budget.size <= 10 << 20
            await next_turn()
        is_over.set()
    why = "the server has no memory left for the answers of webhooks"
    assert failures == [f"failed to call webhook: {why}"] * 6
    assert budget.size == 0
    await caller.close()
