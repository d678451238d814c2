"""A minimal HTTP/1.1 client for tests that also sends malformed requests."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_MOST_BODY: Final = 64 << 20


class RawAnswer(NamedTuple):
    """The response; status 0 if the server closed the connection instead."""

    status: int
    body: bytes
    is_last: bool
    """Whether the connection cannot be used again."""


class RawConnection:
    """One connection at a time to one server, opened again whenever it was closed."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._tls = tls
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> RawAnswer:
        """Send one request and read its answer."""
        sent = dict(headers)
        sent.setdefault("Authorization", f"Bearer {self._token}")
        lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        head = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass")
        return await self.send_bytes(head + body, has_body=method != "HEAD")

    async def send_bytes(self, content: bytes, *, has_body: bool = True) -> RawAnswer:
        """Send any bytes and read one answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, server_hostname=self._server_name()
            )
        reader, writer = self._streams
        try:
            writer.write(content)
            await writer.drain()
            answer = await _answer(reader, has_body=has_body)
        except (OSError, asyncio.IncompleteReadError):
            answer = RawAnswer(0, b"", True)
        if answer.is_last:
            await self.close()
        return answer

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    def _server_name(self) -> str | None:
        return self._host if self._tls else None


async def _answer(reader: asyncio.StreamReader, *, has_body: bool) -> RawAnswer:
    line = await reader.readline()
    if not line.startswith(b"HTTP/1.1 "):
        return RawAnswer(0, line, True)
    status, fields = int(line.split()[1]), await _fields(reader)
    if status == 100:
        return await _answer(reader, has_body=has_body)
    is_last = status == 101 or fields.get("connection") == "close"
    if not has_body or status in (101, 204, 304):
        return RawAnswer(status, b"", is_last)
    if fields.get("transfer-encoding") == "chunked":
        return RawAnswer(status, await _chunks(reader), is_last)
    return RawAnswer(status, await reader.readexactly(int(fields["content-length"])), is_last)


async def _fields(reader: asyncio.StreamReader) -> dict[str, str]:
    fields = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.lower()] = value.strip().lower()
    return fields


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int(await reader.readline() or b"0", 16):
        body += await reader.readexactly(size)
        await reader.readline()
        if len(body) > _MOST_BODY:
            raise AssertionError("the answer has no end")
    await reader.readline()
    return bytes(body)
