"""KeptConnections: exchanges on connections that are kept for the next request.

A TLS handshake costs ten times as much as a small request. Only GET is sent on a kept connection:
the server may close it at that moment, and a request that changes something must not be repeated.
"""

from collections import OrderedDict
from typing import Final

from kedge.client.connection import HttpConnection
from kedge.client.transport import Unreachable
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress, ask

MOST: Final = 64
"""Idle connections to all servers together."""


class KeptConnections:
    """The idle connections of one proxy. The owner must close it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._idle: OrderedDict[HttpConnection, ServerAddress] = OrderedDict()
        """Each with the server that it leads to; the longest idle one first."""

    async def ask(self, address: ServerAddress, request: OutgoingRequest) -> Exchange:
        """Send a request; returns when the head of the response has arrived. Raises OSError."""
        if request.method != "GET":
            return await ask(address, request)
        kept = self._take(address)
        if kept is not None:
            try:
                await kept.ask(request.encoded(address.authority))
                request.check_upgrade(kept.status)
            except Unreachable:
                kept.abort()
            except BaseException:
                kept.abort()
                raise
            else:
                return Exchange(kept, lambda done: self._keep(done, address))
        return (await ask(address, request)).reusable(lambda done: self._keep(done, address))

    def close(self) -> None:
        while self._idle:
            self._idle.popitem()[0].abort()

    def _take(self, address: ServerAddress) -> HttpConnection | None:
        for connection in [each for each, where in self._idle.items() if where == address][::-1]:
            del self._idle[connection]
            if connection.reusable:
                return connection
        return None

    def _keep(self, connection: HttpConnection, address: ServerAddress) -> None:
        self._idle[connection] = address
        if len(self._idle) > self._most:
            self._idle.popitem(last=False)[0].abort()
