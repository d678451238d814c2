"""A connection to a server through an HTTP proxy, by the method CONNECT."""

import asyncio
import re
import ssl
from http import HTTPStatus
from typing import Final

from kedge.machinery.proxies import ProxyAddress

HEAD_BYTES: Final = 16 << 10
"""Bytes of a proxy's answer to CONNECT."""
_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_PROXY_AUTHENTICATION: Final = 407


class ProxyFailure(OSError):
    """The proxy could not be reached, or did not connect to the server."""


async def open_tunnel(proxy: ProxyAddress, address: str, authority: str) -> asyncio.Transport:
    """Return a transport on which the server of `authority` (HOST:PORT) answers. `address` is that
    of the proxy. Raises ProxyFailure."""
    loop = asyncio.get_running_loop()
    try:
        transport, reply = await loop.create_connection(
            lambda: _ConnectReply(proxy),
            address,
            proxy.port,
            ssl=_tls(proxy),
            server_hostname=_name(proxy),
        )
    except OSError as error:
        raise unreachable(proxy, error) from error
    try:
        transport.write(_request(proxy, authority))
        status = await reply.status
        if not 200 <= status < 300:
            raise refusal(proxy, authority, status)
        return transport
    except BaseException:
        transport.abort()
        raise


def unreachable(proxy: ProxyAddress, error: OSError) -> ProxyFailure:
    """Return the error of a proxy to which there is no connection."""
    return ProxyFailure(f"the proxy {proxy} is not reachable: {str(error) or 'no answer'}")


def refusal(proxy: ProxyAddress, authority: str, status: int) -> ProxyFailure:
    """Return the error of a proxy that does not connect to a server."""
    if status == _PROXY_AUTHENTICATION:
        url = f"{proxy.scheme}://USER:PASSWORD@{proxy.host}:{proxy.port}"
        wrong = "other credentials" if proxy.authorization else "credentials"
        return ProxyFailure(f"the proxy {proxy} asks for {wrong}: set {proxy.variable}={url}")
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "no reason"
    return ProxyFailure(
        f"the proxy {proxy} does not connect to {authority}: it answers {status} ({phrase})"
    )


def _request(proxy: ProxyAddress, authority: str) -> bytes:
    lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}", "user-agent: kedge"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _tls(proxy: ProxyAddress) -> ssl.SSLContext | None:
    return ssl.create_default_context() if proxy.scheme == "https" else None


def _name(proxy: ProxyAddress) -> str | None:
    return proxy.host if proxy.scheme == "https" else None


class _ConnectReply(asyncio.Protocol):
    """The head of a proxy's answer. It is not parsed by the parser of responses: that would take
    what follows for a body."""

    def __init__(self, proxy: ProxyAddress) -> None:
        self._proxy = proxy
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        if self.status.done():
            return
        self._received += data
        end = self._received.find(_END)
        if end < 0 and len(self._received) <= HEAD_BYTES:
            return
        found = _STATUS.match(self._received)
        if found is None or end < 0 or end > HEAD_BYTES:
            self._fail("does not speak HTTP, or its answer is too long")
        elif found[1].startswith(b"2") and len(self._received) > end + len(_END):
            # In TLS the client speaks first, so this does not come from the server.
            self._fail("sends more than an answer")
        else:
            self.status.set_result(int(found[1]))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"closes the connection: {error or 'without an answer'}")

    def _fail(self, why: str) -> None:
        if not self.status.done():
            self.status.set_exception(ProxyFailure(f"the proxy {self._proxy} {why}"))
