"""HTTP probe: one GET whose response is read up to a limit. Also used for lifecycle hooks.

Neither side is trusted: the pod's author wrote the request, and a program in a container sends the
response. So the request cannot contain a second request, and the response is limited in size and
time.
"""

import asyncio
import re
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import HTTPGetAction
from kedge.machinery import names
from kedge.machinery.clock import Clock
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.pod.timeouts import with_timeout
from kedge.node.probes.connection import connect
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult, address, port_of

MOST: Final = 10 * 1024
"""Bytes of a response's body that are read."""
MOST_HEAD: Final = 64 * 1024
"""Bytes of a response before its body, including interim responses. Common servers and proxies stop
at 8 to 32 KiB; Go's client would read 10 MiB."""
ANSWER_SECONDS: Final = 10.0
"""Seconds from the first line of a response to its last byte. A hook may wait for the first line as
long as its pod permits, because an application may answer only after draining."""
REDIRECTS: Final = 10
VERSION: Final = "1.36"
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"
_SCHEMES: Final = ("http", "https")
_is_host: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?").fullmatch
_is_host_header: Final = re.compile(r"[A-Za-z0-9!$%&'()*+,\-.:;=@\[\]_~]*").fullmatch
"""The characters that Go permits in a Host header: those of RFC 3986 for a host and a port."""


class HttpError(Exception):
    """The request could not be sent, or the response is invalid."""


class ProbeRequest(msgspec.Struct, frozen=True):
    """A GET request."""

    url: str
    headers: Sequence[tuple[str, str]]


class ProbeResponse(msgspec.Struct, frozen=True):
    """The response to a request."""

    status: int
    location: str
    body: bytes


async def probe_http(
    action: HTTPGetAction,
    container: Container,
    ip: str,
    clock: Clock,
    seconds: float,
    network: NetworkPlace = MACHINE,
) -> ProbeOutcome:
    """Run the probe; a status from 200 to 399 is success. Raises ProbeError if there is no
    address."""
    request = request_for(action, container, ip, "probe")
    try:
        answer = await with_timeout(clock, seconds, get(request, clock, network))
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return ProbeOutcome(ProbeResult.FAILURE, f'Get "{request.url}": {late}')
    except (OSError, HttpError) as error:
        return ProbeOutcome(
            ProbeResult.FAILURE, f'Get "{request.url}": {describe(error, request.url)}'
        )
    body = answer.body.decode(errors="replace")
    if 200 <= answer.status < 300:
        return ProbeOutcome(ProbeResult.SUCCESS, body)
    if 300 <= answer.status < 400:
        return ProbeOutcome(
            ProbeResult.WARNING, f"Probe terminated redirects, Response body: {body}"
        )
    return ProbeOutcome(ProbeResult.FAILURE, f"HTTP probe failed with statuscode: {answer.status}")


def request_for(action: HTTPGetAction, container: Container, ip: str, purpose: str) -> ProbeRequest:
    """Return the request of an action. Raises ProbeError."""
    host = action.host or ip
    if not host:
        raise ProbeError("the pod has no address")
    # The API accepts any text, as upstream; a slash or a question mark in the host would change the
    # URL.
    if not _is_host(host):
        raise ProbeError(f"invalid host: {host!r}")
    port = port_of(action.port, container)
    scheme = (action.scheme or "HTTP").lower()
    path = quote(action.path or "/", safe=_SAFE)
    path = path if path.startswith("/") else f"/{path}"
    url = f"{scheme}://{address(host, port)}{path}"
    return ProbeRequest(url, _headers(action, purpose))


