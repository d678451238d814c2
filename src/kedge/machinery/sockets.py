"""Makers of sockets: this process, or another one that lives in another network namespace; and the
buffers of TLS connections."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, cast

SocketMaker = Callable[[int, int, int], socket.socket]
"""Returns a new socket of a family, a kind and a protocol, as socket.socket does. Raises OSError.
It may wait for another process."""
READ_BYTES: Final = 32 << 10
"""Bytes that are read at once of a connection."""
WRITE_BYTES: Final = 64 << 10
"""Bytes that may wait to be sent before the writer is asked to pause."""


async def connected_socket(make: SocketMaker, host: str, port: int) -> socket.socket:
    """Return a stream socket that is connected to an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC
    # In a thread: a process that does not answer must not stop the event loop.
    made = await asyncio.to_thread(make, family, kind, 0)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


class BoundedReads(asyncio.BufferedProtocol):
    """Stands between a socket and its TLS protocol after the handshake, and keeps reads short.

    uvloop reads up to 256 KiB at once into a buffer of the connection, then copies them into one of
    OpenSSL, which never shrinks. So each connection would take 600 KB until it is closed.
    """

    def __init__(self, tls: asyncio.BufferedProtocol) -> None:
        self._tls = tls
        # Without a call in between: the event loop calls it for each read.
        cast(Any, self).buffer_updated = tls.buffer_updated

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._tls.get_buffer(READ_BYTES))[:READ_BYTES]

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)


def limit_buffers(transport: asyncio.Transport) -> None:
    """Limit what the transport of a TLS connection holds while its owner or its peer does not read.
    By default it is 256 KiB and 512 KiB."""
    # The transports of TLS have it, but their class in asyncio is private.
    cast(Any, transport).set_read_buffer_limits(high=READ_BYTES)
    transport.set_write_buffer_limits(high=WRITE_BYTES)
