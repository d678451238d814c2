"""The DNS server: UDP and TCP at given addresses. A query about the cluster is answered within one
callback of the event loop, without a task."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kedge.dns.connections import IDLE_SECONDS, TcpConnections
from kedge.dns.message import DnsAnswer, DnsQuery, build_response, parse_query
from kedge.dns.query_budget import QueryBudget
from kedge.dns.resolver import ClusterResolver
from kedge.dns.source_filter import SourceFilter
from kedge.machinery.clock import Clock
from kedge.machinery.sockets import SocketMaker

PORT: Final = 53
_LARGEST_QUERY: Final = 4096
_PER_TURN: Final = 16
"""Datagrams that are handled before the event loop does something else."""
_RECEIVE_BUFFER: Final = 1 << 20
_BACKLOG: Final = 64
_IP_TRANSPARENT: Final = 19

Source = tuple[Any, ...]


class DnsSockets:
    """The sockets of one address. Queries wait in the kernel until they are served."""

    def __init__(
        self,
        address: str,
        port: int = PORT,
        link: str = "",
        kept: Sequence[socket.socket] = (),
        make: SocketMaker = socket.socket,
    ) -> None:
        """Bind to an address, unless sockets that were kept are bound to it. With a link, the
        machine need not have the address: it receives only what arrives by the link. `make` makes
        the sockets. Raises OSError."""
        self.address = address
        self.datagram = _kept(kept, socket.SOCK_DGRAM, (address, port)) or _bind(
            make, socket.SOCK_DGRAM, (address, port), link
        )
        self.port = int(self.datagram.getsockname()[1])
        try:
            here = address, self.port
            self.stream = _kept(kept, socket.SOCK_STREAM, here) or _bind(
                make, socket.SOCK_STREAM, here, link
            )
            self.stream.listen(_BACKLOG)
        except OSError:
            self.datagram.close()
            raise

    def close(self) -> None:
        self.datagram.close()
        self.stream.close()


def _kept(
    kept: Sequence[socket.socket], kind: int, address: tuple[str, int]
) -> socket.socket | None:
    return next(
        (each for each in kept if each.type == kind and each.getsockname() == address), None
    )


def _bind(make: SocketMaker, kind: int, address: tuple[str, int], link: str) -> socket.socket:
    made = make(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        if link:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
            made.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


class DnsServer:
    """Serves the queries of sockets. The owner must `run` it."""

    def __init__(self, resolver: ClusterResolver, sources: SourceFilter, clock: Clock) -> None:
        self._resolver = resolver
        self._sources = sources
        self._clock = clock
        self._budget = QueryBudget(clock)
        self._connections = TcpConnections(resolver, sources, self._budget, clock)
        self._sockets: list[DnsSockets] = []
        self._servers: list[asyncio.Server] = []

    async def serve(self, sockets: DnsSockets) -> None:
        """Begin to answer the queries of these sockets, and close them at the end."""
        loop = asyncio.get_running_loop()
        self._sockets.append(sockets)
        loop.add_reader(sockets.datagram.fileno(), self._read, sockets.datagram)
        self._servers.append(
            await loop.create_server(self._connections.connection, sock=sockets.stream)
        )

    async def run(self) -> None:
        """Close idle connections until cancelled."""
        while True:
            await self._clock.sleep(IDLE_SECONDS / 2)
            self._sources.forget()
            self._connections.close_idle()

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for server in self._servers:
            server.close()
        for each in self._sockets:
            loop.remove_reader(each.datagram.fileno())
            each.close()
        self._connections.close()

    def _read(self, channel: socket.socket) -> None:
        for _ in range(_PER_TURN):
            try:
                data, source = channel.recvfrom(_LARGEST_QUERY)
            except OSError:
                # Nothing is left to read, or an ICMP error of an earlier answer arrived.
                return
            if self._sources.admits(source[0]) and self._budget.admits(source[0]):
                self._handle(channel, data, source)

    def _handle(self, channel: socket.socket, data: bytes, source: Source) -> None:
        query = parse_query(data)
        if query is None:
            return
        answer = self._resolver.answer(query)
        if answer is not None:
            self._budget.charge(source[0], answer.size)
            _reply(channel, query, source, answer)
        else:
            self._resolver.forward(query, source[0], partial(_reply, channel, query, source))


def _reply(channel: socket.socket, query: DnsQuery, source: Source, answer: DnsAnswer) -> None:
    # A client that is gone, or whose buffer is full, asks again if it still wants to know.
    with contextlib.suppress(OSError):
        channel.sendto(build_response(query, answer, query.size), source)