def _headers(action: HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    given = [(header.name, header.value) for header in action.httpHeaders]
    known = {name.lower() for name, _ in given}
    if "user-agent" not in known:
        given.append(("User-Agent", f"kube-{purpose}/{VERSION}"))
    if "accept" not in known:
        given.append(("Accept", "*/*"))
    return [(name, value) for name, value in given if name.lower() != "accept" or value]


async def get(
    request: ProbeRequest, clock: Clock, network: NetworkPlace = MACHINE
) -> ProbeResponse:
    """Send the request and follow redirects to the same host, as the kubelet does: a container must
    not redirect the node to another host."""
    url = request.url
    for _ in range(REDIRECTS):
        try:
            answer = await _ask(urlsplit(url), request.headers, clock, network)
            if answer.status not in (301, 302, 303, 307, 308) or not answer.location:
                return answer
            following = urljoin(url, answer.location)
            if urlsplit(following).hostname != urlsplit(request.url).hostname:
                return answer
        except (ValueError, EOFError) as error:
            # Invalid numbers, hosts and ports in a response, and an incomplete response.
            what = "unexpected EOF" if isinstance(error, EOFError) else str(error)
            raise HttpError(what) from error
        url = following
    raise HttpError(f"stopped after {REDIRECTS} redirects")


async def _ask(
    url: SplitResult, headers: Sequence[tuple[str, str]], clock: Clock, network: NetworkPlace
) -> ProbeResponse:
    if url.scheme not in _SCHEMES:
        raise HttpError(f'unsupported protocol scheme "{url.scheme}"')
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    head = _head(url, headers)
    reader, writer = await connect(url.hostname or "", port, _TRUSTING if secure else None, network)
    try:
        writer.write(head)
        await writer.drain()
        lines = _ResponseHead(reader)
        first = await lines.next()
        return await with_timeout(clock, ANSWER_SECONDS, _read(lines, first, reader))
    finally:
        writer.transport.abort()


def _trusting() -> ssl.SSLContext:
    """Return a TLS context that verifies no certificate, as in the kubelet: a probe tests liveness,
    not identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TRUSTING: Final = _trusting()


def _head(url: SplitResult, headers: Sequence[tuple[str, str]]) -> bytes:
    """Return the bytes of exactly one request: a line end in a value would start another
    request, or another protocol. The API refuses such values, but pods from earlier releases and
    from other API servers may have them. The errors are those of Go's client, which refuses them
    for the kubelet."""
    target = quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=_SAFE)
    host = next((value for name, value in headers if name.lower() == "host"), url.netloc)
    if not _is_host_header(host):
        raise HttpError("http: invalid Host header")
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
    for name, value in headers:
        if names.http_header_name(name):
            raise HttpError(f'net/http: invalid header field name "{_shown(name)}"')
        if names.http_header_value(value):
            raise HttpError(f'net/http: invalid header field value for "{_shown(name)}"')
        if name.lower() not in ("host", "connection"):
            lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode()


def _shown(text: str) -> str:
    return text.encode("unicode_escape").decode()


class _ResponseHead:
    """The lines before a response's body, of all interim responses together, up to a limit."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = MOST_HEAD

    async def next(self) -> str:
        try:
            line = await self._reader.readline()
        except ValueError as error:
            raise HttpError("the answer has a line that is too long") from error
        self._left -= len(line)
        if self._left < 0:
            raise HttpError(f"server response headers exceeded {MOST_HEAD} bytes; aborted")
        return line.decode("latin-1").rstrip("\r\n")


async def _read(lines: _ResponseHead, first: str, reader: asyncio.StreamReader) -> ProbeResponse:
    status, headers = await _read_head(lines, first)
    while 100 <= status < 200 and status != 101:
        status, headers = await _read_head(lines, await lines.next())
    return ProbeResponse(
        status, headers.get("location", ""), await _read_body(lines, reader, headers)
    )


async def _read_head(lines: _ResponseHead, first: str) -> tuple[int, dict[str, str]]:
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not _is_status(words[1]):
        raise HttpError(f'malformed HTTP response "{_shown(first[:100])}"' if first else "EOF")
    headers: dict[str, str] = {}
    while line := await lines.next():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


def _is_status(word: str) -> bool:
    return len(word) == 3 and word.isascii() and word.isdigit()


async def _read_body(
    lines: _ResponseHead, reader: asyncio.StreamReader, headers: dict[str, str]
) -> bytes:
    """Return the body up to the limit."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(lines, reader)
    length = headers.get("content-length", "")
    wanted = min(int(length), MOST) if length.isascii() and length.isdigit() else MOST
    try:
        return await reader.readexactly(wanted)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _read_chunks(lines: _ResponseHead, reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < MOST:
        # Lines between chunks count like the head, because a server may send many of them.
        size = int((await lines.next()).partition(";")[0] or "0", 16)
        if size <= 0:
            break
        body += await reader.readexactly(min(size, MOST - len(body)))
        if len(body) < MOST:
            await reader.readexactly(2)
    return body


def describe(error: Exception, url: str) -> str:
    """Return the text of a failed connection, as Go's dialler writes it."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return dial_error(error, parts.hostname or "", port)


def dial_error(error: Exception, host: str, port: int) -> str:
    where = address(host, port)
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {where}: connect: connection refused"
    if isinstance(error, OSError) and error.strerror:
        return f"dial tcp {where}: connect: {error.strerror.lower()}"
    return str(error) or type(error).__name__
