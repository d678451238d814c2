"""A webhook for tests: a real HTTPS server with scripted responses to AdmissionReviews."""

import base64
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from kedge.apiserver import pki
from kedge.apiserver.admission.chain import Chain
from kedge.apiserver.admission.mutating_webhook import MutatingAdmissionWebhook
from kedge.apiserver.admission.validating_webhook import ValidatingAdmissionWebhook
from kedge.apiserver.request import Request
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.webhooks.configuration import GROUP
from kedge.apiserver.webhooks.dispatch import Webhooks, webhooks_of
from kedge.apiserver.webhooks.services import Resolve, Resolver
from kedge.machinery.clock import SystemClock
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response, json_response
from kedge.web.server import HttpServer

Asked = dict[str, Any]
"""The `request` of an AdmissionReview."""
Decide = Callable[[Asked], "Asked | Response | Awaitable[Asked | Response]"]
"""Gives the `response`, to which the uid is added; or a whole HTTP response to send instead."""

SERVICE_NAME = "hook.default.svc"


def allow(request: Asked) -> Asked:
    return {"allowed": True}


def patching(*operations: Any) -> Asked:
    """The response that allows and asks for a JSON patch."""
    patch = base64.b64encode(msgspec.json.encode(operations)).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch"}


class WebhookServer:
    """Listens on loopback, by path; remembers what it was asked."""

    def __init__(self, url: str, port: int, ca_bundle: str, server: HttpServer) -> None:
        self.url = url
        self.port = port
        self.ca_bundle = ca_bundle
        self.decisions: dict[str, Decide] = {}
        self.asked: list[tuple[str, Asked]] = []
        """Path and request of every review, in the order of arrival."""
        self.queries: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._server = server

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def drop_connections(self) -> None:
        for connection in list(self._server.connections):
            connection.abort()

    def requests(self, path: str) -> list[Asked]:
        return [request for asked, request in self.asked if asked == path]

    def handle(self, http: HttpRequest) -> Response | Awaitable[Response]:
        review = msgspec.json.decode(http.body)
        self.asked.append((http.path, review["request"]))
        self.queries.append(http.query_string)
        self.headers.append(dict(http.headers))
        decided = self.decisions.get(http.path, allow)(review["request"])
        if inspect.isawaitable(decided):
            return _later(review, decided)
        return _response(review, decided)


async def _later(review: Any, decided: Awaitable[Asked | Response]) -> Response:
    return _response(review, await decided)


def _response(review: Any, decided: Any) -> Response:
    if isinstance(decided, Response):
        return decided
    response = {"uid": review["request"]["uid"], **decided}
    head = {"kind": review["kind"], "apiVersion": review["apiVersion"]}
    return json_response(head | {"response": response})


@asynccontextmanager
async def webhook_server(keys: Path) -> AsyncIterator[WebhookServer]:
    """A webhook with a certificate of its own authority, kept in the directory."""
    identity = pki.ensure(keys, (SERVICE_NAME,))
    clock = SystemClock()
    server = HttpServer(lambda http: running.handle(http), clock)
    port = await server.listen("127.0.0.1", 0, identity.context)
    ca_bundle = base64.b64encode(identity.ca_pem).decode()
    running = WebhookServer(f"https://127.0.0.1:{port}", port, ca_bundle, server)
    try:
        yield running
    finally:
        await server.close(grace=0.1)


@asynccontextmanager
async def webhooks_on(
    server: LocalServer, resolve: Resolve | None = None
) -> AsyncIterator[dict[str, str]]:
    """Let a server ask webhooks through this resolver; gives what was noted for the audit log."""
    api = server.app.api
    notes: dict[str, str] = {}
    caller = Caller(resolve or Resolver(api.cache))

    def annotate(request: Request, key: str, value: str) -> None:
        notes[key] = value

    def webhooks(plural: str) -> Webhooks:
        return webhooks_of(plural, api.catalog, api.cache, caller, annotate)

    others = [plugin for plugin in api.admission.plugins if "Webhook" not in plugin.name]
    mutating = MutatingAdmissionWebhook(webhooks("mutatingwebhookconfigurations"), others)
    validating = ValidatingAdmissionWebhook(webhooks("validatingwebhookconfigurations"))
    api.admission = Chain([*others, mutating, validating])
    try:
        yield notes
    finally:
        await caller.close()


def configured(name: str, *webhooks: Asked, sort: str = "Mutating") -> Asked:
    """A configuration of that sort."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": f"{sort}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(webhooks),
    }


def webhook(server: WebhookServer, path: str = "/", **fields: Any) -> Asked:
    """One webhook for config maps, unless the fields say otherwise."""
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "name": "hook.kedge.test",
        "clientConfig": {"url": server.url + path, "caBundle": server.ca_bundle},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    } | fields
