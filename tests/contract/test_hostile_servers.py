"""Whatever the server asks must not be able to fill its memory or keep it waiting: webhooks,
extension servers and identity providers run code of others."""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.apiserver.aggregation.test_availability import REMOTE
from tests.unit.apiserver.test_review_webhook import KUBECONFIG

from kedge.apiserver.aggregation import probe, resource_list
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.probe import ApiServiceProbe, CheckFailed
from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.apiserver.authentication.openid_connect import issuer_keys, json_web_keys
from kedge.apiserver.authentication.openid_connect.issuer_keys import HttpsFetch, IssuerUnavailable
from kedge.apiserver.crd import conversion_review
from kedge.apiserver.crd.conversion_review import RejectedConversion
from kedge.apiserver.review_webhook import ReviewFailed, ReviewWebhook
from kedge.apiserver.webhooks import caller as webhook_caller
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.answer_budget import AnswerBudget
from kedge.apiserver.webhooks.caller import Caller, CallFailed
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.machinery.turns import next_turn
from kedge.testing.clock import FakeClock
from kedge.testing.hostile_server import (
    FLOODS,
    STALLS,
    Attack,
    HostileServer,
    endless_body,
    hostile_server,
)
from kedge.web.exchange import ServerAddress

PATIENCE = 60
LONG = 40
"""Seconds in which a flood must have been cut off long ago."""
MOST_SENT = 32 << 20
"""Bytes that are taken at most: six for each of a body of 1 MiB, and what the kernel buffers."""


class Refused(Exception):
    """The answer was not taken; the text says why."""


Asking = Callable[[HostileServer, Path, int], Awaitable[object]]
"""Asks the server, for so many seconds; raises Refused."""


class InstantClock(FakeClock):
    """A clock whose sleeps take no time."""

    async def sleep(self, seconds: float) -> None:
        await next_turn()


async def admission(server: HostileServer, directory: Path, seconds: int) -> object:
    caller = Caller(lambda *_: ("127.0.0.1", server.port))
    bundle = base64.b64encode(server.ca_pem).decode()
    endpoint = WebhookEndpoint(url=server.url, ca_bundle=bundle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhook_caller, "ANSWER_BYTES", 1 << 20)
        try:
            async with caller.answered(endpoint, b"{}", seconds) as answer:
                with pytest.raises(RejectedConversion):
                    conversion_review.read(answer, "v1", "uid")
                return review.read(answer, "v1", "uid", mutating=True)
        except (CallFailed, review.Unreadable, review.Invalid) as error:
            raise Refused(str(error)) from None
        finally:
            await caller.close()


async def token_review(server: HostileServer, directory: Path, seconds: int) -> object:
    path = directory / "config"
    ca = base64.b64encode(server.ca_pem).decode()
    path.write_text(KUBECONFIG.format(url=server.url, ca=ca))
    webhook = ReviewWebhook(path, InstantClock(), seconds)
    try:
        return await webhook.status({"spec": {}})
    except ReviewFailed as error:
        raise Refused(str(error)) from None
    finally:
        await webhook.close()


async def issuer(server: HostileServer, directory: Path, seconds: int) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(issuer_keys, "ANSWER_SECONDS", seconds)
        try:
            found = await HttpsFetch(server.ca_pem.decode())(f"{server.url}/keys")
            return json_web_keys.parse(found.body)
        except (IssuerUnavailable, ValueError) as error:
            raise Refused(str(error)) from None


class OneServer(ExtensionServers):
    """Leads every version to one server."""

    def __init__(self, server: HostileServer) -> None:
        super().__init__(lambda *_: ("127.0.0.1", server.port), Path("/nonexistent"))
        self._tls = ssl.create_default_context(cadata=server.ca_pem.decode())
        self._port = server.port

    def address(self, remote: RemoteVersion) -> ServerAddress:
        return ServerAddress("127.0.0.1", self._port, self._tls, "127.0.0.1")


async def extension(server: HostileServer, directory: Path, seconds: int) -> object:
    servers = OneServer(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "ATTEMPT_SECONDS", seconds)
        try:
            answer = await ApiServiceProbe(servers).check(REMOTE)
        except CheckFailed as error:
            raise Refused(str(error)) from None
        finally:
            servers.close()
    assert len(answer.body) <= probe.BODY_BYTES
    try:
        return resource_list.parse(answer.body)
    except ValueError as error:
        raise Refused(str(error)) from None


class Client(NamedTuple):
    """A part of the server that asks other servers."""

    name: str
    ask: Asking


CLIENTS = [
    Client("admission and conversion webhooks", admission),
    Client("token and authorization webhooks", token_review),
    Client("identity providers", issuer),
    Client("extension servers", extension),
]


async def refusal(client: Client, attack: Attack, directory: Path, seconds: int) -> tuple[str, int]:
    async with hostile_server(directory / "pki", attack) as server, asyncio.timeout(PATIENCE):
        with pytest.raises(Refused) as refused:
            await client.ask(server, directory, seconds)
        return str(refused.value), server.most_sent


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("attack", FLOODS, ids=lambda attack: attack.__name__)
async def test_a_flood_is_cut_off(client: Client, attack: Attack, tmp_path: Path) -> None:
    why, sent = await refusal(client, attack, tmp_path, LONG)
    assert "deadline" not in why
    assert sent <= MOST_SENT


async def test_answers_of_reviews_and_issuers_share_their_memory(tmp_path: Path) -> None:
    budget = AnswerBudget(100_000)
    async with hostile_server(tmp_path / "pki", endless_body) as server, asyncio.timeout(PATIENCE):
        path, ca = tmp_path / "config", base64.b64encode(server.ca_pem).decode()
        path.write_text(KUBECONFIG.format(url=server.url, ca=ca))
        webhook = ReviewWebhook(path, InstantClock(), LONG, budget)
        with pytest.raises(ReviewFailed, match="no memory left"):
            await webhook.status({"spec": {}})
        await webhook.close()
        with pytest.raises(IssuerUnavailable, match="no memory left"):
            await HttpsFetch(server.ca_pem.decode(), budget)(f"{server.url}/keys")
    assert budget.size == 0


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("attack", STALLS, ids=lambda attack: attack.__name__)
async def test_a_stall_ends_at_the_deadline(client: Client, attack: Attack, tmp_path: Path) -> None:
    why, _ = await refusal(client, attack, tmp_path, 1)
    assert "deadline exceeded" in why
