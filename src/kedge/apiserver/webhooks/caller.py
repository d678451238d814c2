"""Calls webhooks over HTTPS, on connections that are kept for the next call."""

import asyncio
import base64
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

import msgspec

from kedge.apiserver.webhooks.admission_metrics import AdmissionMetrics
from kedge.apiserver.webhooks.answer_budget import Answer, AnswerBudget, NoMemoryForAnswer
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.apiserver.webhooks.services import Address, Resolve
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable
from kedge.machinery.errors import StatusError
from kedge.web.cluster_network import MACHINE, ClusterNetwork

ANSWER_BYTES = 6 << 20
"""The longest answer that is read: a patch of the largest object fits, in base64."""
TRANSPORTS = 200
"""Servers to which connections are kept."""
REDIRECTS = 10
"""How often one call follows its server to another path."""
_IN_PATHS = "/:@$&+,;=~"
"""Characters that Go's client does not escape."""
_ESCAPED = "/:@$&+,;=~%!'()*?"
_REDIRECTS_WITH_BODY = (307, 308)
_HEADERS = {
    "accept": "application/json, */*",
    "content-type": "application/json",
    "user-agent": "kube-apiserver-admission",
}


class CallFailed(Exception):
    """There is no answer; the text says why in the words that Kubernetes has for it."""


class _Place(NamedTuple):
    """A server, and how to tell that it is the right one."""

    url: str
    """Without the path."""
    address: Address | None
    """Where to dial if that is not what the URL says."""
    ca_bundle: str


class Caller:
    """Everything that the server says to webhooks passes here."""

    def __init__(
        self,
        resolve: Resolve,
        network: ClusterNetwork = MACHINE,
        budget: AnswerBudget | None = None,
    ) -> None:
        self._resolve = resolve
        self._network = network
        self.budget = budget or AnswerBudget()
        """Memory for all answers that the server reads."""
        self.metrics = AdmissionMetrics()
        self._transports: OrderedDict[_Place, HttpTransport] = OrderedDict()

    @asynccontextmanager
    async def answered(
        self, client: WebhookEndpoint, body: bytes, seconds: int
    ) -> AsyncIterator[bytes]:
        """Post a body and give the answer's, which counts as memory while the context is open;
        raises CallFailed."""
        with self.budget.answer() as answer:
            yield await self._call(client, body, seconds, answer)

    async def _call(
        self, client: WebhookEndpoint, body: bytes, seconds: int, answer: Answer
    ) -> bytes:
        base, path = _target(client)
        query = f"timeout={seconds}s"
        call = Call("POST", path, query, _HEADERS, body)
        try:
            async with asyncio.timeout(seconds):
                status, content = await self._exchange(client, base, call, answer)
        except TimeoutError:
            why = "context deadline exceeded"
        except StatusError as error:
            why = error.message
        except Unreachable as error:
            why = _network_failure(error, base)
        else:
            if 200 <= status <= 299:
                if not content:
                    told = f"0-length response with status code: {status}"
                    raise CallFailed(f"failed to call webhook: {told}")
                return content
            raise CallFailed(f"failed to call webhook: {_refusal(status, content)}")
        raise CallFailed(f'failed to call webhook: Post "{base}{path}?{query}": {why}')

    async def close(self) -> None:
        """Let go of every connection."""
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.close()

    async def _exchange(
        self, client: WebhookEndpoint, base: str, call: Call, answer: Answer
    ) -> tuple[int, bytes]:
        address = None
        if not client.url:
            address = self._resolve(client.namespace, client.service, client.port)
        transport = await self._transport(_Place(base, address, client.ca_bundle))
        for _ in range(REDIRECTS):
            status, content, location = await _posted(transport, call, answer)
            elsewhere = _redirected(call, status, f"{base}{call.path}", location)
            if elsewhere is None:
                return status, content
            answer.free()
            call = elsewhere
        raise CallFailed(f"failed to call webhook: stopped after {REDIRECTS} redirects")

    async def _transport(self, place: _Place) -> HttpTransport:
        transport = self._transports.get(place)
        if transport is None:
            transport = self._transports[place] = _made(place, self._network)
            if len(self._transports) > TRANSPORTS:
                _, oldest = self._transports.popitem(last=False)
                await oldest.close()
        self._transports.move_to_end(place)
        return transport


