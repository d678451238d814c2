"""Exchange: one request to another server on a connection of its own, and the response.

Unlike a client's transport it gives away the connection itself after an upgrade to another
protocol.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from kedge.client.connection import HttpConnection, encode_request, open_connection
from kedge.client.transport import Unreachable
from kedge.machinery.sockets import SocketMaker
from kedge.web.duplex import AHEAD, Duplex, probe_silent_peer
from kedge.web.message import one_line


class ServerAddress(msgspec.Struct, frozen=True, eq=False):
    """Host, port and how to verify the server."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    make: SocketMaker | None = None
    """Makes the socket, if the address is in another network namespace. Addresses that differ only
    in this are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerAddress) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.host, self.port, self.tls, self.server_name

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request to another server."""

    method: str
    target: str
    """The path, and the query if there is one; percent-encoded."""
    headers: Iterable[tuple[str, str]] = ()
    body: bytes = b""
    host: str = ""
    """The Host header; empty names the server's address."""

    def check_upgrade(self, status: int) -> None:
        """Raise Unreachable if the server switches to another protocol without being asked: a
        client that gets such a response takes what follows for that protocol."""
        if status == 101 and not any(name.lower() == "upgrade" for name, _ in self.headers):
            raise Unreachable("the server switched to another protocol without being asked")

    def encoded(self, authority: str) -> bytes:
        """Return the bytes of the request. Headers are passed on from other peers: characters that
        a header cannot hold are replaced."""
        headers = [(name, _latin(one_line(value))) for name, value in self.headers]
        return encode_request(
            self.method, self.target, _latin(one_line(self.host)) or authority, headers, self.body
        )


def _latin(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1", "replace").decode("latin-1")


class Exchange:
    """A response whose head has arrived. Its owner must read it to the end or close it."""

    def __init__(
        self,
        connection: HttpConnection,
        release: Callable[[HttpConnection], None] | None = None,
    ) -> None:
        self._connection = connection
        self._release = release
        """Takes the connection when it can carry another request; None closes it."""
        self._is_over = False

    @property
    def status(self) -> int:
        return self._connection.status

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Names in lower case."""
        return self._connection.header_list

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)

    @property
    def length(self) -> int | None:
        """The length of the body, if the server says so."""
        text = self.header("content-length")
        plain = text.isascii() and text.isdecimal() and not self.header("transfer-encoding")
        return int(text) if plain else None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        try:
            async for piece in self._connection.body:
                yield piece
        finally:
            self.close()

    async def whole(self, most: int) -> bytes:
        """Return the body, or its first `most` bytes."""
        kept = bytearray()
        async for piece in self.pieces():
            kept += piece
            if len(kept) >= most:
                break
        self.close()
        return bytes(kept[:most])

    def upgraded(self) -> Duplex:
        """Return the connection, which from now on carries another protocol."""
        connection = self._connection
        first = connection.upgraded or b""
        if connection.lost.done():
            return Duplex.ended(connection.transport, first)
        return Duplex.over(connection.transport, first, connection.connection_lost)

    def reusable(self, release: Callable[[HttpConnection], None]) -> "Exchange":
        """Return the same exchange, whose connection is given away at its end."""
        return Exchange(self._connection, release)

    def close(self) -> None:
        """End the exchange; the connection is closed unless it can carry another request."""
        if self._is_over:
            return  # the connection may have another owner by now
        self._is_over = True
        if self._release is not None and self._connection.reusable:
            self._release(self._connection)
        else:
            self._connection.abort()


async def ask(address: ServerAddress, request: OutgoingRequest) -> Exchange:
    """Send a request; returns when the head of the response has arrived. Raises OSError."""
    connection = await open_connection(
        address.host,
        address.port,
        tls=address.tls,
        server_name=address.server_name,
        buffer=AHEAD,
        make=address.make,
    )
    probe_silent_peer(connection.transport)
    try:
        encoded = request.encoded(address.authority)
        await connection.ask(encoded, is_head=request.method == "HEAD")
        request.check_upgrade(connection.status)
    except BaseException:
        connection.abort()
        raise
    return Exchange(connection)
