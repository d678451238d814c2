"""Listening sockets, and the connections that they accept."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from kedge.machinery.clock import Clock
from kedge.machinery.sockets import SocketMaker
from kedge.machinery.turns import StepTurns
from kedge.web.connection_limits import ConnectionSlots
from kedge.web.server_connection import ServerConnection
from kedge.web.tls_handshake import secured

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 32
_BACKLOG = 1024
_RETRY_SECONDS = 0.1
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts the connections of one listening socket.

    asyncio's server reports a connection only after its TLS handshake, but every accepted socket
    must be counted, and closed if needed.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        *,
        slots: ConnectionSlots,
        clock: Clock,
        turns: StepTurns,
        handshake_seconds: float,
        connection: Callable[[], ServerConnection],
    ) -> None:
        self._socket = listening
        self._tls = tls
        self._slots = slots
        self._clock = clock
        self._turns = turns
        self._handshake_seconds = handshake_seconds
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_open = True
        self.port = int(listening.getsockname()[1])
        self._loop.add_reader(listening, self._accept)

    def stop(self) -> None:
        """Accept no further connections; handshakes go on."""
        if not self._is_open:
            return
        self._is_open = False
        # The kernel has connections for this socket, and resets them when it is closed.
        self._accept()
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def close(self) -> None:
        """Accept no further connections, and end handshakes."""
        self.stop()
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        # Others wait in the kernel's queue: here they could be evicted before their turn.
        for _ in range(_ACCEPTS_PER_TURN - self._turns.waiting):
            if seconds := self._slots.make_room(self._clock.monotonic()):
                self._rest(seconds)
                return
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                log.warning("connection not accepted error=%r", error.strerror)
                self._slots.evict_stranger()
                self._rest(_RETRY_SECONDS)
                return
            self._receive(accepted)

    def _rest(self, seconds: float) -> None:
        """Pause accepting; new connections wait in the kernel's queue."""
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._continue)

    def _continue(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _receive(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connection()
        # The listener owns this task: it is cancelled when the listener is closed.
        task = self._loop.create_task(self._handshake(connection, accepted))
        self._handshakes.add(task)
        task.add_done_callback(lambda task: self._connected(task, connection, accepted))
        connection.arrive(task)

    async def _handshake(self, connection: ServerConnection, accepted: socket.socket) -> None:
        """Set up a connection, with its TLS handshake."""
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
                return
            seconds, turns = self._handshake_seconds, self._turns
            transport, content = await secured(accepted, self._tls, seconds, turns)
            transport.set_protocol(connection)
            connection.connection_made(transport)
            if content:
                connection.data_received(content)
        except OSError as error:
            # Any client can cause this, so it is logged only at debug level.
            log.debug("handshake failed error=%r", error)

    def _connected(
        self, task: "asyncio.Task[None]", connection: ServerConnection, accepted: socket.socket
    ) -> None:
        """Close a socket that did not become a connection. Not in `_handshake`: a task that is
        cancelled before its first step runs none of its code."""
        self._handshakes.discard(task)
        if not connection.is_made:
            accepted.close()
            connection.discard()


async def listening_sockets(
    host: str, port: int, make: SocketMaker = socket.socket, *, is_shared: bool = False
) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; raises OSError. `is_shared` lets other
    processes of this user listen there too."""
    loop = asyncio.get_running_loop()
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = await loop.getaddrinfo(host or None, port, type=kind, flags=passive)
    made: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            listening = make(family, kind | socket.SOCK_NONBLOCK, 0)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listening, address)
            listening.listen(_BACKLOG)
    except BaseException:
        for listening in made:
            listening.close()
        raise
    return made


def _bind(listening: socket.socket, address: Any) -> None:
    try:
        listening.bind(address)
    except OSError as error:
        why = f"cannot listen on {address[0]} port {address[1]}: {error.strerror}"
        raise OSError(error.errno, why) from None
