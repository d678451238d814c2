"""HTTP probe: one GET whose answer is read as far as it matters. Also carries lifecycle hooks."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from kedge.api.core_v1.container import Container
from kedge.api.core_v1.probe import HTTPGetAction
from kedge.machinery.clock import Clock
from kedge.node.probes.outcome import Outcome, ProbeError, Result, address, port_of
from kedge.node.waits import within

MOST: Final = 10 * 1024
"""Bytes of an answer's body that are read."""
REDIRECTS: Final = 10
VERSION: Final = "1.36"
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"


class HttpError(Exception):
    """No answer that could be understood."""


@dataclass(frozen=True)
class Request:
    """A GET: where to, and what to say."""

    url: str
    headers: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    location: str
    body: bytes


async def probe_http(
    action: HTTPGetAction, container: Container, ip: str, clock: Clock, seconds: float
) -> Outcome:
    """Success is any answer from 200 to 399. Raises ProbeError if there is nothing to ask."""
    request = request_for(action, container, ip, "probe")
    try:
        answer = await within(clock, seconds, get(request))
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return Outcome(Result.FAILURE, f'Get "{request.url}": {late}')
    except (OSError, HttpError) as error:
        return Outcome(Result.FAILURE, f'Get "{request.url}": {describe(error, request.url)}')
    body = answer.body.decode(errors="replace")
    if 200 <= answer.status < 300:
        return Outcome(Result.SUCCESS, body)
    if 300 <= answer.status < 400:
        return Outcome(Result.WARNING, f"Probe terminated redirects, Response body: {body}")
    return Outcome(Result.FAILURE, f"HTTP probe failed with statuscode: {answer.status}")


def request_for(action: HTTPGetAction, container: Container, ip: str, purpose: str) -> Request:
    """The request that an action stands for. Raises ProbeError."""
    host = action.host or ip
    if not host:
        raise ProbeError("the pod has no address")
    port = port_of(action.port, container)
    scheme = (action.scheme or "HTTP").lower()
    path = quote(action.path or "/", safe=_SAFE)
    path = path if path.startswith("/") else f"/{path}"
    url = f"{scheme}://{address(host, port)}{path}"
    return Request(url, _headers(action, purpose))


def _headers(action: HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    given = [(header.name, header.value) for header in action.httpHeaders]
    names = {name.lower() for name, _ in given}
    if "user-agent" not in names:
        given.append(("User-Agent", f"kube-{purpose}/{VERSION}"))
    if "accept" not in names:
        given.append(("Accept", "*/*"))
    return [(name, value) for name, value in given if name.lower() != "accept" or value]


async def get(request: Request) -> Answer:
    """Ask, and follow redirects that stay on the same host."""
    url = request.url
    for _ in range(REDIRECTS):
        answer = await _ask(urlsplit(url), request.headers)
        if answer.status not in (301, 302, 303, 307, 308) or not answer.location:
            return answer
        following = urljoin(url, answer.location)
        if urlsplit(following).hostname != urlsplit(request.url).hostname:
            return answer
        url = following
    raise HttpError(f"stopped after {REDIRECTS} redirects")


async def _ask(url: SplitResult, headers: Sequence[tuple[str, str]]) -> Answer:
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(
        url.hostname, port, ssl=_TRUSTING if secure else None
    )
    try:
        writer.write(_head(url, headers))
        await writer.drain()
        return await _read(reader)
    finally:
        writer.transport.abort()


def _trusting() -> ssl.SSLContext:
    """Probes do not check certificates: they ask whether somebody is there, not who."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TRUSTING: Final = _trusting()


def _head(url: SplitResult, headers: Sequence[tuple[str, str]]) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = next((value for name, value in headers if name.lower() == "host"), url.netloc)
    rest = [pair for pair in headers if pair[0].lower() not in ("host", "connection")]
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in rest]
    return "\r\n".join([*lines, "", ""]).encode()


async def _read(reader: asyncio.StreamReader) -> Answer:
    status, headers = await _read_head(reader)
    while status == 100:
        status, headers = await _read_head(reader)
    return Answer(status, headers.get("location", ""), await _read_body(reader, headers))


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first = await _line(reader)
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
        raise HttpError(f'malformed HTTP response "{first[:100]}"' if first else "EOF")
    headers: dict[str, str] = {}
    while line := await _line(reader):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readline()).decode("latin-1").rstrip("\r\n")
    except ValueError as error:
        raise HttpError("the answer has a line that is too long") from error


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """As much of the body as is worth looking at."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    length = headers.get("content-length", "")
    wanted = min(int(length), MOST) if length.isdigit() else MOST
    try:
        return await reader.readexactly(wanted)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < MOST:
        size = int((await _line(reader)).partition(";")[0] or "0", 16)
        if size == 0:
            break
        body += await reader.readexactly(min(size, MOST - len(body)))
        if len(body) < MOST:
            await reader.readexactly(2)
    return body


def describe(error: Exception, url: str) -> str:
    """A failed connection, in the words of Go's dialler."""
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
