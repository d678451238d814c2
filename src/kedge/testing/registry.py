"""A registry for tests: the distribution protocol on loopback, with configurable strictness."""

import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import msgspec

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.testing.images import BuiltImage, sha256
from kedge.web.message import HttpRequest, Response, json_response
from kedge.web.server import HttpServer


@dataclass
class FakeRegistry:
    """The images and users of the registry, and the requests that it got."""

    host: str = ""
    """Where it listens: `localhost:PORT`."""
    ca_pem: bytes = b""
    """The authority of its certificate; empty for plain HTTP."""
    account: tuple[str, str] | None = None
    """The users that may pull; None for all."""
    auth: str = "bearer"
    """How they show who they are: bearer or basic."""
    tags: dict[str, bytes] = field(default_factory=dict)
    """Manifests and indexes by `repository:tag`."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Everything by digest."""
    elsewhere: str = ""
    """Where to send those who want a layer; empty to give it to them here."""
    asked: list[str] = field(default_factory=list)
    """Paths in the order of arrival."""
    seen: list[str] = field(default_factory=list)
    """The Authorization headers that came along."""
    _tokens: set[str] = field(default_factory=set)

    def push(self, name: str, image: BuiltImage, index: bytes = b"") -> str:
        """Hold an image, perhaps behind an index; returns the name to pull it by."""
        self.blobs |= image.blobs
        if index:
            self.blobs[sha256(index)] = index
        self.tags[name] = index or image.manifest
        return f"{self.host}/{name}"

    def handle(self, http: HttpRequest) -> Response:
        path = unquote(http.path)
        self.asked.append(path)
        self.seen.append(http.headers.get("authorization", ""))
        if path == "/token":
            return self._grant(http)
        if not self._may(http):
            return self._challenge(path)
        return self._content(path)

    def _content(self, path: str) -> Response:
        if path == "/v2/":
            return json_response({})
        repository, _, reference = path.removeprefix("/v2/").rpartition("/")
        repository, _, kind = repository.rpartition("/")
        if kind == "blobs" and self.elsewhere:
            return Response(307, headers=[("Location", f"{self.elsewhere}{path}")])
        found = self.blobs.get(reference)
        if found is None and kind == "manifests":
            found = self.tags.get(f"{repository}:{reference}")
        if found is None:
            error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
            return json_response({"errors": [error]}, 404)
        if kind == "blobs":
            return Response(body=found, content_type="application/octet-stream")
        return Response(body=found, content_type=msgspec.json.decode(found)["mediaType"])

    def _may(self, http: HttpRequest) -> bool:
        if self.account is None:
            return True
        scheme, _, value = http.headers.get("authorization", "").partition(" ")
        if self.auth == "basic":
            return scheme == "Basic" and self._is_account(value)
        return scheme == "Bearer" and value in self._tokens

    def _is_account(self, value: str) -> bool:
        return base64.b64decode(value).decode() == ":".join(self.account or ())

    def _challenge(self, path: str) -> Response:
        scheme = "https" if self.ca_pem else "http"
        bearer = f'Bearer realm="{scheme}://{self.host}/token",service="tests",scope="repo:pull"'
        asked = bearer if self.auth == "bearer" else 'Basic realm="tests"'
        error = {"code": "UNAUTHORIZED", "message": "authentication required"}
        answer = json_response({"errors": [error]}, 401)
        answer.headers.append(("WWW-Authenticate", asked))
        return answer

    def _grant(self, http: HttpRequest) -> Response:
        scheme, _, value = http.headers.get("authorization", "").partition(" ")
        if scheme != "Basic" or not self._is_account(value):
            return json_response({"errors": [{"code": "DENIED", "message": "who are you"}]}, 401)
        token = secrets.token_hex(8)
        self._tokens.add(token)
        return json_response({"token": token})


@asynccontextmanager
async def registry(
    keys: Path | None = None, hosts: tuple[str, ...] = ()
) -> AsyncIterator[FakeRegistry]:
    """A registry on a free port: over HTTPS if there is a directory for keys, else in the clear.
    `hosts` are further names in its certificate."""
    running = FakeRegistry()
    identity = pki.ensure(keys, hosts) if keys else None
    server = HttpServer(running.handle, SystemClock())
    port = await server.listen("127.0.0.1", 0, identity.context if identity else None)
    running.host = f"localhost:{port}"
    running.ca_pem = identity.ca_pem if identity else b""
    try:
        yield running
    finally:
        await server.close(grace=0.1)
