"""Makers of sockets: this process, or another one that lives in another network namespace."""

import asyncio
import socket
from collections.abc import Callable

SocketMaker = Callable[[int, int, int], socket.socket]
"""Returns a new socket of a family, a kind and a protocol, as socket.socket does. Raises OSError.
It may wait for another process."""


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
