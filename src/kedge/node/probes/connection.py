"""Connections of probes and hooks, with name lookups in separate threads."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kedge.node.network.network_place import MACHINE, Ends, NetworkPlace

_LOOKUPS: Final = ThreadPoolExecutor(4, "probe-lookup")
"""Threads for name lookups. Pod authors choose host names, so lookups may be slow; in asyncio's own
pool, which has six threads on a machine with two cores, six slow names would block the agent's disk
access."""
_TURNED_DOWN: Final = "no such host"


async def connect(
    host: str,
    port: int,
    secure: ssl.SSLContext | None = None,
    network: NetworkPlace = MACHINE,
) -> Ends:
    """Connect to the first address of a host that answers. Raises OSError."""
    failure: OSError = OSError(f"lookup {host}: {_TURNED_DOWN}")
    for address in await _addresses(host, port):
        try:
            return await network.connect(address, port, secure, host)
        except OSError as error:
            failure = error
    raise failure


async def _addresses(host: str, port: int) -> list[str]:
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    with contextlib.suppress(socket.gaierror, UnicodeError):
        return _unique(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric))
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(
            _LOOKUPS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except UnicodeError as error:
        raise OSError(f"lookup {host}: {_TURNED_DOWN}") from error
    return _unique(found)


def _unique(found: Sequence[tuple[object, object, object, str, Sequence[object]]]) -> list[str]:
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
