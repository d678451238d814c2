"""HttpTransport: requests over TLS or plain TCP, on connections that are kept open and reused."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kedge.client.connection import (
    HttpConnection,
    encode_request,
    open_connection,
    open_through,
)
from kedge.client.transport import Call, Reply, Stream, Unreachable
from kedge.machinery.sockets import SocketMaker
from kedge.machinery.tls_trust import trusting

if TYPE_CHECKING:
    # Most processes have no proxy.
    from kedge.machinery.proxies import ProxyAddress

ANSWER_SECONDS = 70.0
"""A little longer than the time limit of API servers for a request."""
MAX_REQUESTS = 16
"""Concurrent requests. More would only queue at the server, and the TLS handshake of another
connection costs more than most requests."""


class NotConnected(Unreachable):
    """There was no connection, so that the request had no effect."""


class HttpTransport:
    """Fulfils Transport for one server; trusts only the given certificate authority.

    `tls` replaces that trust by the caller's context, which may have a client certificate. `dial`
    is the address to connect to instead of the host in the URL, whose certificate is still
    expected. A `token` that changes is a function, which is called for each request and may raise
    OSError. `make` makes the sockets, if they must be in another network namespace. `proxy` carries
    the connections: by CONNECT to servers with TLS, and whole requests to others.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_pem: bytes = b"",
        token: str | Callable[[], str] = "",
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        dial: tuple[str, int] | None = None,
        make: SocketMaker | None = None,
        proxy: "ProxyAddress | None" = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the address of a server: {url!r}")
        self._authority = parts.netloc.rpartition("@")[2]
        self._dial = dial or (
            parts.hostname,
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        self._dialed = f"{dial[0]}:{dial[1]}" if dial else self._authority
        self._prefix = parts.path.rstrip("/")
        self._tls = (tls or trusting(ca_pem)) if parts.scheme == "https" else None
        self._server_name = server_name or (parts.hostname if dial else None)
        self._token = token
        self._proxy = proxy
        self._host = parts.hostname
        self._make = make
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()

    async def send(self, call: Call) -> Reply:
        async with self._slots:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await self._send(call)
            except TimeoutError:
                raise Unreachable(f"no answer from {self._authority}") from None

    async def _send(self, call: Call) -> Reply:
        async with self._exchange(call) as connection:
            body = b"".join([piece async for piece in connection.body])
            return Reply(connection.status, connection.headers, body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._exchange(call) as connection:
            yield Stream(connection.status, connection.headers, connection.body)

    async def close(self) -> None:
        gone = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if gone:
            await asyncio.wait(gone)

    @asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator[HttpConnection]:
        """Yield a connection on which the head of the response has arrived."""
        connection = await self._begin(call)
        try:
            yield connection
        finally:
            self._give_back(connection)

    async def _begin(self, call: Call) -> HttpConnection:
        request = self._encoded(call)
        while True:
            connection = self._kept() or await self._connect()
            kept = connection.responses > 0
            try:
                await connection.ask(request, is_head=call.method == "HEAD")
            except Unreachable:
                # The server may have closed a kept connection just before it was used. Only
                # requests that are safe to repeat are sent again.
                if not (kept and call.method == "GET"):
                    raise
            except BaseException:
                connection.abort()
                raise
            else:
                return connection

    def _kept(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        if connection.reusable and len(self._idle) < MAX_REQUESTS:
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> HttpConnection:
        try:
            if self._proxy is not None:
                return await self._connect_through(self._proxy)
            host, port = self._dial
            return await open_connection(
                host,
                port,
                tls=self._tls,
                server_name=self._server_name,
                connections=self._open,
                make=self._make,
            )
        except TimeoutError as error:
            raise NotConnected(f"cannot connect to {self._dialed}: no answer in time") from error
        except OSError as error:
            raise NotConnected(f"cannot connect to {self._dialed}: {error}") from error

    async def _connect_through(self, proxy: "ProxyAddress") -> HttpConnection:
        from kedge.client.tunnel import unreachable

        if self._tls is not None:
            host, port = self._dial
            authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return await open_through(
                proxy,
                authority,
                tls=self._tls,
                server_name=self._server_name or self._host,
                connections=self._open,
            )
        try:
            return await open_connection(
                proxy.host,
                proxy.port,
                tls=trusting(b"") if proxy.scheme == "https" else None,
                server_name=None,
                connections=self._open,
            )
        except OSError as error:
            raise unreachable(proxy, error) from error

    def _encoded(self, call: Call) -> bytes:
        target = self._prefix + call.path + (f"?{call.query}" if call.query else "")
        asked = self._proxy if self._tls is None else None
        if asked is not None:
            target = f"http://{self._authority}{target}"
        try:
            token = self._token() if callable(self._token) else self._token
        except OSError as error:
            raise Unreachable(f"cannot read the token for {self._authority}: {error}") from error
        headers = [("authorization", f"Bearer {token}")] if token else []
        headers += call.headers.items()
        if asked is not None and asked.authorization:
            headers.append(("proxy-authorization", asked.authorization))
        return encode_request(call.method, target, self._authority, headers, call.body)
