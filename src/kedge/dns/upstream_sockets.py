"""Sockets that carry one query to a resolver, over UDP or TCP. No task waits for them: the event
loop calls back."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kedge.dns.message import HEADER, TCP_SIZE
from kedge.dns.upstream_servers import SocketAddress

_LARGEST_DATAGRAM: Final = 4096
_LENGTH: Final = 2
_IN_PROGRESS: Final = (0, errno.EINPROGRESS)
_DATAGRAMS_PER_TURN: Final = 8


class QuerySocket(Protocol):
    """A query on its way."""

    server: SocketAddress

    def close(self) -> None: ...


class QueryOutcome(Protocol):
    """Called with what a socket received. Either call may close the socket."""

    def received(self, source: QuerySocket, message: bytes) -> None:
        """A message came, which may be forged."""
        ...

    def refused(self, source: QuerySocket) -> None:
        """Nothing listens there, or the connection broke."""
        ...


class DatagramQuery:
    """A query over UDP, from a port of its own that the kernel chooses at random."""

    def __init__(self, server: SocketAddress, message: bytes, outcome: QueryOutcome) -> None:
        self.server = server
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self._socket = _open(server, socket.SOCK_DGRAM)
        try:
            # A connected socket receives only datagrams from its peer, and its ICMP errors.
            self._socket.connect(server)
            self._socket.send(message)
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        for _ in range(_DATAGRAMS_PER_TURN):
            if self._socket.fileno() < 0:
                return
            try:
                message = self._socket.recv(_LARGEST_DATAGRAM)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._outcome.refused(self)
                return
            self._outcome.received(self, message)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class StreamQuery:
    """A query over TCP, for a response that does not fit into a datagram."""

    def __init__(self, server: SocketAddress, message: bytes, outcome: QueryOutcome) -> None:
        self.server = server
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self._unsent = len(message).to_bytes(_LENGTH, "big") + message
        self._received = bytearray()
        self._socket = _open(server, socket.SOCK_STREAM)
        code = self._socket.connect_ex(server)
        if code not in _IN_PROGRESS:
            self._socket.close()
            raise OSError(code, "connection failed")
        self._loop.add_writer(self._socket.fileno(), self._write)

    def _write(self) -> None:
        with self._reporting():
            sent = self._socket.send(self._unsent)
            self._unsent = self._unsent[sent:]
            if not self._unsent:
                self._loop.remove_writer(self._socket.fileno())
                self._loop.add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        with self._reporting():
            piece = self._socket.recv(TCP_SIZE + _LENGTH - len(self._received))
            if not piece:
                raise ConnectionResetError
            self._received += piece
        size = int.from_bytes(self._received[:_LENGTH], "big")
        if len(self._received) >= _LENGTH + max(size, HEADER.size):
            message = bytes(self._received[_LENGTH : _LENGTH + size])
            self.close()
            self._outcome.received(self, message)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._outcome.refused(self)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket.fileno())
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


def _open(server: SocketAddress, kind: int) -> socket.socket:
    family = socket.AF_INET6 if len(server) == 4 else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


OpenQuery = Callable[[SocketAddress, bytes, QueryOutcome], QuerySocket]
"""Opens a socket and sends a query. Raises OSError."""
