"""Accounts and tokens for a test: a LocalServer's cluster with an Authenticator of its own."""

from typing import Any

import msgspec

from kedge.api.core_v1 import service_account
from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.authenticator import ADMIN, Authenticator
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.request import Request, User
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
STATIC = {"admin-token": ADMIN, "jane-token": User("jane", ("devs",), "7")}


class ClusterIdentities:
    """The users and service accounts of a test cluster, with their credentials."""

    def __init__(self, server: LocalServer, key: SigningKey) -> None:
        self.server = server
        self.api = server.app.api
        self.clock = server.clock
        self.key = key
        self.authenticator = Authenticator(STATIC, self.api.cache, key, server.clock)
        self.requests = TokenRequests(key)

    async def account(self, name: str) -> str:
        """Make a service account in the namespace default; returns its uid."""
        made = await self.server.post(ACCOUNTS, {"metadata": {"name": name}})
        return str(made["metadata"]["uid"])

    async def ask(self, account: str, body: object = None, **headers: str) -> Response:
        """POST to an account's token."""
        data = msgspec.json.encode({} if body is None else body)
        http = HttpRequest("POST", f"{ACCOUNTS}/{account}/token", headers=headers, body=data)
        resource = service_account.RESOURCE
        request = Request(http, ADMIN, resource, "create", "default", account, "token")
        return await self.requests.serve(self.api, request)

    async def token(self, account: str, **spec: Any) -> str:
        """A token of the account."""
        response = await self.ask(account, {"spec": spec})
        assert isinstance(response.body, bytes)
        token: str = msgspec.json.decode(response.body)["status"]["token"]
        return token

    def user(self, token: str, **headers: str) -> User:
        """Return the user of a request with this token."""
        sent = {"authorization": f"Bearer {token}", **headers}
        return self.authenticator.user(HttpRequest("GET", "/api/v1/pods", headers=sent))

    def forged(self, token: str, **changes: Any) -> str:
        """The token with other claims, signed with the cluster's key; None takes a claim out."""
        claims = claims_of(token) | changes
        return jwt.sign(self.key, {k: v for k, v in claims.items() if v is not None})


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token."""
    claims: dict[str, Any] = msgspec.json.decode(jwt.from_base64(token.split(".")[1].encode()))
    return claims
