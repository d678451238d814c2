"""An HTTP proxy for tests, on loopback: it knows the hosts that a test gives it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class FakeProxy:
    """The hosts and users of the proxy, and the requests that it got."""

    port: int = 0
    hosts: dict[str, int] = field(default_factory=dict)
    """The port on loopback of each `HOST:PORT` that clients ask for."""
    authorization: str = ""
    """The Proxy-Authorization header that it asks for; empty to serve everybody."""
    answer: bytes = b""
    """The bytes that everybody gets in place of a connection; empty to connect."""
    asked: list[str] = field(default_factory=list)
    """The first lines of requests, in the order of arrival."""
    heads: list[bytes] = field(default_factory=list)
    """The whole heads of requests."""
    clients: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.clients.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self.clients.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first = head.partition(b"\r\n")[0].decode()
        self.asked.append(first)
        self.heads.append(head)
        method, target, _ = first.split(" ")
        is_tunnel = method == "CONNECT"
        place = target if is_tunnel else urlsplit(target).netloc
        if refusal := self._refusal(head, place):
            writer.write(refusal)
            await writer.drain()
            return
        there, onward = await asyncio.open_connection("127.0.0.1", self.hosts[place])
        try:
            if is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                onward.write(head.replace(f"http://{place}".encode(), b"", 1))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, onward))
                tasks.create_task(_copy(there, writer))
        finally:
            onward.close()

    def _refusal(self, head: bytes, place: str) -> bytes:
        if self.answer:
            return self.answer
        wanted = f"proxy-authorization: {self.authorization}\r\n".encode()
        if self.authorization and wanted not in head:
            return b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        if place not in self.hosts:
            return b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
        return b""


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxy(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeProxy]:
    """A proxy on a free port, which with `tls` speaks TLS itself."""
    running = FakeProxy()
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0, ssl=tls)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for task in list(running.clients):
            task.cancel()
        await asyncio.gather(*running.clients, return_exceptions=True)
