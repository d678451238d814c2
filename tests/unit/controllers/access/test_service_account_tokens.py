"""Secrets that hold a token, kept by a controller that sees the cluster only through its API."""

import base64
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

import msgspec
import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.access.service_account_tokens import ServiceAccountTokenController
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
NAME = "kubernetes.io/service-account.name"
UID = "kubernetes.io/service-account.uid"


def client_of(server: LocalServer) -> Client:
    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        return server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )

    return Client(LocalTransport(handle), user_agent="kedge-test")


def pretend_to_sign(claims: Mapping[str, Any]) -> str:
    return f"signed {msgspec.json.encode(claims).decode()}"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        controller = ServiceAccountTokenController(
            client_of(running), pretend_to_sign, b"PEM", running.clock
        )
        running.start(controller.run())
        await running.clock.advance(1)
        yield running


def wanted(name: str = "s", account: str = "bob", **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": {NAME: account, **annotations}}
    return {"metadata": meta, "type": "kubernetes.io/service-account-token"}


def plain(kept: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in kept["data"].items()}


async def test_a_secret_gets_a_token_of_the_account_it_names(server: LocalServer) -> None:
    account = await server.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    uid = account["metadata"]["uid"]
    await server.post(SECRETS, wanted())
    await server.clock.advance(1)
    kept = await server.get(f"{SECRETS}/s")
    assert kept["metadata"]["annotations"] == {NAME: "bob", UID: uid}
    data = plain(kept)
    claims = msgspec.json.decode(data.pop("token").removeprefix("signed "))
    assert data == {"ca.crt": "PEM", "namespace": "default"}
    assert claims == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:bob",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "bob",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    }


async def test_what_is_lost_is_made_good(server: LocalServer) -> None:
    await server.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    await server.post(SECRETS, wanted())
    await server.clock.advance(1)
    await server.merge(f"{SECRETS}/s", {"data": {"ca.crt": None, "token": None}})
    await server.clock.advance(1)
    assert set(plain(await server.get(f"{SECRETS}/s"))) == {"ca.crt", "namespace", "token"}


@pytest.mark.parametrize(
    "secret", [wanted(account="nobody"), wanted(**{UID: "another"})], ids=["no account", "uid"]
)
async def test_a_secret_of_no_account_is_deleted(
    server: LocalServer, secret: dict[str, Any]
) -> None:
    await server.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    await server.post(SECRETS, secret)
    await server.clock.advance(1)
    assert (await server.call("GET", f"{SECRETS}/s")).status == 404


async def test_secrets_go_with_their_account(server: LocalServer) -> None:
    await server.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    await server.post(SECRETS, wanted())
    await server.post(SECRETS, {"metadata": {"name": "other"}})
    await server.clock.advance(1)
    await server.delete(f"{ACCOUNTS}/bob")
    await server.clock.advance(1)
    assert (await server.call("GET", f"{SECRETS}/s")).status == 404
    assert (await server.call("GET", f"{SECRETS}/other")).status == 200