def _made(place: _Place, network: ClusterNetwork) -> HttpTransport:
    try:
        ca_pem = base64.b64decode(place.ca_bundle)
        make = network.maker(place.address[0]) if place.address else None
        return HttpTransport(place.url, ca_pem=ca_pem, dial=place.address, make=make)
    except (ssl.SSLError, ValueError):
        why = "unable to load root certificates: unable to parse bytes as PEM block"
        raise CallFailed(f"could not get REST client: {why}") from None


def _target(client: WebhookEndpoint) -> tuple[str, str]:
    """The server of a webhook, and the path on it."""
    if not client.url:
        host = f"{client.service}.{client.namespace}.svc"
        return f"https://{host}:{client.port}", _cleaned(client.path.encode())
    parts = urlsplit(client.url)
    return f"https://{parts.netloc}", _cleaned(unquote_to_bytes(parts.path))


def _cleaned(path: bytes) -> str:
    """Return a path as Go's client sends it: without empty and relative parts, and without a slash
    at its end. envtest writes URLs with two slashes, which servers answer with a redirect."""
    return quote(b"/" + normpath(b"/" + path).lstrip(b"/"), _IN_PATHS)


def _redirected(call: Call, status: int, url: str, location: str) -> Call | None:
    """Return the call that a server wants instead, with the same body; None if it wants none, or
    one to another server, which is not followed."""
    if status not in _REDIRECTS_WITH_BODY or not location:
        return None
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location))
    except ValueError:
        return None
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return None
    # A character that the server has not escaped must not end the request's first line.
    path = quote(there.path or "/", _ESCAPED)
    return msgspec.structs.replace(call, path=path, query=quote(there.query, _ESCAPED))


async def _posted(transport: HttpTransport, call: Call, answer: Answer) -> tuple[int, bytes, str]:
    try:
        return await _post(transport, call, answer)
    except Unreachable as error:
        # A kept connection may end just as it is used. Webhooks must bear being asked twice.
        if error.__cause__ is not None:
            raise
        return await _post(transport, call, answer)


async def _post(transport: HttpTransport, call: Call, answer: Answer) -> tuple[int, bytes, str]:
    """Return status, body and Location of the answer."""
    async with transport.stream(call) as stream:
        try:
            content = await answer.read(stream.pieces, ANSWER_BYTES)
        except NoMemoryForAnswer as error:
            raise CallFailed(f"failed to call webhook: {error}") from None
        if content is None:
            why = f"the answer is longer than {ANSWER_BYTES} bytes"
            raise CallFailed(f"failed to call webhook: {why}")
        return stream.status, content, stream.headers.get("location", "")


_UNTRUSTED = (18, 19, 20, 21)
"""OpenSSL's verification errors for chains that end in an unknown authority."""


def _network_failure(error: Unreachable, base: str) -> str:
    match error.__cause__:
        case ssl.SSLCertVerificationError() as cause if cause.verify_code in _UNTRUSTED:
            why = "x509: certificate signed by unknown authority"
            return f"tls: failed to verify certificate: {why}"
        case ssl.SSLCertVerificationError() as cause:
            return f"tls: failed to verify certificate: x509: {cause.verify_message}"
        case ConnectionRefusedError():
            return f"dial tcp {urlsplit(base).netloc}: connect: connection refused"
        case _:
            return str(error)


_GENERIC: Mapping[int, str] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, "
        "but may still be processing the request"
    ),
}


class _Said(msgspec.Struct):
    kind: str = ""
    message: str = ""


def _refusal(status: int, answer: bytes) -> str:
    """Why an HTTP server did not do as asked: its own Status, or what the code stands for."""
    try:
        said = msgspec.json.decode(answer, type=_Said)
        if said.kind == "Status" and said.message:
            return said.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = answer[:2048].decode("utf-8", "replace").strip() or "unknown"
    if status in (403, 406, 415):
        return text
    if status not in _GENERIC and status >= 500:
        quoted = msgspec.json.encode(text).decode()
        return f"an error on the server ({quoted}) has prevented the request from succeeding"
    told = f"the server responded with the status code {status}"
    return _GENERIC.get(status, f"{told} but did not return more information")
