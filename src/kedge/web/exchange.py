"""Exchange: one request to another server on a connection of its own, and whatever comes back.

Unlike a client's transport it can end up with the connection itself, speaking another protocol.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import httptools

from kedge.web.duplex import Duplex, connect
from kedge.web.message import header_line

CONNECT_SECONDS: Final = 10.0
_HEAD: Final = 64 << 10


class Broken(ConnectionError):
    """The other server does not answer in HTTP, or stopped in the middle."""


@dataclass(frozen=True)
class Address:
    """Where to ask, and how to be sure of who answers."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Asking:
    """What to ask."""

    method: str
    target: str
    """The path, and the query if there is one; percent-encoded."""
    headers: Iterable[tuple[str, str]] = ()
    body: bytes = b""

    def encoded(self, authority: str) -> bytes:
        head = f"{self.method} {self.target} HTTP/1.1\r\nhost: {authority}\r\n"
        head += "".join(header_line(name, value) for name, value in self.headers)
        if self.body or self.method in ("POST", "PUT", "PATCH"):
            head += f"content-length: {len(self.body)}\r\n"
        return f"{head}\r\n".encode("latin-1", "replace") + self.body


@dataclass
class Exchange:
    """An answer whose head has come. Whoever has it must read it to its end or close it."""

    connection: Duplex
    status: int
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""
    _parser: "_Parser" = field(repr=False)

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        parser = self._parser
        try:
            while True:
                for piece in parser.taken():
                    yield piece
                if parser.complete:
                    return
                parser.feed(await self.connection.read())
        finally:
            self.connection.close()

    async def whole(self, most: int) -> bytes:
        """The body, but not more of it than that."""
        kept = bytearray()
        async for piece in self.pieces():
            kept += piece
            if len(kept) >= most:
                break
        self.connection.close()
        return bytes(kept[:most])

    def upgraded(self) -> Duplex:
        """The connection, now that both sides agree to speak another protocol."""
        if self._parser.rest:
            self.connection.data_received(self._parser.rest)
            self._parser.rest = b""
        return self.connection

    def close(self) -> None:
        self.connection.abort()


async def ask(address: Address, asking: Asking) -> Exchange:
    """Send a request; returns when the head of the answer has come. OSError if none does."""
    async with asyncio.timeout(CONNECT_SECONDS):
        connection = await connect(address.host, address.port, address.tls, address.server_name)
    try:
        connection.write(asking.encoded(address.authority))
        parser = _Parser(asking.method)
        while not parser.in_body:
            parser.feed(await connection.read())
    except BaseException:
        connection.abort()
        raise
    return Exchange(connection, parser.status, parser.headers, parser)


class _Parser:
    """The answer to one request, piece by piece."""

    def __init__(self, method: str) -> None:
        self._bodiless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._progress = 0
        """How many pieces of the body and heads were received."""
        self._overhead = 0
        """Bytes received since the last of them."""
        self._until_close = False
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.in_body = False
        self.complete = False
        self.rest = b""
        """What has come of another protocol."""

    def feed(self, data: bytes) -> None:
        """Read on; empty data is the end of the connection."""
        if not data:
            if not self._until_close:
                raise Broken("the connection was closed before the answer was complete")
            self.complete = True
            return
        progress = self._progress
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            raise Broken(f"not an answer in HTTP: {error}") from error
        # Other bytes belong to a head or a trailer, which is kept in memory. Heads of 1xx do not
        # count as progress: there may be any number of them.
        self._overhead = 0 if progress != self._progress else self._overhead + len(data)
        if self._overhead > _HEAD + len(data):
            raise Broken("the head of the answer is too long")

    def taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces

    # What httptools calls while it parses.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200 and self.status != 101:
            self.headers.clear()
            return
        self.in_body = True
        self._progress += 1
        told = {name for name, _ in self.headers}
        self._until_close = not told & {"content-length", "transfer-encoding"}
        if self._bodiless or self.status in (101, 204, 304):
            self.complete = True

    def on_body(self, data: bytes) -> None:
        self._progress += 1
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self.in_body:
            self.complete = True
